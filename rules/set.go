package rules

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/endpoints"
	"github.com/weirproject/weir/internal/jsonvalues"
	"github.com/weirproject/weir/internal/netaddr"
	"github.com/weirproject/weir/pathform"
)

// A Set is a compiled file of rules. It is safe for concurrent use, and immutable except for its exceptions
// (Except).
type Set struct {
	rules   []*Rule
	keyHash keyHash
	lists   lists

	overlay atomic.Pointer[overlay] // the exceptions; nil: none

	services []*Service
	routing  routing

	served   map[string]bool   // services that rules match; "": any
	replaces bool              // some rules replace others
	grouped  bool              // some rules are in groups
	filtered bool              // some rules have filters
	asking   map[string]int    // the first rule with a condition on a path of JSON
	paths    *jsonvalues.Paths // of JSON in requests that rules name
	answers  *jsonvalues.Paths // likewise in responses
	messages *Set              // of the places of rules about messages; nil: no rule is
	places   *endpoints.Table  // of the component endpoint in keys; nil: no key has it
	geo      geo               // what enabled rules and the lists need
	claims   int               // upper bound for any request
	work     int               // likewise of regular expressions, in steps times bytes

	server  *Server
	kind    string
	proxies []netip.Prefix
	form    pathform.Form

	// A tree of hosts, paths and conditions. Hosts are exact names, or what follows "*.".
	exact, below map[string]*paths
	anyHost      paths
}

func newSet() *Set {
	return &Set{exact: make(map[string]*paths), below: make(map[string]*paths), served: make(map[string]bool),
		asking: make(map[string]int)}
}

// Server has the settings of the file. Do not change them.
func (s *Set) Server() *Server { return s.server }

// TrustedProxies are the networks of the file's trusted_proxies. Do not change the slice.
func (s *Set) TrustedProxies() []netip.Prefix { return s.proxies }

// ServiceKind is how the service reads requests, such as "php"; "" if the file does not state it.
func (s *Set) ServiceKind() string { return s.kind }

// PathForm is the form that paths of requests must have before they are matched; the patterns of the rules
// have it.
func (s *Set) PathForm() pathform.Form { return s.form }

// ExpectsMessages reports whether a rule is about messages of the Model Context Protocol that are posted to the host,
// path, service and route of the request. Such a request must be one: a client must not pass its rules by a body that
// they cannot read.
func (s *Set) ExpectsMessages(r *Request) bool { return s.messages != nil && s.messages.some(r) }

// Endpoints has the paths that keys with the component endpoint tell apart; nil if no key has it. A gate keeps it.
func (s *Set) Endpoints() *endpoints.Table { return s.places }

func (s *Set) tellApart() *endpoints.Table {
	if s.places == nil {
		s.places = new(endpoints.Table)
	}
	return s.places
}

// Rules are all rules, in the order of the file. Do not change the slice.
func (s *Set) Rules() []*Rule { return s.rules }

// paths holds the rules of some hosts: rules without a path, and rules with one.
type paths struct {
	all  branch
	root step
}

// A step is a node of the tree of segments.
type step struct {
	named map[string]*step
	one   *step   // any one segment that is not empty
	here  *branch // the path ends here
	deep  *branch // it ends here, or goes on: **
}

// A branch holds the rules of requests that meet the same first conditions. The order of conditions is the
// same everywhere, so that rules share branches.
type branch struct {
	rules    []*Rule // those without further conditions
	switches []*switchNode
}

// A switchNode selects branches by the value of one attribute.
type switchNode struct {
	kind   source
	name   string
	values map[string]*branch
	any    *branch // any value that is not empty

	clients  map[netip.Prefix]*branch // while the tree is built; then in networks
	networks networks[*branch]

	descriptors descriptorNode // the root of sourceDescriptorKeys
}

// A matcher finds the rules of one request. It counts the nodes that it visits, so that a test can check that
// their number does not grow with the set.
type matcher struct {
	request *Request
	form    pathform.Form
	found   []*Rule
	visited int

	picks bool  // rules are not collected, since a slice would be allocated
	best  *Rule // if picks: the best match
	asked *Set  // if picks and not nil: only whether a rule of it matches
	met   bool  // one does
}

// Match appends the rules of a request, in the order of the file; of each group only the best match. It
// allocates only to grow dst.
func (s *Set) Match(r *Request, dst []*Rule) []*Rule {
	if r.doubted != "" { // by an earlier match
		r.doubted = ""
	}
	w := matcher{request: r, form: s.form, found: dst}
	w.hosts(s)
	found := w.sorted(len(dst))
	if s.filtered {
		found = s.filter(found, len(dst), r)
	}
	if s.grouped {
		found = best(found, len(dst))
	}
	return found
}

