package rules

import (
	"iter"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
)

// A Request is a request as a front end describes it. Empty fields are missing. Front ends may reuse it: this package
// keeps no reference to it.
//
// Host and Path must be in the form that is acted upon afterwards: the host without port and final dot, the
// path cleaned as it is forwarded, with its escapes (see pathform). Matching one form and serving another
// makes rules evadable.
type Request struct {
	Method  string // in any case, because some servers accept post for POST
	Host    string // any case
	Path    string // begins with a slash, or is empty; escaped, and decoded here
	Route   string // the pattern that a router chose
	User    string // the authenticated user
	Service string
	Client  netip.Addr
	Country string // of the client: a code of ISO 3166 such as "CN"; gates look it up if it is empty
	ASN     uint32 // of the client: the number of its autonomous system; likewise

	// The entries of the descriptor, from a front end that keeps their order. Without values they are those that
	// Attributes has by the keys.
	DescriptorKeys, DescriptorValues []string

	Attributes Attributes // nil: none

	doubted string // a path of JSON at which a condition met a doubtful value
}

// Attributes returns named values of a request. Each method returns "" for a missing value, and the first of
// several.
//
// Attributes that can detect ambiguous values also have the method Doubtful(kind, name string) bool. It reports
// whether servers may read different values by this name, because the request has several, or one in a form that
// some read otherwise. kind is header, query, cookie or body.
//
// Attributes that know the fields of a body have the method Body(name string) string, and those that know JSON bodies
// JSON() *JSON. Attributes that know a message of the Model Context Protocol have the method MCP(part string) string;
// part is method or tool.
type Attributes interface {
	Header(name string) string // name is in canonical form: X-User
	Query(name string) string
	Cookie(name string) string
	Descriptor(name string) string
}

// Doubt is a *weir.InputError if a value of the rule's key, or one in the body that tells its class, is ambiguous: a
// client that could choose the value that is counted would have any number of keys.
func (r *Rule) Doubt(request *Request) error {
	if len(r.reads) == 0 {
		return nil
	}
	several, ok := request.Attributes.(interface{ Doubtful(kind, name string) bool })
	for _, a := range r.reads {
		if a.kind == sources[sourceJSON].doubtful {
			if err := request.doubtJSON(a.name); err != nil {
				return err
			}
		} else if ok && several.Doubtful(a.kind, a.name) {
			return &weir.InputError{Field: a.kind + " " + a.name, Given: "several values, or one that servers read " +
				"differently", Allowed: "one value"}
		}
	}
	return nil
}

// A reading is an attribute of requests that is part of a rule's key, or tells a class.
type reading struct{ kind, name string }

// everyComponent are the components of a rule's key, its candidate's, its ids, its lists, its classes and its learned
// cost.
func (r *Rule) everyComponent() []component {
	components := slices.Clone(r.components)
	if c := r.candidate; c != nil && c.keyed != nil {
		components = append(components, c.keyed.components...)
	}
	if r.ids != nil {
		components = append(components, r.ids.by)
	}
	if r.reserve != nil && r.reserve.by != nil {
		components = append(components, *r.reserve.by)
	}
	if r.fair != nil {
		components = append(components, r.fair.by...)
		if r.fair.weigh != nil {
			components = append(components, *r.fair.weigh)
		}
	}
	if l := r.cost.learn; l != nil && l.by != nil {
		components = append(components, *l.by)
	}
	for _, entries := range [][]listEntry{r.lists.allow, r.lists.deny} {
		for i := range entries {
			components = append(components, entries[i].component)
		}
	}
	return components
}

