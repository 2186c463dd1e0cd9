package ruleimport

import (
	"maps"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"github.com/weirproject/weir/rules"
)

var variable = regexp.MustCompile(`\$\{?([a-zA-Z0-9_]+)\}?`)

func sortedKeys[T any](table map[string]T) []string { return slices.Sorted(maps.Keys(table)) }

// An nginxKey is the key of a zone as a rule has it.
type nginxKey struct {
	components []string
	onMissing  rules.OnMissing
	perServer  bool // each server is counted by itself
	exempt     exemption
}

// An exemption lists the requests that get an empty key from a map, so that they are not limited.
type exemption struct {
	source string // a component; "": there is none
	except bool   // all but these
	values []string
}

// builtin are variables with one component; a second word is why it is not quite the same.
var builtin = map[string][2]string{
	"binary_remote_addr": {"client.ip v6/128"},
	"remote_addr":        {"client.ip v6/128"},
	"host":               {"host"},
	"http_host":          {"host", "the port of the Host header is not counted by itself"},
	"request_method":     {"method"},
	"remote_user":        {"user"},
	"uri":                {"endpoint", "paths are counted by themselves up to 1,000, and all others together"},
	"document_uri":       {"endpoint", "paths are counted by themselves up to 1,000, and all others together"},
	"request_uri": {"endpoint", "query strings are not counted by themselves, and paths up to 1,000, all others " +
		"together"},
}

// named are prefixes of variables with a name in them.
var named = []struct{ prefix, source string }{{"http_", "header."}, {"arg_", "query."}, {"cookie_", "cookie."}}

// component is the component of a variable.
func component(name string) (text, note string, ok bool) {
	if known, ok := builtin[name]; ok {
		return known[0], known[1], true
	}
	for _, kind := range named {
		rest, is := strings.CutPrefix(name, kind.prefix)
		if !is || rest == "" {
			continue
		}
		if kind.source == "header." {
			rest = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(rest, "_", "-"))
		}
		return kind.source + rest, "", true
	}
	return "", "", false
}

// key is the key of a zone.
func (n *nginxConf) key(z *nginxZone) (key *nginxKey, ok bool) {
	key = new(nginxKey)
	text := z.key
	if d := n.maps[text]; d != nil {
		if text, ok = n.mapped(d, &key.exempt); !ok {
			return nil, false
		}
	}
	always := len(variable.ReplaceAllString(text, "")) > 0 // a text in it, so that it is never empty
	for _, match := range variable.FindAllStringSubmatch(text, -1) {
		if match[1] == "server_name" {
			key.perServer, always = true, true
			continue
		}
		one, note, known := component(match[1])
		if !known {
			return nil, false
		}
		if note != "" && !z.used {
			n.Lacks(z.at.file, z.at.line, "accept it, or choose another key", "key $%s: %s", match[1], note)
		}
		if !slices.Contains(key.components, one) {
			key.components = append(key.components, one)
		}
		always = always || !strings.Contains(one, ".") || strings.HasPrefix(one, "client.ip")
	}
	switch {
	case always || len(key.components) == 0:
	case len(key.components) == 1:
		key.onMissing = rules.Skip
	default:
		if !z.used {
			n.Lacks(z.at.file, z.at.line, "add a condition to match if such requests must not be limited",
				"key %.80s: requests without any of its parts are counted together", text)
		}
	}
	return key, true
}

// An outcome is the result of a map or geo for a value.
type outcome struct{ value, result string }

// outcomes reads a map or a geo of plain values.
func outcomes(d *directive) (list []outcome, fallback string, ok bool) {
	for _, entry := range d.block {
		switch {
		case entry.name == "default" && len(entry.args) == 1:
			fallback = entry.args[0]
		case len(entry.args) != 1 || strings.HasPrefix(entry.name, "~") || strings.HasPrefix(entry.name, `\`):
			return nil, "", false
		default:
			list = append(list, outcome{entry.name, entry.args[0]})
		}
	}
	return list, fallback, true
}

// mapped is the key that a map has for all but some values, which it makes empty, or the other way round.
func (n *nginxConf) mapped(d *directive, e *exemption) (key string, ok bool) {
	list, fallback, ok := outcomes(d)
	if !ok || d.name != "map" || len(d.args) != 2 {
		return "", false
	}
	source := strings.TrimPrefix(d.args[0], "$")
	if geo := n.maps[d.args[0]]; geo != nil {
		if list, fallback, ok = composed(geo, list, fallback); !ok {
			return "", false
		}
		e.source = "client.ip"
	} else if e.source, _, ok = component(source); !ok || e.source == "endpoint" || e.source == "client.ip v6/128" {
		return "", false
	}
	key, e.except = fallback, fallback == ""
	for _, one := range list {
		switch {
		case one.result == fallback:
			if e.source == "client.ip" {
				return "", false // a network within another one, perhaps
			}
		case one.result != "" && key == "":
			key = one.result
			e.values = append(e.values, one.value)
		case one.result == "" || one.result == key:
			e.values = append(e.values, one.value)
		default:
			return "", false // two keys
		}
	}
	if len(e.values) == 0 {
		e.source = ""
	}
	return key, variable.MatchString(key) && e.narrow(new(rules.Spec))
}

// composed is the result of a map for the values of a geo.
func composed(geo *directive, results []outcome, fallback string) (list []outcome, usual string, ok bool) {
	if geo.name != "geo" || len(geo.args) != 1 {
		return nil, "", false
	}
	networks, plain, ok := outcomes(geo)
	if !ok {
		return nil, "", false
	}
	of := func(value string) string {
		for _, one := range results {
			if strings.EqualFold(one.value, value) {
				return one.result
			}
		}
		return fallback
	}
	for _, one := range networks {
		_, errPrefix := netip.ParsePrefix(one.value)
		_, errAddress := netip.ParseAddr(one.value)
		if errPrefix != nil && errAddress != nil {
			return nil, "", false
		}
		list = append(list, outcome{one.value, of(one.result)})
	}
	return list, of(plain), true
}

var listed = strings.NewReplacer(`\`, `\\`, `*`, `\*`)

// narrow excepts requests from a rule, and reports whether a rule can. Maps of nginx compare texts in any case.
func (e *exemption) narrow(spec *rules.Spec) bool {
	source, name, _ := strings.Cut(e.source, ".")
	missing := slices.Contains(e.values, "")
	switch {
	case e.source == "":
	case source == "client" && e.except:
		spec.Match.Client = e.values
	case source == "client":
		spec.Allow = map[string][]string{"client.ip": e.values}
	case source == "header" && e.except && !missing:
		expressions := make([]string, len(e.values))
		for i, value := range e.values {
			expressions[i] = "(?i)" + regexp.QuoteMeta(value)
		}
		spec.Match.Regex.Header = map[string][]string{name: expressions}
	case source == "header" && e.except && len(e.values) == 1:
		spec.Match.Not = append(spec.Match.Not, rules.Match{Header: map[string][]string{name: {"*"}}})
	case !e.except && !missing:
		values := make([]string, len(e.values))
		for i, value := range e.values {
			values[i] = listed.Replace(strings.ToLower(value))
		}
		spec.Allow = map[string][]string{e.source + " lower": values}
	default:
		return false
	}
	return true
}
