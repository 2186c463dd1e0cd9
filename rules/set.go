package rules

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/pathform"
)

// A Rule is a Spec that was checked. It is immutable.
type Rule struct {
	set          *Set
	index        int
	name         string
	label        string
	components   []component
	onMissing    OnMissing
	limits       []*weir.Limit
	overrides    overrides
	cost         cost
	schedule     []window
	lists        lists
	mode         Mode
	bans         *Bans
	candidate    *Rival
	percent      uint64 // of the keys, for which it is enforced
	lease        int    // percent of what remains
	holdUntil    HoldUntil
	ceiling      float64
	onStoreError StoreError
	response     *Response
	group        int // 0: none
	groupName    string
	rank         uint64
	reads        []reading
	claims       int // that it adds to a decision, at most
}

// Name is what its author called the rule.
func (r *Rule) Name() string { return r.name }

// Label is what people call the rule; "" where its author has not said.
func (r *Rule) Label() string { return r.label }

// Index is the rule's place in its file, from 0.
func (r *Rule) Index() int { return r.index }

// Limits are those of the rule, in order: name, name.2 and so on, as weir.New calls them.
// Do not change the slice.
func (r *Rule) Limits() []*weir.Limit { return r.limits }

// OnMissing says what becomes of a request for which AppendKey is not ok.
func (r *Rule) OnMissing() OnMissing { return r.onMissing }

// Mode says whether the rule's refusals are acted upon.
func (r *Rule) Mode() Mode { return r.mode }

// OnStoreError says what becomes of a request when the store does not answer.
func (r *Rule) OnStoreError() StoreError { return r.onStoreError }

// A Set is the compiled rules of one file. It is safe for concurrent use, and immutable but for
// its exceptions (Except).
type Set struct {
	rules []*Rule
	seal  seal
	lists lists

	overlay atomic.Pointer[overlay] // the exceptions; nil: none
	names   []string                // of sets
	leftOut error                   // of their members

	grouped bool // some rules are in groups
	claims  int  // that no request needs more of

	store, header string
	nodes         int
	fallbackKeys  int
	proxies       []netip.Prefix
	form          pathform.Form

	// A tree of hosts, paths and conditions. Hosts are exact names, or what follows "*.".
	exact, below map[string]*paths
	anyHost      paths
}

// Store is what the file names to count in: "memory", or the URL of a Redis, with its
// password; "" if it does not say.
func (s *Set) Store() string { return s.store }

// TrustedProxies are the networks of the file's trusted_proxies. Do not change the slice.
func (s *Set) TrustedProxies() []netip.Prefix { return s.proxies }

// ClientHeader is the header in which those proxies name their callers, such as
// "X-Forwarded-For"; "" if the file does not say.
func (s *Set) ClientHeader() string { return s.header }

// PathForm is the form that paths of requests must have before they are matched: the patterns of
// the rules have it.
func (s *Set) PathForm() pathform.Form { return s.form }

// Rules are all rules, in the order of the file. Do not change the slice.
func (s *Set) Rules() []*Rule { return s.rules }

// paths are the rules of some hosts: those that look at the path, and those that do not.
type paths struct {
	all  branch
	root step
}

// A step is reached by some segments of a path.
type step struct {
	named map[string]*step
	one   *step   // any one segment that is not empty
	here  *branch // the path ends here
	deep  *branch // it ends here, or goes on: **
}

// A branch is reached by requests that meet the same first conditions. Conditions are
// asked in one order everywhere, so that rules share them.
type branch struct {
	rules     []*Rule // those without further conditions
	questions []*question
}

// A question asks for one attribute.
type question struct {
	kind   source
	name   string
	values map[string]*branch
	any    *branch // whatever is not empty

	clients  map[netip.Prefix]*branch // while rules are planted; then in networks
	networks networks[*branch]
}

// A walk finds the rules of one request. It counts the nodes that it looks at, so that a
// test can see that they do not grow with the set.
type walk struct {
	request *Request
	form    pathform.Form
	found   []*Rule
	visited int
}