// possible are the rules that may match a request, whatever their filters say; of a group only the rule with the most
// claims.
func (s *Set) possible(r *Request) []*Rule {
	if !s.filtered {
		return s.Match(r, nil)
	}
	w := matcher{request: r, form: s.form}
	w.hosts(s)
	found := w.sorted(0)
	most := make(map[int]*Rule)
	for _, rule := range found {
		if other := most[rule.group]; other == nil || rule.claims > other.claims {
			most[rule.group] = rule
		}
	}
	return slices.DeleteFunc(found, func(rule *Rule) bool { return rule.group != 0 && most[rule.group] != rule })
}

// sorted sorts the results by the order of the file. A rule of several hosts may occur twice.
func (w *matcher) sorted(from int) []*Rule {
	if len(w.found) <= from+1 {
		return w.found
	}
	slices.SortFunc(w.found[from:], func(a, b *Rule) int { return a.index - b.index })
	return w.found[:from+len(slices.Compact(w.found[from:]))]
}

func (w *matcher) hosts(s *Set) {
	w.paths(&s.anyHost)
	if w.request.Host == "" || len(s.exact)+len(s.below) == 0 {
		return
	}
	var buffer [256]byte
	host := appendFolded(buffer[:0], w.request.Host)
	if p := s.exact[string(host)]; p != nil {
		w.paths(p)
	}
	for i := range host {
		if host[i] != '.' || i == 0 {
			continue
		}
		if p := s.below[string(host[i+1:])]; p != nil {
			w.paths(p)
		}
	}
}

func (w *matcher) paths(p *paths) {
	w.branch(&p.all)
	if rest, ok := strings.CutPrefix(w.request.Path, "/"); ok {
		w.step(&p.root, rest, true)
	}
}

// step matches the following segments; more is false if no segment follows.
func (w *matcher) step(s *step, path string, more bool) {
	w.visited++
	if s.deep != nil {
		w.branch(s.deep)
	}
	if !more {
		if s.here != nil {
			w.branch(s.here)
		}
		return
	}
	first, rest, more := cut(path)
	// /a/;x is /a/ without its parameters.
	if !more && first == "" && w.form.DropTrailingSlash && s.here != nil {
		w.branch(s.here)
	}
	if next := s.literal(first); next != nil {
		w.step(next, rest, more)
	}
	if s.one != nil && first != "" {
		w.step(s.one, rest, more)
	}
}

// literal is the step of a segment that is written out, in any escaping.
func (s *step) literal(segment string) *step {
	if strings.IndexByte(segment, '%') < 0 || len(s.named) == 0 {
		return s.named[segment]
	}
	if len(segment) > 3*bounds.Text { // longer than any pattern's
		return nil
	}
	var buffer [3 * bounds.Text]byte
	return s.named[string(appendUnescaped(buffer[:0], segment))]
}

func (w *matcher) branch(b *branch) {
	w.visited++
	if w.picks {
		w.pick(b.rules)
	} else {
		w.found = append(w.found, b.rules...)
	}
	for _, q := range b.switches {
		w.visited++
		if q.kind <= lastTyped {
			w.typed(q)
			continue
		}
		value := w.request.attribute(q.kind, q.name)
		if value == "" {
			continue
		}
		if next := q.values[value]; next != nil {
			w.branch(next)
		}
		if also := q.alsoFor(value); also != nil {
			w.branch(also)
		}
		if q.any != nil {
			w.branch(q.any)
		}
	}
}

// typed visits the branches of an attribute that is no text of the request.
func (w *matcher) typed(q *switchNode) {
	switch q.kind {
	case sourceIP:
		w.client(q)
	case sourceASN:
		w.asn(q)
	case sourceDescriptorKeys:
		w.descriptorKeys(q)
	}
}

func (w *matcher) pick(rules []*Rule) {
	if w.asked != nil {
		w.meet(rules)
		return
	}
	for _, rule := range rules {
		if w.best == nil || rule.rank > w.best.rank {
			w.best = rule
		}
	}
}

// alsoFor is the branch of GET for HEAD: a HEAD costs a service as much as the GET, and most services use the
// same handler.
func (q *switchNode) alsoFor(value string) *branch {
	if q.kind != sourceMethod || value != methodHead {
		return nil
	}
	return q.values[methodGet]
}

const (
	methodGet  = "GET"
	methodHead = "HEAD"
)

