package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
)

// A Route is a checked RouteSpec. Do not change it.
type Route struct {
	Name    string
	Service *Service
	Host    []string // as in the file; none: any
	MaxBody int64    // bytes of a request's body; 0: no bound

	strip int    // segments that are not forwarded
	add   string // before the forwarded path; "": nothing
}

// A routing has the routes of a set. They are matched as rules are, by a separate tree.
type routing struct {
	routes []*Route
	tree   *Set // its rules are the routes, by their index; nil: none
}

// Routes are the routes of the file, in order. Do not change the slice.
func (s *Set) Routes() []*Route { return s.routing.routes }

// Route is the route of a request by its method, host and path: of the routes that match, the most specific one, by the
// order that groups of rules use; nil if no route matches.
func (s *Set) Route(r *Request) *Route {
	if s.routing.tree == nil {
		return nil
	}
	w := matcher{request: r, form: s.form, picks: true}
	w.hosts(s.routing.tree)
	if w.best == nil {
		return nil
	}
	return s.routing.routes[w.best.index]
}

// SetRoute sets the route and the service of a request that has neither, as a gateway with these routes does. Without a
// route that matches, the request does not change.
func (s *Set) SetRoute(r *Request) {
	if r.Route != "" || r.Service != "" {
		return
	}
	if chosen := s.Route(r); chosen != nil {
		r.Route, r.Service = chosen.Name, chosen.Service.Name
	}
}

// Rewrites reports whether Forwarded differs from the path.
func (r *Route) Rewrites() bool { return r.strip > 0 || r.add != "" }

// Forwarded is the path for the service of a request that the route matches, escaped as the request's is.
func (r *Route) Forwarded(path string) string {
	rest, more := strings.TrimPrefix(path, "/"), true
	for range r.strip {
		_, rest, more = cut(rest)
	}
	if !more && r.add != "" {
		return r.add
	}
	return r.add + "/" + rest
}

// A routed is a route while it is checked.
type routed struct {
	*RouteSpec
	hosts    []string
	segments []string // in the form of the tree; nil: any path
	methods  []string
	rank     uint64
}

// routes checks the routes of a file. The services were checked before.
func (b *builder) routes(given []RouteSpec) {
	if len(given) == 0 || !b.count(at(-1, "routes"), len(given), bounds.Routes) {
		return
	}
	b.set.routing.tree = &Set{exact: make(map[string]*paths), below: make(map[string]*paths), form: b.set.form}
	names := make(map[string]int)
	checked := make([]routed, len(given))
	for j := range given {
		p := at(-1, fmt.Sprintf("routes[%d]", j))
		b.unique(names, p, given[j].Name, j)
		checked[j] = b.route(p, &given[j], j)
	}
	if len(b.problems) == 0 {
		b.ambiguous(checked)
	}
}

func (b *builder) route(p place, spec *RouteSpec, j int) routed {
	in := func(field string) place { return at(-1, p.field+"."+field) }
	route := &Route{Name: spec.Name, Service: b.serviceOf(in("service"), spec.Service), Host: spec.Host}
	if route.MaxBody = b.size(in("max_body"), spec.MaxBody); route.MaxBody == 0 && route.Service != nil {
		route.MaxBody = route.Service.MaxBody
	}
	b.routePrefixes(in, spec, route)
	b.set.routing.routes = append(b.set.routing.routes, route)
	hosts := b.hosts(in("host"), spec.Host)
	b.path(in("path"), spec.Path)
	conditions := b.methods(nil, in("method"), spec.Method)
	path := b.set.inForm(spec.Path)
	rule := &Rule{index: j, rank: rank(hosts, path, conditions)}
	if len(b.problems) == 0 && b.room(p, hosts, path, conditions) {
		inserter := treeBuilder{set: b.set.routing.tree}
		inserter.insert(rule, hosts, path, conditions)
	}
	return routed{spec, hosts, b.set.formedSegments(path), spec.Method, rule.rank}
}

