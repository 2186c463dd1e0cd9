package redissource

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// configType is the field of hashes that are no limits, and its values. Their keys are the prefix, the type in lower
// case, a colon and the name.
const (
	configType  = "configType"
	serviceType = "SERVICE"
	routeType   = "ROUTE"
)

// A forwardField is a field of a service or a route, and its place in a rule file.
type forwardField struct {
	name, path string
	kind       fieldKind
}

// A fieldKind is how the value of a field is read.
type fieldKind uint8

const (
	aText fieldKind = iota
	aWord           // in any case
	aNumber
	aList // with commas
)

var forwardFields = map[string][]forwardField{
	serviceType: {{"addresses", "addresses", aList}, {"balance", "balance", aWord}, {"host", "host", aWord},
		{"connectTimeout", "timeout.connect", aText}, {"headerTimeout", "timeout.header", aText},
		{"totalTimeout", "timeout.total", aText}, {"idleTimeout", "timeout.idle", aText},
		{"retries", "retries", aNumber}, {"retrySafe", "retry_safe", aWord}, {"maxBody", "max_body", aText},
		{"failures", "health.failures", aNumber}, {"ejectTime", "health.eject", aText},
		{"ejectTimeMax", "health.eject_max", aText}, {"checkPath", "health.path", aText},
		{"checkInterval", "health.interval", aText}, {"checkStatus", "health.status", aNumber},
		{"tlsServerName", "tls.server_name", aText}},
	routeType: {{"service", "service", aText}, {"host", "host", aList}, {"path", "path", aText},
		{"method", "method", aList}, {"stripPrefix", "strip_prefix", aText}, {"addPrefix", "add_prefix", aText},
		{"maxBody", "max_body", aText}},
}

// A forward is a service or a route of a hash.
type forward struct {
	service *rules.ServiceSpec // or
	route   *rules.RouteSpec
	text    []byte // equal for equal ones
}

// examineForward parses a hash with a configType.
func examineForward(key, suffix string, fields map[string]string) *examined {
	r := &reader{key: key, fields: fields}
	kind := r.word(configType, []string{serviceType, routeType})
	if v, ok := fields["version"]; ok && v != version {
		r.wrong("version", version+", or no such field; a newer one takes a newer weir")
	}
	if !r.has("enabled") {
		r.say("enabled", "is missing; needed: true or false")
	}
	rec := record{enabled: r.flag("enabled"), forward: &forward{}}
	if kind != "" {
		r.ignoreOthers(kind)
		name, _ := strings.CutPrefix(suffix, strings.ToLower(kind)+":")
		r.parseForward(rec.forward, kind, r.asFile(name, forwardFields[kind]))
	}
	return &examined{rec, r.problems, r.ignored}
}

// ignoreOthers reports unknown fields.
func (r *reader) ignoreOthers(kind string) {
	names := []string{configType, "id", "enabled", "version"}
	for _, f := range forwardFields[kind] {
		names = append(names, f.name)
	}
	unknown := 0
	for _, field := range sorted(r.fields) {
		if slices.Contains(names, field) || field == "description" || slices.Contains(notes, field) {
			continue
		}
		meant := ""
		if word := nearest.Of(field, names); word != "" {
			meant = "; did you mean " + word + "?"
		}
		if unknown++; unknown <= 3 {
			r.ignore(fmt.Sprintf("%.80q", field), "is no field of a "+strings.ToLower(kind)+", and is ignored"+meant)
		}
	}
}

// asFile is the service or route as it stands in a rule file.
func (r *reader) asFile(name string, fields []forwardField) map[string]any {
	file := map[string]any{"name": name}
	for _, f := range fields {
		text, ok := r.fields[f.name]
		if !ok {
			continue
		}
		if len(text) > MaxValue {
			r.say(f.name, fmt.Sprintf("has %d bytes; at most %d", len(text), MaxValue))
			continue
		}
		var value any = r.text(f.name)
		switch f.kind {
		case aWord:
			value = strings.ToLower(folded(text))
		case aNumber:
			value = r.number(f.name, 0)
		case aList:
			list := strings.Split(text, ",")
			for i := range list {
				list[i] = strings.TrimSpace(list[i])
			}
			value = list
		}
		in, field := file, f.path
		if outer, inner, nested := strings.Cut(f.path, "."); nested {
			if file[outer] == nil {
				file[outer] = make(map[string]any)
			}
			in, field = file[outer].(map[string]any), inner
		}
		in[field] = value
	}
	return file
}

// parseForward checks the service or route as a rule file. Whether a route's service exists is seen later.
func (r *reader) parseForward(f *forward, kind string, asFile map[string]any) {
	file := map[string]any{"rules": []any{}}
	if kind == serviceType {
		file["services"] = []any{asFile}
	} else {
		file["routes"] = []any{asFile}
		file["services"] = []any{map[string]any{"name": asFile["service"], "addresses": "http://127.0.0.1"}}
	}
	var err error
	if f.text, err = json.Marshal(file); err != nil || len(r.problems) > 0 {
		return
	}
	parsed, err := rules.Parse(ruleset.Quoted(r.key), f.text)
	var list *rules.Error
	switch {
	case errors.As(err, &list):
		for i := range list.Problems {
			message := list.Problems[i].Message
			message = strings.ReplaceAll(message, strings.ToLower(kind)+"s[0].", "")
			for _, of := range forwardFields[kind] {
				message = strings.ReplaceAll(message, of.path, of.name)
			}
			r.say("", message)
		}
	case err != nil:
		r.say("", err.Error())
	case kind == serviceType:
		f.service = &parsed.Services[0]
	default:
		f.route = &parsed.Routes[0]
	}
}

// forward adds a service, or keeps a route until all services are known.
func (g *collection) forward(e *entry, f *forward) {
	if f.service != nil {
		g.file.Services = append(g.file.Services, *f.service)
		return
	}
	if g.routes == nil {
		g.routes = make(map[string]*entry)
	}
	g.routes[e.key] = e
}

// takeRoutes adds the routes that compile with the services and with each other; the others are left out.
func (g *collection) takeRoutes() {
	keys := slices.Sorted(maps.Keys(g.routes))
	file := &rules.File{Name: "redis", Services: g.file.Services}
	for _, key := range keys {
		file.Routes = append(file.Routes, *g.routes[key].current().forward.route)
	}
	if _, err := rules.Compile(file); err == nil {
		g.file.Routes = file.Routes
		return
	}
	file.Routes = nil
	for _, key := range keys {
		file.Routes = append(file.Routes, *g.routes[key].current().forward.route)
		_, err := rules.Compile(file)
		if err == nil {
			continue
		}
		file.Routes = file.Routes[:len(file.Routes)-1]
		g.routes[key].inForce = false
		g.leftOut++
		message := err.Error()
		if list := (*rules.Error)(nil); errors.As(err, &list) {
			message = strings.TrimPrefix(list.Problems[0].Message, fmt.Sprintf("routes[%d].", len(file.Routes)))
		}
		g.wrong.Add(ruleset.Problem{Where: ruleset.Quoted(key), Message: message, State: "this route is not in force"})
	}
	g.file.Routes = file.Routes
}
