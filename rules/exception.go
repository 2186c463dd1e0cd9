package rules

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// An Exception is a temporary decision of an operator: other limits for a key, or a value that is blocked or
// let pass. It takes precedence over the file's lists and overrides; a block takes precedence over an allow.
//
// An exception that fits no rule, because the rule is gone or has another key, is not a mistake of the file:
// Compile leaves it out, and Set.Unfit lists it.
type Exception struct {
	ID        string        `json:"-"` // its name in Unfit
	Kind      ExceptionKind `json:"kind"`
	Rule      string        `json:"rule,omitempty"`  // the rule's name; "" of a block or an allow: the whole file
	Component string        `json:"by,omitempty"`    // of a block or an allow; "" is the key of the rule, or client.ip
	Values    []string      `json:"values"`          // of an override one for each component of the key, otherwise one
	Limit     []string      `json:"limit,omitempty"` // of an override: as a rule's
	Until     time.Time     `json:"-"`               // its end, which Compile ignores: the author removes ended ones
	Why       string        `json:"-"`               // the reason given by its author; nothing depends on it
}

// clone shares no memory with the file of the exception.
func (e *Exception) clone() Exception {
	c := *e
	c.Values, c.Limit = slices.Clone(e.Values), slices.Clone(e.Limit)
	return c
}

// ExceptionKind is the effect of an exception.
type ExceptionKind string

// The kinds of exceptions.
const (
	Overridden ExceptionKind = "override" // the key has other limits
	Blocked    ExceptionKind = "block"    // the value is refused, as by a deny list
	LetPass    ExceptionKind = "allow"    // the value meets no rule, or not this one, as by an allow list
)

// Unfit are the exceptions that are not in force: each has its ID as Field, and the reason as Message.
func (s *Set) Unfit() []Problem { return s.inForce().unfit }

// exceptions are the compiled exceptions of a file or of a rule. A nil pointer has no exceptions.
type exceptions struct {
	lists     lists
	overrides overrides
	list      []compiledException
	more      int // claims that overrides add to those of the rule
}

func (x *exceptions) listed(r *Request) Listing {
	if x == nil {
		return Unlisted
	}
	return x.lists.listed(r)
}

// A compiledException is a single exception, for explaining. Requests use the combined lists instead.
type compiledException struct {
	Exception
	entries   []listEntry // of a block or an allow
	overrides overrides   // of an override
}

// An overlay holds all exceptions of a set. It is immutable, and replaced as a whole.
type overlay struct {
	file  exceptions
	rules map[*Rule]*exceptions
	unfit []Problem
	geo   geo // what the lists need to know of clients
}

var noExceptions overlay

// inForce is the current overlay.
func (s *Set) inForce() *overlay {
	if o := s.overlay.Load(); o != nil {
		return o
	}
	return &noExceptions
}

// excepted are the exceptions of the rule; nil if it has no exceptions.
func (r *Rule) excepted() *exceptions { return r.set.inForce().rules[r] }

// Except replaces the exceptions of the set by the exceptions of a file, for requests from now on. No rule is compiled,
// so it takes as long with 100,000 rules as with one. The file must have the rules of the set. On an
// *Error nothing changes.
func (s *Set) Except(file *File) error {
	o, err := s.overlayOf(file)
	if err == nil {
		s.overlay.Store(o)
	}
	return err
}

// Misfit says why an exception would be in force for no request; "" if it fits. The file must have the rules of the
// set.
func (s *Set) Misfit(file *File, e *Exception) string {
	o, err := s.overlayOf(&File{Name: file.Name, Rules: file.Rules, Exceptions: []Exception{*e}})
	switch {
	case err != nil:
		return err.Error()
	case len(o.unfit) > 0:
		return o.unfit[0].Message
	}
	return ""
}

// DiffersInExceptions reports whether two files differ in their exceptions at most. Their rules count as equal only
// if they share memory.
func (file *File) DiffersInExceptions(other *File) bool {
	x, y := *file, *other
	x.Exceptions, y.Exceptions = nil, nil
	return same(&x, &y)
}

// Excepted are the exceptions of the file that decide a request: all exceptions that block it, or else all that let it
// pass. It is slow, and meant for explaining.
func (s *Set) Excepted(request *Request) []Exception {
	return s.inForce().file.deciding(nil, request, nil)
}

// Excepted are the exceptions of the rule that decide a request: all exceptions that block it, or else all that let it
// pass, or else the one that gives its key other limits. It is slow, and meant for explaining.
func (r *Rule) Excepted(request *Request) []Exception {
	x := r.excepted()
	if x == nil {
		return nil
	}
	key, _ := r.AppendKey(nil, request)
	return x.deciding(r, request, key)
}

