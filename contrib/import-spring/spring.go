package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
)

// spring reads application.yml of Spring Cloud Gateway: the filter RequestRateLimiter of its routes. Each route counts
// by itself.
func spring(j *ruleimport.Job) {
	found := false
	for _, t := range j.Files {
		for _, d := range j.Documents(t) {
			s := &springConf{Document: d}
			if s.ofProfile() {
				continue
			}
			s.fill(d.Root)
			for _, path := range []string{"spring.cloud.gateway", "spring.cloud.gateway.server.webflux"} {
				found = s.gateway(path) || found
			}
		}
	}
	if !found && !j.Failed() {
		j.Wrong(j.Files[0].Name, 1, "spring.cloud.gateway.routes is missing; it is a list of routes with filters")
	}
}

// A springConf is a document that is read.
type springConf struct {
	ruleimport.Document
	denyEmpty bool // requests without a key are refused
}

// ofProfile lists a document of a profile, whose lists replace those of the documents before it.
func (s *springConf) ofProfile() bool {
	for _, path := range []string{"spring.config.activate.on-profile", "spring.profiles"} {
		if n := s.lookup(s.Root, path); n != nil && n.Kind != yaml.MappingNode {
			s.Lacks(n, "import the document alone, in a file of its own: it replaces lists of the others",
				"the document of the profile %.80s", n.Value)
			return true
		}
	}
	return false
}

// placeholder is ${NAME} or ${NAME:default}.
var placeholder = regexp.MustCompile(`\$\{([^{}:]*)(?::([^{}]*))?\}`)

// fill writes the defaults of placeholders, whose values the environment may set, and lists them.
func (s *springConf) fill(n *yaml.Node) {
	for _, child := range n.Content {
		s.fill(child)
	}
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${") {
		return
	}
	without := false
	text := n.Value
	filled := placeholder.ReplaceAllStringFunc(text, func(one string) string {
		parts := placeholder.FindStringSubmatch(one)
		without = without || !strings.Contains(one, ":")
		return parts[2]
	})
	if without || strings.Contains(filled, "${") {
		return // what needs it says so
	}
	n.Value = filled
	s.Lacks(n, "see whether the environment sets it", "%.80s is taken for %.80q", text, filled)
}

// lookup finds a place by a path, whose words may stand together in one key.
func (s *springConf) lookup(n *yaml.Node, path string) *yaml.Node {
	if path == "" {
		return n
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		rest, begins := strings.CutPrefix(path+".", n.Content[i].Value+".")
		if !begins || n.Content[i].Value == "" {
			continue
		}
		if found := s.lookup(s.Is(n.Content[i+1]), strings.TrimSuffix(rest, ".")); found != nil {
			return found
		}
	}
	return nil
}

// A springPart is a predicate or a filter: Name=a,b, or a name with args.
type springPart struct {
	at   *yaml.Node
	name string
	args []string          // of the short form
	long map[string]string // of the long form
}

func (s *springConf) parts(n *yaml.Node, what string) (list []springPart) {
	for _, item := range s.Items(n, what) {
		p := springPart{at: item}
		if item.Kind == yaml.ScalarNode {
			name, args, _ := strings.Cut(item.Value, "=")
			p.name = strings.TrimSpace(name)
			for arg := range strings.SplitSeq(args, ",") {
				p.args = append(p.args, strings.TrimSpace(arg))
			}
			list = append(list, p)
			continue
		}
		s.Read(item, what, ruleimport.Fields{
			"name": func(n *yaml.Node) { p.name = s.Text(n, "name") },
			"args": func(n *yaml.Node) {
				p.long = make(map[string]string)
				s.flatten(n, "", p.long)
			},
		}, nil)
		list = append(list, p)
	}
	return list
}

// flatten reads args, whose names may be nested or joined by dots.
func (s *springConf) flatten(n *yaml.Node, prefix string, into map[string]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			s.flatten(s.Is(n.Content[i+1]), prefix+"."+n.Content[i].Value, into)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			s.flatten(s.Is(item), fmt.Sprintf("%s.%d", prefix, i), into)
		}
	default:
		into[strings.TrimPrefix(prefix, ".")] = n.Value
	}
}