// serviceOf finds a service by its name.
func (b *builder) serviceOf(p place, name string) *Service {
	var names []string
	for _, s := range b.set.services {
		if s.Name == name && name != "" {
			return s
		}
		names = append(names, s.Name)
	}
	switch {
	case name == "" && b.has(p):
	case len(names) == 0:
		b.add(p, "%s is %.80q, and there are no services; add it to services, beside routes", p.field, name)
	default:
		b.add(p, "%s is %.80q, which is no service; %s", p.field, name, oneOf(name, names))
	}
	return nil
}

// routePrefixes checks the prefixes of a route.
func (b *builder) routePrefixes(in func(string) place, spec *RouteSpec, route *Route) {
	if strip := spec.StripPrefix; strip != "" {
		rest, begins := strings.CutPrefix(spec.Path, strip)
		whole := strip != "/" && strip[0] == '/' && (rest == "" || rest[0] == '/')
		if !begins || !whole || strings.HasSuffix(strip, "/") || strings.HasSuffix(strip, "*") {
			b.add(in("strip_prefix"), "strip_prefix is %.200q and path %.200q; allowed: the first segments of path, "+
				"such as /api for /api/**", strip, spec.Path)
			return
		}
		route.strip = strings.Count(strip, "/")
	}
	if add := spec.AddPrefix; add != "" {
		form, err := b.set.form.Path(add)
		if err != nil || form != add || strings.HasSuffix(add, "/") || strings.ContainsAny(add, ";*{}?#") {
			b.add(in("add_prefix"), "add_prefix is %.200q; allowed: a path without a slash at its end, in the form "+
				"of forwarded paths and without a pattern, such as /v2", add)
			return
		}
		route.add = add
	}
}

// formedSegments are the segments of a pattern as the tree has them; every wildcard is *.
func (s *Set) formedSegments(pattern string) (list []string) {
	for segment := range segments(pattern) {
		switch {
		case strings.HasPrefix(segment, "{"):
			segment = "*"
		case segment != "*" && segment != "**":
			text := appendUnescaped(nil, segment)
			if s.form.IgnoreCase {
				text = appendFolded(nil, string(text))
			}
			segment = "=" + string(text)
		}
		list = append(list, segment)
	}
	return list
}

// ambiguous reports two routes that match the same request while neither is more specific.
func (b *builder) ambiguous(list []routed) {
	same := make(map[uint64][]int)
	for j := range list {
		for _, i := range same[list[j].rank] {
			if !list[i].overlaps(&list[j]) {
				continue
			}
			b.add(at(-1, fmt.Sprintf("routes[%d]", j)), "route %q matches requests that routes[%d] (%q) matches too, "+
				"and neither is more specific; make their hosts, paths or methods differ", list[j].Name, i,
				list[i].Name)
			break
		}
		same[list[j].rank] = append(same[list[j].rank], j)
	}
}

// overlaps reports whether a request can meet both.
func (r *routed) overlaps(other *routed) bool {
	return pathsOverlap(r.segments, other.segments) && anyPair(r.hosts, other.hosts, hostsOverlap) &&
		anyPair(r.methods, other.methods, methodsOverlap)
}

// anyPair reports whether a value of a and one of b overlap; an empty list stands for all values.
func anyPair(a, b []string, overlap func(x, y string) bool) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return overlap(x, y) || overlap(y, x) })
	})
}

func hostsOverlap(x, y string) bool {
	suffix, wild := strings.CutPrefix(y, "*")
	return x == y || wild && strings.HasSuffix(x, suffix)
}

func methodsOverlap(x, y string) bool { return x == y || x == methodGet && y == methodHead }

// pathsOverlap reports whether a path can meet two patterns. No segments stand for any path.
func pathsOverlap(a, b []string) bool {
	for {
		switch {
		case len(a) == 0 && len(b) == 0:
			return true
		case len(a) > 0 && a[0] == "**" || len(b) > 0 && b[0] == "**":
			return true
		case len(a) == 0 || len(b) == 0:
			return false
		case !segmentsOverlap(a[0], b[0]) && !segmentsOverlap(b[0], a[0]):
			return false
		}
		a, b = a[1:], b[1:]
	}
}

// segmentsOverlap reports whether b can be a segment that a stands for. A wildcard does not stand for an empty segment.
func segmentsOverlap(a, b string) bool { return a == b || a == "*" && b != "=" }