// reads are the attributes in a rule's key that a request may have several times, and the paths of JSON that tell its
// classes: a client could choose its class, too.
func (b *builder) reads(s *Spec, rule *Rule) (list []reading) {
	take := func(kind source, name string) {
		if a := (reading{sources[kind].doubtful, name}); kind.several() && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, c := range rule.everyComponent() {
		if !c.first {
			take(c.source, c.name)
		}
	}
	rule.cost.from.all(func(q *quantity) {
		if q.kind == attributed {
			take(q.source, q.name)
		}
	})
	for _, path := range jsonPaths(s.Reserve.matches()) {
		take(sourceJSON, path)
	}
	return list
}

func (r *Request) attribute(kind source, name string) string {
	switch kind {
	case sourceMethod:
		return folded(r.Method)
	case sourceService:
		return r.Service
	case sourceUser:
		return r.User
	case sourceRoute:
		return r.Route
	case sourceCountry:
		return r.Country
	}
	if r.Attributes == nil {
		return ""
	}
	switch kind {
	case sourceHeader:
		return r.Attributes.Header(name)
	case sourceQuery:
		return r.Attributes.Query(name)
	case sourceCookie:
		return r.Attributes.Cookie(name)
	case sourceBody:
		if body, ok := r.Attributes.(interface{ Body(name string) string }); ok {
			return body.Body(name)
		}
	case sourceMCPMethod, sourceMCPTool:
		if message, ok := r.Attributes.(interface{ MCP(part string) string }); ok {
			return message.MCP(strings.TrimPrefix(sources[kind].word, "mcp."))
		}
	case sourceJSON:
		return r.jsonText(name)
	case sourceDescriptor:
		return r.Attributes.Descriptor(name)
	}
	return ""
}

// appendASN leaves dst unchanged if the number is not known.
func (r *Request) appendASN(dst []byte) []byte {
	if r.ASN == 0 {
		return dst
	}
	return strconv.AppendUint(dst, uint64(r.ASN), 10)
}

// Unprovided yields the components that a front end may not know, each after the need that the front end does not meet:
// "user", "route", "descriptor" or "body". Except for values of bodies, which may also be in its match and its cost,
// they are components of the key of a rule without on_missing: all requests count together where the component is not
// known. A match that asks for such a value excludes these requests.
func (r *Rule) Unprovided() iter.Seq2[string, string] {
	return func(yield func(need, component string) bool) {
		for _, c := range r.unprovided {
			if !yield(string(sources[c.source].needs), c.word()) {
				return
			}
		}
	}
}

// unprovided is what Rule.Unprovided yields.
func unprovided(s *Spec, r *Rule) (list []component) {
	asked := map[need]bool{needsUser: len(s.Match.User) > 0, needsRoute: len(s.Match.Route) > 0,
		needsDescriptor: s.Match.describes()}
	for _, path := range append(jsonPaths(s.matches()), r.cost.from.paths()...) {
		list = append(list, component{source: sourceJSON, name: path, label: "json." + path + "="})
	}
	for i, c := range r.everyComponent() {
		switch needs := sources[c.source].needs; needs {
		case needsBody:
			list = append(list, c)
		case needsUser, needsRoute, needsDescriptor:
			if i < len(r.components) && s.OnMissing == "" && !asked[needs] {
				list = append(list, c)
			}
		}
	}
	if len(list) == 0 && s.Match.asksMCP() {
		list = append(list, component{source: sourceMCPMethod, label: sourceMCPMethod.String()})
	}
	return list
}

// folded is a method in capitals. Other methods, which normal clients do not send, cost an allocation.
func folded(method string) string { return strings.ToUpper(method) }

func canonical(header string) string { return textproto.CanonicalMIMEHeaderKey(header) }

// validAttribute reports whether a name is valid for a header, which excludes the separators of keys.
func validAttribute(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$&'*+-._`|~", rune(c)) {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 128
}

// segments yields the segments of a pattern that begins with a slash, and whether each is the last.
func segments(path string) iter.Seq2[string, bool] {
	return func(yield func(segment string, last bool) bool) {
		rest, more := strings.TrimPrefix(path, "/"), path != ""
		for more {
			var segment string
			if segment, rest, more = strings.Cut(rest, "/"); !yield(segment, !more) {
				return
			}
		}
	}
}

// cut splits off the first segment after a slash, without its parameters; more is false after the last one.
// Servlet containers drop parameters before they look for a handler, and empty segments after that: they serve
// /;x/login;y as /login.
func cut(path string) (first, rest string, more bool) {
	for {
		first, rest, more = strings.Cut(path, "/")
		semicolon := strings.IndexByte(first, ';')
		if semicolon < 0 {
			return first, rest, more
		}
		first = first[:semicolon]
		if first != "" || !more {
			return first, rest, more
		}
		path = rest
	}
}

// MatchedPath is the path without its parameters, as patterns match it.
func (r *Request) MatchedPath() string {
	path := r.Path
	rest, more := strings.CutPrefix(path, "/")
	if !more || strings.IndexByte(path, ';') < 0 {
		return path
	}
	var seen strings.Builder
	for more {
		var segment string
		segment, rest, more = cut(rest)
		seen.WriteString("/" + segment)
	}
	return seen.String()
}

// segment is the nth segment of a path, or "".
func segment(path string, n int) string {
	rest, more := strings.CutPrefix(path, "/")
	first := ""
	for range n + 1 {
		if !more {
			return ""
		}
		first, rest, more = cut(rest)
	}
	return first
}

// appendUnescaped appends a segment of a path without its escapes. Escapes may be optional: most servers treat
// /users:login and /users%3Alogin as one path, so rules do. A % that begins no escape stays.
func appendUnescaped(dst []byte, segment string) []byte {
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' && i+2 < len(segment) {
			high, ok1 := unhex(segment[i+1])
			low, ok2 := unhex(segment[i+2])
			if ok1 && ok2 {
				c = high<<4 | low
				i += 2
			}
		}
		dst = append(dst, c)
	}
	return dst
}

func unhex(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}
