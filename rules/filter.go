package rules

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"sort"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
)

// A filter is the part of a match that the tree does not decide: regular expressions, any and not. It is evaluated for
// the requests that meet the other conditions.
type filter struct {
	expressions []expression
	any, not    *Set // of rules that stand for the alternatives; nil: none
	steps       int  // of the expressions that one request is matched with, at most
}

// An expression is a condition of one attribute: one of its patterns matches the whole text.
type expression struct {
	kind     source // sourcePath or one with a name
	name     string
	patterns []*regexp.Regexp
	tooLong  bool // the result for a text that is too long to be matched
}

// filter drops each rule in found[from:] that has a filter which the request does not meet.
func (s *Set) filter(found []*Rule, from int, r *Request) []*Rule {
	kept := found[:from]
	for _, rule := range found[from:] {
		if rule.filter == nil || rule.filter.meets(r, s) {
			kept = append(kept, rule)
		}
	}
	return kept
}

func (f *filter) meets(r *Request, s *Set) bool {
	for i := range f.expressions {
		if !f.expressions[i].meets(r, s) {
			return false
		}
	}
	return (f.any == nil || f.any.some(r)) && (f.not == nil || !f.not.some(r))
}

// some reports whether a rule of the set matches.
func (s *Set) some(r *Request) bool {
	w := matcher{request: r, form: s.form, picks: true, asked: s}
	w.hosts(s)
	return w.met
}

// meet notes whether one of the rules matches.
func (w *matcher) meet(rules []*Rule) {
	for _, rule := range rules {
		w.met = w.met || rule.filter == nil || rule.filter.meets(w.request, w.asked)
	}
}

// meets reports whether the attribute is not empty and matches. Clients choose the length of a text, so a long one is
// not matched: the rule applies to it.
func (e *expression) meets(r *Request, s *Set) bool {
	text := ""
	if e.kind == sourcePath {
		text = r.expressedPath(s)
	} else {
		text = r.attribute(e.kind, e.name)
	}
	if text == "" || len(text) > bounds.Text {
		return text != "" && e.tooLong
	}
	return slices.ContainsFunc(e.patterns, func(p *regexp.Regexp) bool { return p.MatchString(text) })
}

// expressedPath is the path that expressions match: without parameters and escapes, except that an encoded slash stays
// %2F, which is another path than one with a slash.
func (r *Request) expressedPath(s *Set) string {
	path := r.MatchedPath()
	if s.form.DropTrailingSlash && len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if strings.IndexByte(path, '%') < 0 || len(path) > 3*bounds.Text {
		return path
	}
	var text []byte
	for i, segment := range strings.Split(path, "/") {
		if i > 0 {
			text = append(text, '/')
		}
		start := len(text)
		text = appendUnescaped(text, segment)
		if slices.Contains(text[start:], '/') {
			text = append(text[:start], strings.ReplaceAll(string(text[start:]), "/", "%2F")...)
		}
	}
	return string(text)
}

// filter checks the conditions of a match that the tree does not decide; nil if the tree decides them all.
func (b *builder) filter(p place, m *Match) *filter {
	before := b.programs
	f := &filter{expressions: b.expressions(p, &m.Regex, true)}
	f.steps = b.programs - before
	f.any = b.alternatives(at(p.rule, p.field+".any"), m.Any, true)
	f.not = b.alternatives(at(p.rule, p.field+".not"), m.Not, false)
	if len(f.expressions) == 0 && f.any == nil && f.not == nil {
		return nil
	}
	f.steps += f.any.stepBound(bounds.Alternatives) + f.not.stepBound(bounds.Alternatives)
	b.set.filtered = true
	return f
}

// stepBound is an upper bound of the steps of the expressions that one request is matched with, of the first so many
// rules. The steps of a rule count more than once if the request meets several of the rule's places in the tree.
func (s *Set) stepBound(rules int) int {
	if s == nil || !s.filtered {
		return 0
	}
	steps := func(rule *Rule) claimBound {
		if rule.index >= rules {
			return claimBound{}
		}
		return claimBound{alone: rule.steps()}
	}
	c := claimCounter{set: s, of: steps, known: make(map[any]claimBound)}
	return c.hosts().alone
}

// steps is a bound of the steps of the expressions of the rule's match and of its classes.
func (r *Rule) steps() (n int) {
	if r.filter != nil {
		n += r.filter.steps
	}
	if r.reserve != nil {
		n += r.reserve.steps
	}
	return n
}

