package review

import (
	"cmp"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/weirproject/weir/rules"
)

// An Example is a request that is made up for a match.
type Example struct {
	rules.Request
	Of                                     string // of a probe: what it is a request of, such as "route pay"
	Headers, Queries, Cookies, Descriptors map[string]string
	Bodies                                 map[string]string // fields of the body
}

// Header implements rules.Attributes.
func (x *Example) Header(name string) string { return x.Headers[name] }

// Query implements rules.Attributes.
func (x *Example) Query(name string) string { return x.Queries[name] }

// Cookie implements rules.Attributes.
func (x *Example) Cookie(name string) string { return x.Cookies[name] }

// Body implements rules.Attributes.
func (x *Example) Body(name string) string { return x.Bodies[name] }

// Descriptor implements rules.Attributes.
func (x *Example) Descriptor(name string) string { return x.Descriptors[name] }

// Of an example.
const (
	anyText   = "example"
	anyClient = "192.0.2.1" // of the networks for documentation
)

// ExampleOf is a request that a rule of the file's set matches, with values for its key, and if it is of a route of the
// file, with those of the route; nil if none was found. No better rule of its group takes the request.
func ExampleOf(file *rules.File, set *rules.Set, rule *rules.Rule) *Example {
	m := file.Rules[rule.Index()].Match
	right := func(x *Example) bool { return slices.Contains(set.Match(&x.Request, nil), rule) }
	i := slices.IndexFunc(file.Routes, func(r rules.RouteSpec) bool { return slices.Contains(m.Route, r.Name) })
	if i >= 0 {
		if x := search(ofRoute(m, &file.Routes[i]), rule.Components(), right); x != nil {
			return x
		}
	}
	return search(&m, rule.Components(), right)
}

// ofRoute is a match with the conditions of a route where it has none of its own.
func ofRoute(m rules.Match, r *rules.RouteSpec) *rules.Match {
	m.Host, m.Method = either(m.Host, r.Host...), either(m.Method, r.Method...)
	m.Path, m.Route, m.Service = cmp.Or(m.Path, r.Path), []string{r.Name}, either(m.Service, r.Service)
	return &m
}

// search tries examples of a match until one is right; nil if none is.
func search(m *rules.Match, key []string, right func(*Example) bool) *Example {
	for _, one := range m.Alternatives() {
		for _, method := range either(one.Method, "GET", "POST", "PUT", "DELETE") {
			for _, path := range pathsOf(&one) {
				x := exampleOf(&one, key, method, path)
				if right(x) {
					return x
				}
			}
		}
	}
	return nil
}

func either(values []string, others ...string) []string {
	if len(values) > 0 {
		return values
	}
	return others
}

// exampleOf is a request that meets the conditions, except perhaps not and combinations of pattern and expression.
func exampleOf(m *rules.Match, key []string, method, path string) *Example {
	x := &Example{Headers: make(map[string]string), Queries: make(map[string]string),
		Cookies: make(map[string]string), Descriptors: make(map[string]string), Bodies: make(map[string]string)}
	x.Attributes = x
	x.Method, x.Path, x.Client = method, path, clientOf(m.Client)
	x.Country = strings.Replace(first(m.Country), anyText, "DE", 1)
	asn, _ := strconv.ParseUint(strings.Replace(first(m.ASN), anyText, "64496", 1), 10, 32)
	x.ASN = uint32(asn)
	x.Host, x.User, x.Service, x.Route = first(m.Host), first(m.User), first(m.Service), first(m.Route)
	x.Host = strings.Replace(x.Host, "*", "www", 1)
	for _, component := range key {
		x.add(component)
	}
	for _, name := range m.DescriptorKeys {
		x.Descriptors[name] = anyText
		x.DescriptorKeys = append(x.DescriptorKeys, name)
	}
	for _, table := range []struct {
		into               map[string]string
		values, expression map[string][]string
		name               func(string) string
	}{
		{x.Headers, m.Header, m.Regex.Header, textproto.CanonicalMIMEHeaderKey},
		{x.Queries, m.Query, nil, strings.Clone},
		{x.Descriptors, m.Descriptor, m.Regex.Descriptor, strings.Clone},
	} {
		for name, expressions := range table.expression {
			table.into[table.name(name)] = textOf(expressions[0])
		}
		for name, values := range table.values {
			table.into[table.name(name)] = first(values)
		}
	}
	return x
}