func (x *exceptions) deciding(rule *Rule, request *Request, key []byte) (list []Exception) {
	for _, kind := range []ExceptionKind{Blocked, LetPass, Overridden} {
		for i := range x.list {
			if l := &x.list[i]; l.Kind == kind && (names(l.entries, request) || x.decides(l, rule, request, key)) {
				list = append(list, l.Exception)
			}
		}
		if len(list) > 0 {
			break
		}
	}
	return list
}

// decides reports whether the limits of the key come from this override, and not from another one that fits
// too.
func (x *exceptions) decides(l *compiledException, rule *Rule, request *Request, key []byte) bool {
	if l.Kind != Overridden || key == nil {
		return false
	}
	fits := func(w *wildcard) bool { return w.matches(rule, request) }
	its, those := l.overrides.find(key, fits), x.overrides.find(key, fits)
	return len(its) > 0 && len(those) > 0 && &its[0] == &those[0]
}

// An exceptionBuilder compiles the exceptions of one rule, or of the file.
type exceptionBuilder struct {
	*builder
	over        *overlay
	rule        *Rule // nil: the file
	spec        *Spec
	into        *exceptions
	allow, deny entryBuilder
}

// overlayOf compiles the exceptions of a file.
func (s *Set) overlayOf(file *File) (*overlay, error) {
	b := &builder{report: &report{file: file.Name}, set: s, states: make(map[string]int),
		specs: make(map[string]weir.Spec)}
	if !b.count(at(-1, "exceptions"), len(file.Exceptions), bounds.Exceptions) {
		return nil, b.err()
	}
	o := &overlay{rules: make(map[*Rule]*exceptions)}
	x := exceptionBuilder{builder: b, over: o, into: &o.file}
	byRule := make(map[string][]*Exception)
	for i := range file.Exceptions {
		e := &file.Exceptions[i]
		if e.Rule == "" {
			x.compile(-1, e)
		} else {
			byRule[e.Rule] = append(byRule[e.Rule], e)
		}
	}
	o.file.lists = x.lists()
	o.geo = o.file.lists.geo()
	for i, rule := range s.rules {
		if list := byRule[rule.name]; len(list) > 0 {
			b.compileFor(o, rule, &file.Rules[i], list)
			delete(byRule, rule.name)
		}
		if len(byRule) == 0 {
			break
		}
	}
	for i := range file.Exceptions {
		if e := &file.Exceptions[i]; byRule[e.Rule] != nil {
			o.unfit = append(o.unfit, Problem{Field: e.ID, Message: "there is no rule of this name"})
		}
	}
	return o, nil
}

// compileFor compiles the exceptions of one rule.
func (b *builder) compileFor(o *overlay, rule *Rule, spec *Spec, list []*Exception) {
	into := &exceptions{overrides: overrides{exact: make(map[string][]*weir.Limit)}}
	x := exceptionBuilder{builder: b, over: o, rule: rule, spec: spec, into: into}
	for _, e := range list {
		b.namesTaken(rule, len(e.Limit))
		x.compile(rule.index, e)
	}
	into.lists = x.lists()
	slices.SortStableFunc(into.overrides.wild, func(a, b wildcard) int { return b.rank - a.rank })
	o.rules[rule] = into
	if !rule.disabled {
		o.geo |= into.lists.geo()
	}
}

// namesTaken records the rules that have limits of the names that so many limits of a rule would have. The
// names of the rule's own limits were checked when it was compiled.
func (b *builder) namesTaken(rule *Rule, limits int) {
	for j := len(rule.limits); j < min(limits, bounds.Limits); j++ {
		name := stateName(rule.name, j, true)
		if _, known := b.states[name]; known {
			continue
		}
		for _, other := range b.set.rules {
			if other.has(name) {
				b.states[name] = other.index
			}
		}
	}
}

// has reports whether the rule has state of this name.
func (r *Rule) has(name string) bool {
	if !strings.HasPrefix(name, r.name) {
		return false
	}
	named := func(l *weir.Limit) bool { return l.Name() == name }
	if slices.ContainsFunc(r.limits, named) {
		return true
	}
	for _, limits := range r.overrides.exact {
		if slices.ContainsFunc(limits, named) {
			return true
		}
	}
	return slices.ContainsFunc(r.overrides.wild, func(w wildcard) bool { return slices.ContainsFunc(w.limits, named) })
}