// workOf is an upper bound of the cost of the first so many rules' expressions for one request, in steps times bytes.
// Match evaluates a rule once, wherever the request meets it.
func (s *Set) workOf(rules int) int {
	steps := 0
	for _, rule := range s.rules[:rules] {
		if !rule.disabled {
			steps += rule.steps()
		}
	}
	return min(steps, s.stepBound(rules)) * bounds.Text
}

// work refuses a rule set if the expressions of some request take too long: clients choose the texts, and their length
// up to bounds.Text.
func (b *builder) work() {
	b.set.work = b.set.workOf(len(b.set.rules))
	if b.set.work <= bounds.Work {
		return
	}
	last := sort.Search(len(b.set.rules), func(i int) bool { return b.set.workOf(i+1) > bounds.Work })
	work := b.set.workOf(last + 1)
	b.add(at(last, "match"), "with the rules up to here one request can cost %d steps times bytes in regular "+
		"expressions, about %d ms; at most %d: give the rules a path or a host, or write fewer or smaller expressions",
		work, work/bounds.WorkPerMillisecond, bounds.Work)
}

// alternatives makes a set that has a rule for each alternative.
func (b *builder) alternatives(p place, given []Match, tooLong bool) *Set {
	if len(given) == 0 || !b.count(p, len(given), bounds.Alternatives) {
		return nil
	}
	set := newSet()
	set.form = b.set.form
	tree := treeBuilder{set: set}
	for j := range given {
		one, m := p.element(j), &given[j]
		if len(m.Any)+len(m.Not) > 0 {
			b.add(one, "%s has any or not; they are of the match alone", one.field)
		}
		rule := &Rule{set: set, index: j}
		b.plainKeys(at(one.rule, one.field+".descriptor_keys"), m.DescriptorKeys)
		hosts, path := b.hosts(at(one.rule, one.field+".host"), m.Host), b.set.inForm(m.Path)
		b.path(at(one.rule, one.field+".path"), m.Path)
		conditions := b.conditions(one, m)
		before := b.programs
		if list := b.expressions(one, &m.Regex, tooLong); len(list) > 0 {
			rule.filter, set.filtered = &filter{expressions: list, steps: b.programs - before}, true
		}
		if len(hosts)+len(path)+len(conditions) == 0 && rule.filter == nil && !b.has(one) {
			b.add(one, "%s has no condition", one.field)
		}
		if len(b.problems) == 0 && b.room(one, hosts, path, conditions) {
			tree.insert(rule, hosts, path, conditions)
		}
	}
	tree.finish()
	return set
}

// expressions checks the regular expressions of a match.
func (b *builder) expressions(p place, given *Expressions, tooLong bool) (list []expression) {
	if len(given.Path) > 0 {
		patterns := b.patterns(at(p.rule, p.field+".regex.path"), given.Path, b.set.form.IgnoreCase)
		list = append(list, expression{sourcePath, "", patterns, tooLong})
	}
	for _, table := range []struct {
		kind   source
		word   string
		values map[string][]string
	}{{sourceHeader, "header", given.Header}, {sourceDescriptor, "descriptor", given.Descriptor}} {
		for name, values := range sortedTable(table.values) {
			p := at(p.rule, p.field+".regex."+table.word+"."+name)
			if !validAttribute(name) {
				b.add(p, "%s %.80q: a name of 1 to 128 of a-z A-Z 0-9 and !#$&'*+-._`|~", p.field, name)
				continue
			}
			if table.kind == sourceHeader {
				name = canonical(name)
			}
			list = append(list, expression{table.kind, name, b.patterns(p, values, false), tooLong})
		}
	}
	for _, one := range mcpParts {
		if values := *one.of(&given.MCP); len(values) > 0 {
			p := at(p.rule, p.field+".regex."+one.source.String())
			list = append(list, expression{one.source, "", b.patterns(p, values, false), tooLong})
		}
	}
	return list
}

func (b *builder) patterns(p place, given []string, foldCase bool) (list []*regexp.Regexp) {
	if len(given) == 0 && !b.has(p) {
		b.add(p, "%s has no expressions", p.field)
	}
	b.count(p, len(given), bounds.Values)
	for j, text := range given {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) {
			continue
		}
		pattern, complaint := b.pattern(text, foldCase)
		if complaint != "" {
			b.add(item, "expression %.80q: %s", text, complaint)
			continue
		}
		list = append(list, pattern)
	}
	return list
}