// gateway reads the routes below a path, and reports whether there are any.
func (s *springConf) gateway(path string) bool {
	s.denyEmpty = true
	if deny := s.lookup(s.Root, path+".filter.request-rate-limiter.deny-empty-key"); deny != nil {
		s.denyEmpty = s.Flag(deny, "deny-empty-key")
	}
	routes, defaults := s.lookup(s.Root, path+".routes"), []springPart(nil)
	if filters := s.lookup(s.Root, path+".default-filters"); filters != nil {
		defaults = s.parts(filters, "default-filters")
	}
	if routes == nil {
		return false
	}
	for i, route := range s.Items(routes, "routes") {
		s.route(route, i, defaults)
	}
	return true
}

// A springRoute is a route as it is read.
type springRoute struct {
	spec  rules.RouteSpec
	uri   string
	paths []string
}

func (s *springConf) route(n *yaml.Node, i int, defaults []springPart) {
	r := springRoute{spec: rules.RouteSpec{Name: fmt.Sprintf("route-%d", i+1)}}
	var predicates, filters []springPart
	s.Read(n, "a route", ruleimport.Fields{
		"id":         func(n *yaml.Node) { r.spec.Name = s.Text(n, "id") },
		"uri":        func(n *yaml.Node) { r.uri = s.Text(n, "uri") },
		"predicates": func(n *yaml.Node) { predicates = s.parts(n, "predicates") },
		"filters":    func(n *yaml.Node) { filters = s.parts(n, "filters") },
	}.With("order", "metadata", "enabled"), nil)
	for _, p := range predicates {
		s.predicate(&r, p)
	}
	for _, f := range filters {
		s.rewriting(&r, f)
	}
	match := s.forward(n, &r)
	for _, f := range append(slices.Clone(defaults), filters...) {
		if f.name == "RequestRateLimiter" {
			s.limit(f, &r, match)
		}
	}
}

// predicate reads Path, Host and Method. A route with another one is met by more requests than there.
func (s *springConf) predicate(r *springRoute, p springPart) {
	args := p.args
	for _, name := range slices.Sorted(maps.Keys(p.long)) {
		if name != "matchTrailingSlash" {
			args = append(args, p.long[name])
		}
	}
	switch p.name {
	case "Path":
		for _, path := range args {
			if path != "true" && path != "false" { // whether a final slash matters
				r.paths = append(r.paths, lastSegments.ReplaceAllString(path, "/**"))
			}
		}
	case "Host":
		for _, host := range args {
			r.spec.Host = append(r.spec.Host, strings.Replace(host, "**.", "*.", 1))
		}
	case "Method":
		r.spec.Method = append(r.spec.Method, args...)
	default:
		s.Lacks(p.at, "write the condition into match of the rule", "predicate %s", p.name)
	}
}

// lastSegments is {*name} at the end of a path.
var lastSegments = regexp.MustCompile(`/\{\*[^}]*\}$`)

// rewriting reads the filters that change the path.
func (s *springConf) rewriting(r *springRoute, f springPart) {
	value := strings.Join(f.args, ",")
	for _, given := range f.long {
		value = given
	}
	switch f.name {
	case "PrefixPath":
		r.spec.AddPrefix = value
	case "StripPrefix":
		segments := []string{""}
		if len(r.paths) > 0 {
			segments = strings.Split(r.paths[0], "/")
		}
		count := s.Number(&yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: f.at.Line}, "StripPrefix", 0, 64)
		r.spec.StripPrefix = strings.Join(segments[:min(len(segments), 1+int(count))], "/")
	case "RewritePath", "SetPath", "RewriteLocationResponseHeader":
		s.Lacks(f.at, "write the route by hand", "filter %s of route %.80s", f.name, r.spec.Name)
	}
}

// forward writes the routes to a service. The match is by their names, or if there are none by their conditions.
func (s *springConf) forward(n *yaml.Node, r *springRoute) (m rules.Match) {
	if len(r.paths) == 0 {
		r.paths = []string{""}
	}
	if strings.HasPrefix(r.uri, "http") {
		service := rules.ServiceSpec{Name: r.spec.Name, Addresses: []string{strings.TrimSuffix(r.uri, "/")}}
		s.AddService(s.File, n.Line, service)
	} else {
		s.Lacks(n, "write its addresses into services", "uri %.80q of route %.80s", r.uri, r.spec.Name)
	}
	for i, path := range r.paths {
		one := r.spec
		one.Path, one.Service = path, r.spec.Name
		if i > 0 {
			one.Name = fmt.Sprintf("%s-%d", r.spec.Name, i+1)
		}
		if s.AddRoute(s.File, n.Line, one) {
			m.Route = append(m.Route, one.Name)
		}
	}
	if len(m.Route) > 0 {
		return m
	}
	m.Host, m.Method = r.spec.Host, r.spec.Method
	if len(r.paths) == 1 {
		m.Path = r.paths[0]
		return m
	}
	for _, path := range r.paths {
		m.Any = append(m.Any, rules.Match{Path: path})
	}
	return m
}