// client visits the networks of the client, the smallest first.
func (w *matcher) client(q *switchNode) {
	address := netaddr.Plain(w.request.Client)
	if !address.IsValid() {
		return
	}
	for i := q.networks.find(address); i >= 0; i = q.networks.list[i].parent {
		w.branch(q.networks.list[i].value)
	}
}

// asn visits the rules for the client's autonomous system.
func (w *matcher) asn(q *switchNode) {
	var buffer [10]byte
	number := w.request.appendASN(buffer[:0])
	if next := q.values[string(number)]; next != nil {
		w.branch(next)
	}
	if q.any != nil && len(number) > 0 {
		w.branch(q.any)
	}
}

// descriptorKeys visits the rules for the request's descriptor.
func (w *matcher) descriptorKeys(q *switchNode) {
	next, visited := q.descriptors.find(w.request)
	w.visited += visited
	if next != nil {
		w.branch(next)
	}
}

// A condition of a rule on one attribute.
type condition struct {
	kind   source
	name   string
	values []string // none: whatever is not empty

	networks []netip.Prefix // of sourceIP, which has no values
	entries  []entry        // of sourceDescriptorKeys, likewise
}

// ways is the number of branches that meet the condition.
func (c *condition) ways() int { return max(1, len(c.values)+len(c.networks)) }

// A treeBuilder inserts rules into the tree of a set.
type treeBuilder struct {
	set     *Set
	clients []*switchNode // whose networks are still to be sorted
}

func (p *treeBuilder) insert(rule *Rule, hosts []string, path string, conditions []condition) {
	if len(hosts) == 0 {
		p.branch(p.set.anyHost.at(path, p.set.form), rule, conditions)
	}
	for _, host := range hosts {
		at, name := p.set.exact, host
		if suffix, ok := strings.CutPrefix(host, "*."); ok {
			at, name = p.set.below, suffix
		}
		if at[name] == nil {
			at[name] = new(paths)
		}
		p.branch(at[name].at(path, p.set.form), rule, conditions)
	}
}

func (p *treeBuilder) branch(b *branch, rule *Rule, conditions []condition) {
	if len(conditions) == 0 {
		if n := len(b.rules); n == 0 || b.rules[n-1] != rule { // alternatives may have the same conditions
			b.rules = append(b.rules, rule)
		}
		return
	}
	first, rest := &conditions[0], conditions[1:]
	q := p.switchOn(b, first.kind, first.name)
	if first.kind == sourceDescriptorKeys {
		p.branch(q.descriptors.at(first.entries), rule, rest)
		return
	}
	if len(first.values)+len(first.networks) == 0 {
		p.branch(made(&q.any), rule, rest)
	}
	for _, value := range first.values {
		if q.values[value] == nil {
			q.values[value] = new(branch)
		}
		p.branch(q.values[value], rule, rest)
	}
	for _, network := range first.networks {
		if q.clients[network] == nil {
			q.clients[network] = new(branch)
		}
		p.branch(q.clients[network], rule, rest)
	}
}

func (p *treeBuilder) switchOn(b *branch, kind source, name string) *switchNode {
	for _, q := range b.switches {
		if q.kind == kind && q.name == name {
			return q
		}
	}
	q := &switchNode{kind: kind, name: name, values: make(map[string]*branch)}
	if kind == sourceIP {
		q.clients = make(map[netip.Prefix]*branch)
		p.clients = append(p.clients, q)
	}
	b.switches = append(b.switches, q)
	return q
}

// finish sorts the networks after the last insert.
func (p *treeBuilder) finish() {
	for _, q := range p.clients {
		q.networks, q.clients = newNetworks(q.clients), nil
	}
}

// at is the branch of a path's pattern, created if missing.
func (p *paths) at(pattern string, form pathform.Form) *branch {
	if pattern == "" {
		return &p.all
	}
	s := &p.root
	for segment := range segments(pattern) {
		if segment == "**" {
			return made(&s.deep)
		}
		s = s.next(segment, form)
	}
	return made(&s.here)
}

func (s *step) next(segment string, form pathform.Form) *step {
	if segment == "*" || strings.HasPrefix(segment, "{") {
		return made(&s.one)
	}
	if s.named == nil {
		s.named = make(map[string]*step)
	}
	if strings.IndexByte(segment, '%') >= 0 {
		segment = string(appendUnescaped(nil, segment))
	}
	if form.IgnoreCase {
		segment = string(appendFolded(nil, segment))
	}
	if s.named[segment] == nil {
		s.named[segment] = new(step)
	}
	return s.named[segment]
}

// made is *p, created if missing.
func made[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}