// Match appends the rules that are for a request, in the order of the file; of each group
// only the best match. It allocates only to make dst larger.
func (s *Set) Match(r *Request, dst []*Rule) []*Rule {
	w := walk{request: r, form: s.form, found: dst}
	w.hosts(s)
	found := w.sorted(len(dst))
	if s.grouped {
		found = best(found, len(dst))
	}
	return found
}

// sorted brings what was found into the order of the file. A rule of several hosts may
// have been found twice.
func (w *walk) sorted(from int) []*Rule {
	if len(w.found) <= from+1 {
		return w.found
	}
	slices.SortFunc(w.found[from:], func(a, b *Rule) int { return a.index - b.index })
	return w.found[:from+len(slices.Compact(w.found[from:]))]
}

func (w *walk) hosts(s *Set) {
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

func (w *walk) paths(p *paths) {
	w.branch(&p.all)
	if rest, ok := strings.CutPrefix(w.request.Path, "/"); ok {
		w.step(&p.root, rest, true)
	}
}

// step looks at the segments that follow; more is false where none does.
func (w *walk) step(s *step, path string, more bool) {
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
	if !more && first == "" && w.form.DropTrailingSlash && s.here != nil { // of /a/;x, which is /a/ without its parameters
		w.branch(s.here)
	}
	if next := s.literal(first); next != nil {
		w.step(next, rest, more)
	}
	if s.one != nil && first != "" {
		w.step(s.one, rest, more)
	}
}

// literal is the step of a segment that is written out, however it is escaped.
func (s *step) literal(segment string) *step {
	if strings.IndexByte(segment, '%') < 0 || len(s.named) == 0 {
		return s.named[segment]
	}
	if len(segment) > 3*MaxText { // longer than any pattern
		return nil
	}
	var buffer [3 * MaxText]byte
	return s.named[string(appendUnescaped(buffer[:0], segment))]
}

func (w *walk) branch(b *branch) {
	w.visited++
	w.found = append(w.found, b.rules...)
	for _, q := range b.questions {
		w.visited++
		if q.kind == sourceIP {
			w.client(q)
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

// alsoFor is the branch of GET for HEAD: a HEAD costs a service what the GET does, and most answer
// it by the same handler.
func (q *question) alsoFor(value string) *branch {
	if q.kind != sourceMethod || value != methodHead {
		return nil
	}
	return q.values[methodGet]
}

const (
	methodGet  = "GET"
	methodHead = "HEAD"
)

// client goes to the networks that the client lies in, the smallest first.
func (w *walk) client(q *question) {
	address := plain(w.request.Client)
	if !address.IsValid() {
		return
	}
	for i := q.networks.find(address); i >= 0; i = q.networks.list[i].parent {
		w.branch(q.networks.list[i].value)
	}
}

// A condition is what a rule asks of one attribute.
type condition struct {
	kind   source
	name   string
	values []string // none: whatever is not empty

	networks []netip.Prefix // of sourceIP, which has no values
}

// ways is how many branches meet the condition.
func (c *condition) ways() int { return max(1, len(c.values)+len(c.networks)) }

// A planter puts rules where their requests will find them.
type planter struct {
	set     *Set
	clients []*question // whose networks are still to be sorted
}

func (p *planter) plant(rule *Rule, hosts []string, path string, conditions []condition) {
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

func (p *planter) branch(b *branch, rule *Rule, conditions []condition) {
	if len(conditions) == 0 {
		b.rules = append(b.rules, rule)
		return
	}
	first, rest := &conditions[0], conditions[1:]
	q := p.question(b, first.kind, first.name)
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

func (p *planter) question(b *branch, kind source, name string) *question {
	for _, q := range b.questions {
		if q.kind == kind && q.name == name {
			return q
		}
	}
	q := &question{kind: kind, name: name, values: make(map[string]*branch)}
	if kind == sourceIP {
		q.clients = make(map[netip.Prefix]*branch)
		p.clients = append(p.clients, q)
	}
	b.questions = append(b.questions, q)
	return q
}

// finish makes what was planted ready to be searched.
func (p *planter) finish() {
	for _, q := range p.clients {
		q.networks, q.clients = newNetworks(q.clients), nil
	}
}

// at is the branch of a path's pattern, which is made if need be.
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

// made is what p points to, made if need be.
func made[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}