// limit writes the rule of a RequestRateLimiter.
func (s *springConf) limit(f springPart, r *springRoute, match rules.Match) {
	spec := rules.Spec{Name: r.spec.Name, Description: s.Origin(f.at), Match: match, OnStoreError: rules.AllowAll}
	rate, burst, tokens, resolver, deny := int64(0), int64(1), int64(1), "", s.denyEmpty
	open := "" // a number that the environment has
	number := func(name, text string) int64 {
		if strings.Contains(text, "${") {
			open = fmt.Sprintf("%s %.80s", name, text)
			return 1
		}
		return s.Number(&yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: f.at.Line, Column: f.at.Column}, name, 1,
			weir.MaxUnits)
	}
	if f.long == nil {
		s.Lacks(f.at, "write it with args: Spring does not read it so", "the short form of RequestRateLimiter")
		f.long = make(map[string]string)
		for i, name := range []string{"replenishRate", "burstCapacity", "key-resolver"}[:min(len(f.args), 3)] {
			f.long[name] = f.args[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.long)) {
		value := f.long[name]
		switch strings.TrimPrefix(name, "redis-rate-limiter.") {
		case "replenishRate":
			rate = number(name, value)
		case "burstCapacity":
			burst = number(name, value)
		case "requestedTokens":
			tokens = number(name, value)
		case "key-resolver", "keyResolver":
			resolver = value
		case "deny-empty-key", "denyEmptyKey":
			deny = value != "false"
		case "rate-limiter":
		default:
			s.Lacks(f.at, "see whether limits depend on it", "RequestRateLimiter has %.80s: %.80s", name, value)
		}
	}
	switch {
	case open != "":
		s.Lacks(f.at, "write the number; nothing limits this route now", "%s of route %.80s", open, r.spec.Name)
		return
	case f.long["rate-limiter"] != "": // which may not read the numbers
		s.Lacks(f.at, "write the limit of the bean as a rule; nothing limits this route now",
			"the rate limiter %.80s of route %.80s", f.long["rate-limiter"], r.spec.Name)
		return
	case rate == 0:
		s.Wrong(f.at, "replenishRate is missing; allowed: a whole number from 1")
		return
	}
	spec.Limit = []string{fmt.Sprintf("%d/1s burst %d", rate, burst)}
	if tokens > 1 {
		spec.Cost.Units = tokens
	}
	spec.OnMissing = rules.Skip
	if deny {
		spec.OnMissing = rules.Deny
	}
	spec.Key = []string{s.resolved(f.at, resolver, &spec)}
	s.Add(s.File, f.at.Line, spec)
}

// resolvers are words in names of beans, and the component that such a bean most probably is.
var resolvers = []struct{ word, component string }{{"user", "user"}, {"principal", "user"}, {"path", "endpoint"},
	{"uri", "endpoint"}, {"url", "endpoint"}, {"addr", "client.ip v6/128"}, {"host", "client.ip v6/128"},
	{"ip", "client.ip v6/128"}}

// resolved is the component of a key resolver, whose code is not seen. A rule with an unknown one is disabled.
func (s *springConf) resolved(n *yaml.Node, resolver string, spec *rules.Spec) string {
	if resolver == "" {
		return "user" // PrincipalNameKeyResolver
	}
	for _, known := range resolvers {
		if strings.Contains(strings.ToLower(resolver), known.word) {
			s.Lacks(n, "compare it with the code of the bean", "key-resolver %.80s is taken for %s", resolver,
				known.component)
			return known.component
		}
	}
	spec.Enabled = new(bool)
	s.Lacks(n, "write the key of this rule, and remove enabled: false", "key-resolver %.80s", resolver)
	return "client.ip"
}