// pattern compiles an expression for whole texts. It is parsed alone first: after ")" or \Q it would end, or change,
// the text around it.
func (b *builder) pattern(text string, foldCase bool) (pattern *regexp.Regexp, complaint string) {
	if text == "" || len(text) > bounds.Expression {
		return nil, fmt.Sprintf("allowed: 1 to %d bytes", bounds.Expression)
	}
	flags := syntax.Perl | syntax.DotNL // a client may send %0A
	if foldCase {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(text, flags)
	if err != nil {
		var wrong *syntax.Error
		errors.As(err, &wrong)
		return nil, fmt.Sprintf("%s: %.40q; allowed: the syntax of RE2, without look-ahead and back-references",
			wrong.Code, wrong.Expr)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil || len(program.Inst) > bounds.Program {
		return nil, fmt.Sprintf("it is too large: write fewer alternatives and smaller counts, such as .* for "+
			".{0,200} (%d of %d steps)", len(program.Inst), bounds.Program)
	}
	if b.programs += len(program.Inst); b.programs > bounds.Programs {
		return nil, fmt.Sprintf("the expressions up to here have over %d steps together", bounds.Programs)
	}
	pattern, err = regexp.Compile(`\A(?:` + tree.String() + `)\z`)
	if err != nil {
		return nil, err.Error()
	}
	return pattern, ""
}

// Alternatives are the match itself or, with any, for each alternative the conditions of both, and of one that both
// have the match's own. They are met by all requests that meet the match, and perhaps by others.
func (m *Match) Alternatives() []Match {
	if len(m.Any) == 0 {
		return []Match{*m}
	}
	list := make([]Match, len(m.Any))
	for i, one := range m.Any {
		fill(&one.Method, m.Method)
		fill(&one.Host, m.Host)
		fill(&one.Client, m.Client)
		fill(&one.Country, m.Country)
		fill(&one.ASN, m.ASN)
		fill(&one.Service, m.Service)
		fill(&one.User, m.User)
		fill(&one.Route, m.Route)
		fill(&one.DescriptorKeys, m.DescriptorKeys)
		if m.Path != "" {
			one.Path = m.Path
		}
		one.Header = union(one.Header, m.Header, canonical)
		one.Query = union(one.Query, m.Query, strings.Clone)
		one.JSON = union(one.JSON, m.JSON, strings.Clone)
		one.Descriptor = union(one.Descriptor, m.Descriptor, strings.Clone)
		fill(&one.MCP.Method, m.MCP.Method)
		fill(&one.MCP.Tool, m.MCP.Tool)
		fill(&one.Regex.MCP.Method, m.Regex.MCP.Method)
		fill(&one.Regex.MCP.Tool, m.Regex.MCP.Tool)
		fill(&one.Regex.Path, m.Regex.Path)
		one.Regex.Header = union(one.Regex.Header, m.Regex.Header, canonical)
		one.Regex.Descriptor = union(one.Regex.Descriptor, m.Regex.Descriptor, strings.Clone)
		list[i] = one
	}
	return list
}

// describes reports whether the match has a condition on descriptors.
func (m *Match) describes() bool {
	return m.has(func(m *Match) bool { return len(m.Descriptor)+len(m.DescriptorKeys)+len(m.Regex.Descriptor) > 0 })
}

func fill(to *[]string, own []string) {
	if len(own) > 0 {
		*to = own
	}
}

// union has the values of both tables, of own where both have a name.
func union(other, own map[string][]string, form func(string) string) map[string][]string {
	all := make(map[string][]string)
	for _, table := range []map[string][]string{other, own} {
		for name, values := range table {
			all[form(name)] = values
		}
	}
	return all
}

// Filtered is the number of rules with regex, any or not in their match, and how many of these have no other condition:
// every request evaluates these one by one, and evaluates the others only if it meets their other conditions. work is
// the most that expressions cost one request, in steps times bytes.
func (s *Set) Filtered() (all, everywhere, work int) {
	for _, rule := range s.rules {
		if rule.disabled {
			continue
		}
		if rule.filter != nil {
			all++
		}
		if rule.everywhere {
			everywhere++
		}
	}
	return all, everywhere, s.work
}

// sortedTable iterates over a table by name.
func sortedTable(table map[string][]string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if !yield(name, table[name]) {
				return
			}
		}
	}
}