// compile compiles one exception. Its mistakes make it unfit; they are not mistakes of the file.
func (x *exceptionBuilder) compile(i int, e *Exception) {
	files := x.report
	x.report = &report{file: files.file}
	defer func() { x.report = files }()
	var apply func()
	switch {
	case e.Kind == Overridden && x.rule != nil:
		apply = x.override(i, e)
	case e.Kind == Blocked:
		apply = x.list(i, e, &x.deny)
	case e.Kind == LetPass:
		apply = x.list(i, e, &x.allow)
	default:
		x.add(at(i, "kind"), "its kind is %.80q; allowed: block, allow, or override with a rule", string(e.Kind))
	}
	if len(x.problems) > 0 {
		x.over.unfit = append(x.over.unfit, Problem{Field: e.ID, Message: x.problems[0].Message})
		return
	}
	apply()
}

func (x *exceptionBuilder) override(i int, e *Exception) (apply func()) {
	if len(x.spec.Key) == 0 {
		x.add(at(i, "key"), "the rule has no key: all requests are counted together, by one limit")
		return nil
	}
	one := overrides{exact: make(map[string][]*weir.Limit)}
	o := overrideBuilder{builder: x.builder, rule: x.rule, into: &one, seen: make(map[string]int)}
	o.add(i, 0, &Override{Key: e.Values, Limit: e.Limit}, x.spec, true)
	all := &x.into.overrides
	if len(one.wild)+len(all.wild) > bounds.Wildcards {
		x.add(at(i, "overrides"), "there are over %d overrides with wildcards or networks", bounds.Wildcards)
	}
	more := max(0, claimsWith(x.rule, len(e.Limit))-x.rule.claims-x.into.more)
	if most := x.set.claims + x.builder.more + more; more > 0 && most > weir.MaxClaims {
		x.add(at(i, "limit"), "with %d limits for this key, requests may meet %d limits and bans of all rules; a "+
			"decision holds at most %d", len(e.Limit), most, weir.MaxClaims)
	}
	return func() {
		x.into.more, x.builder.more = x.into.more+more, x.builder.more+more
		maps.Copy(all.exact, one.exact)
		all.wild = append(all.wild, one.wild...)
		x.into.list = append(x.into.list, compiledException{Exception: e.clone(), overrides: one})
	}
}

// list adds a value to the values that are blocked or let pass.
func (x *exceptionBuilder) list(i int, e *Exception, to *entryBuilder) (apply func()) {
	p := at(i, string(e.Kind))
	if len(e.Values) != 1 || e.Values[0] == "" || len(e.Values[0]) > bounds.Text {
		x.add(p, "%s needs one value of 1 to %d bytes", p.field, bounds.Text)
		return nil
	}
	text, path, complaint := e.Component, "", ""
	if x.rule != nil {
		path = x.spec.Match.Path
	}
	if text == "" {
		text, complaint = x.component()
	}
	var c component
	if complaint == "" {
		c, complaint = parseListed(text, path, x.rule != nil)
		c.inForm(x.set)
	}
	var v pattern
	if complaint == "" {
		v, complaint = parsePatternOf(&c, e.Values[0])
	}
	if complaint == "" && v.any() {
		complaint = "it is for everybody; disable the rule, or delete it"
	}
	if complaint != "" {
		x.add(p, "%s by %.80q of %.80q: %s", p.field, text, e.Values[0], complaint)
	}
	return func() {
		to.take(c, v)
		var one entryBuilder
		one.take(c, v)
		x.into.list = append(x.into.list, compiledException{Exception: e.clone(), entries: one.entries()})
	}
}

// component is the component of the exception, or its default.
func (x *exceptionBuilder) component() (text, complaint string) {
	if x.rule == nil {
		return "client.ip", ""
	}
	if len(x.spec.Key) != 1 {
		return "", "the key of the rule is not one component; say by which, such as client.ip or user"
	}
	if x.rule.components[0].source == sourceIP {
		return "client.ip", ""
	}
	return x.spec.Key[0], ""
}

func (x *exceptionBuilder) lists() lists {
	return lists{allow: x.allow.entries(), deny: x.deny.entries()}
}

// An entryBuilder is a list of entries that grow value by value.
type entryBuilder []listEntry

func (g *entryBuilder) take(c component, v pattern) {
	i := slices.IndexFunc(*g, func(other listEntry) bool { return other.component == c })
	if i < 0 {
		i = len(*g)
		*g = append(*g, listEntry{component: c, values: values{exact: make(map[string]bool)}})
	}
	(*g)[i].take(v)
}

func (g entryBuilder) entries() []listEntry {
	for i := range g {
		g[i].finish()
	}
	return g
}
