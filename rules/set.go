package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// A Rule is a Spec that was checked. It is immutable.
type Rule struct {
	set          *Set
	index        int
	name         string
	components   []component
	onMissing    OnMissing
	limits       []*weir.Limit
	cost         int64
	mode         Mode
	onStoreError StoreError
	response     Response
}

// Name is what its author called the rule.
func (r *Rule) Name() string { return r.name }

// Index is the rule's place in its file, from 0.
func (r *Rule) Index() int { return r.index }

// Limits are those of the rule, in order: name, name.2 and so on, as weir.New calls them.
// Do not change the slice.
func (r *Rule) Limits() []*weir.Limit { return r.limits }

// LimitsFor are the limits of the request with this key: those of an override, or Limits.
// Do not change the slice.
func (r *Rule) LimitsFor(*Request, []byte) []*weir.Limit { return r.limits }

// Cost is how many units a request takes that does not say.
func (r *Rule) Cost() int64 { return r.cost }

// CostOf is how many units the request takes. The error is a *weir.InputError: the request
// says something that is no cost, or is over the rule's maximum.
func (r *Rule) CostOf(*Request) (int64, error) { return r.cost, nil }

// FixedCost reports whether the rule states its cost as a number: then a caller cannot say
// another, and Settle does not change it.
func (r *Rule) FixedCost() bool { return false }

// Settle is where a response says what the request really cost: the canonical name of a
// header or trailer, "bytes" for the length of its body, or "" for nowhere.
func (r *Rule) Settle() string { return "" }

// Scheduled reports whether the rule has a schedule: only then does Active look at the time.
func (r *Rule) Scheduled() bool { return false }

// Active reports whether the rule's schedule has it apply at this time.
func (r *Rule) Active(time.Time) bool { return true }

// Listed says whether the rule's own lists name the request.
func (r *Rule) Listed(*Request) Listing { return Unlisted }

// Response is what the rule's clients are told, with every field set.
func (r *Rule) Response() *Response { return &r.response }

// OnMissing says what becomes of a request for which AppendKey is not ok.
func (r *Rule) OnMissing() OnMissing { return r.onMissing }

// Mode says whether the rule's refusals are acted upon.
func (r *Rule) Mode() Mode { return r.mode }

// OnStoreError says what becomes of a request when the store does not answer.
func (r *Rule) OnStoreError() StoreError { return r.onStoreError }

// A Set is the compiled rules of one file. It is immutable and safe for concurrent use.
type Set struct {
	rules []*Rule
	seal  seal

	// A tree of hosts, paths and conditions. Hosts are exact names, or what follows "*.".
	exact, below map[string]*paths
	anyHost      paths
}

// Listed says whether the file's own lists name the request.
func (s *Set) Listed(*Request) Listing { return Unlisted }

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
}

// A walk finds the rules of one request. It counts the nodes that it looks at, so that a
// test can see that they do not grow with the set.
type walk struct {
	request *Request
	found   []*Rule
	visited int
}

// Match appends the rules that are for a request, in the order of the file. It allocates
// only to make dst larger.
func (s *Set) Match(r *Request, dst []*Rule) []*Rule {
	w := walk{request: r, found: dst}
	w.hosts(s)
	return w.sorted(len(dst))
}

// sorted brings what was found into the order of the file. A rule of several hosts may
// have been found twice.
func (w *walk) sorted(from int) []*Rule {
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
	if next := s.named[first]; next != nil {
		w.step(next, rest, more)
	}
	if s.one != nil && first != "" {
		w.step(s.one, rest, more)
	}
}

func (w *walk) branch(b *branch) {
	w.visited++
	w.found = append(w.found, b.rules...)
	for _, q := range b.questions {
		w.visited++
		value := w.request.attribute(q.kind, q.name)
		if value == "" {
			continue
		}
		if next := q.values[value]; next != nil {
			w.branch(next)
		}
		if q.any != nil {
			w.branch(q.any)
		}
	}
}

// A condition is what a rule asks of one attribute.
type condition struct {
	kind   source
	name   string
	values []string // none: whatever is not empty
}

// plant puts a rule where its requests will find it.
func (s *Set) plant(rule *Rule, hosts []string, path string, conditions []condition) {
	if len(hosts) == 0 {
		s.anyHost.at(path).plant(rule, conditions)
	}
	for _, host := range hosts {
		at, name := s.exact, host
		if suffix, ok := strings.CutPrefix(host, "*."); ok {
			at, name = s.below, suffix
		}
		if at[name] == nil {
			at[name] = new(paths)
		}
		at[name].at(path).plant(rule, conditions)
	}
}

// at is the branch of a path's pattern, which is made if need be.
func (p *paths) at(pattern string) *branch {
	if pattern == "" {
		return &p.all
	}
	s := &p.root
	for _, segment := range segments(pattern) {
		if segment == "**" {
			return made(&s.deep)
		}
		s = s.next(segment)
	}
	return made(&s.here)
}

func (s *step) next(segment string) *step {
	if segment == "*" || strings.HasPrefix(segment, "{") {
		return made(&s.one)
	}
	if s.named == nil {
		s.named = make(map[string]*step)
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

func (b *branch) plant(rule *Rule, conditions []condition) {
	if len(conditions) == 0 {
		b.rules = append(b.rules, rule)
		return
	}
	first, rest := conditions[0], conditions[1:]
	q := b.question(first.kind, first.name)
	if len(first.values) == 0 {
		made(&q.any).plant(rule, rest)
	}
	for _, value := range first.values {
		if q.values[value] == nil {
			q.values[value] = new(branch)
		}
		q.values[value].plant(rule, rest)
	}
}

func (b *branch) question(kind source, name string) *question {
	for _, q := range b.questions {
		if q.kind == kind && q.name == name {
			return q
		}
	}
	q := &question{kind: kind, name: name, values: make(map[string]*branch)}
	b.questions = append(b.questions, q)
	return q
}