// add gives the request a value for a component of a key.
func (x *Example) add(component string) {
	source, _, _ := strings.Cut(component, " ")
	kind, name, _ := strings.Cut(source, ".")
	switch kind {
	case "header":
		x.Headers[name] = anyText
	case "query":
		x.Queries[name] = anyText
	case "cookie":
		x.Cookies[name] = anyText
	case "body":
		x.Bodies[name] = anyText
	case "descriptor":
		x.Descriptors[name] = anyText
	case "client":
		if name == "country" {
			fillText(&x.Country, "DE")
		} else if name == "asn" {
			x.ASN = max(x.ASN, 64496)
		}
	case "user":
		fillText(&x.User, anyText)
	case "service":
		fillText(&x.Service, anyText)
	case "route":
		fillText(&x.Route, anyText)
	case "host":
		fillText(&x.Host, "www.example.com")
	}
}

func fillText(to *string, text string) {
	if *to == "" {
		*to = text
	}
}

// first is a value of a condition; "" if there is no condition.
func first(values []string) string {
	if len(values) > 0 && values[0] == "*" {
		return anyText
	}
	return strings.Join(values[:min(len(values), 1)], "")
}

// clientOf is an address that meets a condition.
func clientOf(clients []string) netip.Addr {
	text, _, _ := strings.Cut(first(clients), "/")
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.MustParseAddr(anyClient)
	}
	return address
}

// pathsOf are paths that meet a pattern, and texts of the expressions.
func pathsOf(m *rules.Match) (list []string) {
	for _, expression := range m.Regex.Path {
		if text := textOf(expression); strings.HasPrefix(text, "/") {
			list = append(list, (&url.URL{Path: text}).EscapedPath())
		}
	}
	above, deep := strings.CutSuffix(m.Path, "/**")
	if m.Path == "" {
		return append(list, "/", "/"+anyText)
	}
	var b strings.Builder
	for segment := range strings.SplitSeq(strings.TrimPrefix(above, "/"), "/") {
		if above == "" {
			break
		}
		if segment == "*" || strings.HasPrefix(segment, "{") {
			segment = "1"
		}
		b.WriteString("/" + segment)
	}
	list = append(list, b.String())
	if deep {
		list = append(list, b.String()+"/"+anyText)
	}
	if list[0] == "" { // the pattern /**
		list[0] = "/"
	}
	return list
}

// textOf is a short text that an expression matches, or nearly so: the caller tries it.
func textOf(expression string) string {
	tree, err := syntax.Parse(expression, syntax.Perl|syntax.DotNL)
	if err != nil {
		return ""
	}
	var b strings.Builder
	write(&b, tree)
	return b.String()
}

func write(b *strings.Builder, re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		b.WriteRune(member(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpCapture, syntax.OpPlus:
		write(b, re.Sub[0])
	case syntax.OpRepeat:
		for range re.Min {
			write(b, re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			write(b, sub)
		}
	case syntax.OpAlternate:
		write(b, re.Sub[0])
	}
}

// member is a rune of a class, given as pairs of first and last: a letter or digit if it has one.
func member(pairs []rune) rune {
	for _, r := range "a0A-" {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] <= r && r <= pairs[i+1] {
				return r
			}
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if unicode.IsPrint(pairs[i]) {
			return pairs[i]
		}
	}
	if len(pairs) == 0 {
		return 'x'
	}
	return pairs[0]
}

// Probes are requests for what a file names besides its rules, to find those that no rule matches: of each route, of
// each service that a route or a rule names, and one that nothing names.
func Probes(file *rules.File) (list []*Example) {
	probe := func(of string, m *rules.Match) {
		x := exampleOf(m, nil, either(m.Method, "GET")[0], pathsOf(m)[0])
		x.Of = of
		list = append(list, x)
	}
	known := make(map[string]bool)
	for i := range file.Routes {
		r := &file.Routes[i]
		known["service "+r.Service] = true
		probe("route "+r.Name, ofRoute(rules.Match{}, r))
	}
	for i := range file.Rules {
		m := &file.Rules[i].Match
		for _, name := range m.Service {
			if of := "service " + name; !known[of] && name != "*" {
				known[of] = true
				probe(of, &rules.Match{Service: []string{name}})
			}
		}
		for _, name := range m.Host {
			if of := "host " + name; !known[of] {
				known[of] = true
				probe(of, &rules.Match{Host: []string{name}})
			}
		}
	}
	probe("any other request", &rules.Match{})
	return list
}
