package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/internal/timewords"
)

// Lint is Parse and Compile, and warns of rules that are valid but not intended: rules that never
// match, limits that never decide, values that never occur. It is silent where it is not sure. The warnings
// are in the order of the file, at most bounds.Problems.
func Lint(name string, text []byte, opts ...Option) (set *Set, warnings []Problem, err error) {
	o := newOptions(opts)
	file, set, r := read(name, text, o)
	if err := r.err(); err != nil {
		return nil, nil, err
	}
	r = &report{file: name, lines: r.lines, texts: r.texts, root: r.root, joined: r.joined}
	return set, lint(file, set, r), nil
}

// Lint is the function Lint for a file that was merged from several, so that its warnings have no lines.
func (file *File) Lint(opts ...Option) (warnings []Problem, err error) {
	set, err := compile(file, newOptions(opts))
	if err != nil {
		return nil, err
	}
	return lint(file, set, &report{file: file.Name}), nil
}

// A linter finds valid rules that make no sense.
type linter struct {
	*report
	file *File
	set  *Set
}

func lint(file *File, set *Set, r *report) []Problem {
	l := &linter{report: r, file: file.expanded(), set: set}
	l.body(-1, l.file.Response.Body)
	l.table(at(-1, "allow"), l.file.Allow, l.set.lists.deny)
	l.table(at(-1, "deny"), l.file.Deny)
	for i, rule := range l.set.rules {
		s := &l.file.Rules[i]
		l.body(i, s.Response.Body)
		l.path(i, s.Match.Path)
		l.never(i, s, rule)
		l.table(at(i, "allow"), s.Allow, rule.lists.deny, l.set.lists.deny)
		l.table(at(i, "deny"), s.Deny, l.set.lists.deny, l.set.lists.allow)
		l.limits(at(i, "limit"), rule)
		l.quotas(at(i, "limit"), rule)
		l.overrides(i, s, rule)
		l.ban(i, rule)
		l.reserve(i, s, rule)
		l.fair(i, s, rule)
		l.candidate(i, rule)
	}
	_, without := l.file.overlaid(nil)
	for _, one := range without {
		l.add(at(-1, fmt.Sprintf("overlay[%d]", one.element)), "overlay[%d] has no effect: %s", one.element, one.why)
	}
	l.services()
	l.redundant()
	l.outranked()
	l.unnamed()
	l.slashes()
	if _, everywhere, _ := l.set.Filtered(); everywhere > manyEverywhere {
		l.add(at(-1, "rules"), "%d rules with regex, any or not have no other condition, so that they are evaluated "+
			"one by one for every request: give them a path or a host", everywhere)
	}
	l.sort()
	return l.problems
}

// services warns of services that get no requests.
func (l *linter) services() {
	for j, s := range l.set.services {
		if !slices.ContainsFunc(l.set.routing.routes, func(r *Route) bool { return r.Service == s }) {
			l.add(at(-1, fmt.Sprintf("services[%d].name", j)), "no route is to service %q, so it gets no requests; "+
				"add one to routes, or remove the service", s.Name)
		}
		l.chosen(at(-1, fmt.Sprintf("services[%d].concurrency.reserve", j)), s.reserve,
			&l.file.Services[j].Concurrency.Reserve)
	}
}

// manyEverywhere is the number of rules that every request may evaluate without a warning: each takes 0.1 to 1 µs.
const manyEverywhere = 100

// body warns of a body that is nearly one of the two known words.
func (l *linter) body(i int, text string) {
	if text == "" || text == "problem" || text == "json" || strings.ContainsAny(text, "{ \n") {
		return
	}
	if meant := nearest.Of(text, []string{"problem", "json"}); meant != "" {
		l.add(at(i, "response.body"), "body is the text %q, word for word; did you mean %s?", text, meant)
	}
}

// path warns of segments that front ends refuse by default.
func (l *linter) path(i int, pattern string) {
	for segment := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		if strings.ContainsAny(string(appendUnescaped(nil, segment)), "/\\\x00") {
			l.add(at(i, "match.path"), "segment %.80q never occurs: encoded slashes, backslashes and NUL are refused "+
				"before, unless path_form allows them", segment)
		}
	}
}

// slashes warns of paths that probably should match more: /api/ for all below it, and /login for /login/,
// which many servers treat alike.
func (l *linter) slashes() {
	if l.set.form.DropTrailingSlash {
		return
	}
	patterns := make(map[string]bool)
	for i := range l.file.Rules {
		patterns[l.file.Rules[i].Match.Path] = true
	}
	var bare []int // rules whose path has no final slash
	for i := range l.file.Rules {
		path := l.file.Rules[i].Match.Path
		above, below := strings.CutSuffix(path, "/")
		switch {
		case path == "" || path == "/" || strings.HasSuffix(path, "/**"):
		case below && !patterns[path+"**"] && !patterns[above]:
			l.add(at(i, "match.path"), "path %s is only that very path; write %s** for all below it, or path_form: "+
				"drop-trailing-slash in the file if your service takes %s for the same", path, path, above)
		case !below && !patterns[path+"/"] && !patterns[path+"/**"]:
			bare = append(bare, i)
		}
	}
	if len(bare) == 0 || len(l.file.FormOfPaths()) > 0 {
		return
	}
	path, more := l.file.Rules[bare[0]].Match.Path, ""
	if len(bare) > 1 {
		more = fmt.Sprintf(" (likewise for %d more)", len(bare)-1)
	}
	l.add(at(bare[0], "match.path"), "%s/ is not limited by this rule%s: if your service takes it for %s, write "+
		"path_form: drop-trailing-slash in the section server; if not, path_form: strict", path, more, path)
}

// never warns of rules that apply to no request, because lists that take precedence name all their requests, or their
// own match excludes them.
func (l *linter) never(i int, s *Spec, rule *Rule) {
	b := &builder{report: &report{}, attributes: make(map[attribute]bool)}
	conditions := b.conditions(at(i, "match"), &s.Match)
	hosts := b.hosts(at(i, "match.host"), s.Match.Host)
	if len(hosts) > 0 && !strings.Contains(strings.Join(hosts, ""), "*") {
		conditions = append(conditions, condition{kind: sourceHost, values: hosts})
	}
	for _, c := range conditions {
		switch {
		case l.covered(&c, l.set.lists.deny, l.set.lists.allow):
			l.add(at(i, "match"), "the rule never applies: the file's allow and deny name all that it matches")
		case l.covered(&c, rule.lists.allow):
			l.add(at(i, "match"), "the rule never applies: its own allow names all that it matches")
		default:
			continue
		}
		return
	}
	switch m := &s.Match; {
	case slices.ContainsFunc(m.Not, func(one Match) bool { return one.Covers(m) }):
		l.add(at(i, "match"), "the rule never applies: its not names all that it matches")
	case len(m.Any) > 0 && !slices.ContainsFunc(m.Any, func(one Match) bool { return !disjoint(&one, m) }):
		l.add(at(i, "match"), "the rule never applies: no alternative of any goes with its other conditions")
	}
}

// disjoint reports whether surely no request meets both matches, because they name different values.
func disjoint(a, b *Match) bool {
	apart := func(x, y []string) bool {
		return len(x) > 0 && len(y) > 0 && !slices.Contains(x, "*") && !slices.Contains(y, "*") &&
			!slices.ContainsFunc(x, func(value string) bool { return slices.Contains(y, value) })
	}
	gets := func(m *Match) bool { return slices.Contains(m.Method, methodGet) } // matches HEAD too
	return apart(a.Method, b.Method) && !gets(a) && !gets(b) || apart(a.Service, b.Service) ||
		apart(a.User, b.User) || apart(a.Route, b.Route)
}

// covered reports whether lists name every value that meets the condition.
func (l *linter) covered(c *condition, lists ...[]listEntry) bool {
	patterns := make([]pattern, 0, len(c.values)+len(c.networks)+1)
	for _, value := range c.values {
		patterns = append(patterns, pattern{text: value})
	}
	if c.kind == sourceMethod && slices.Contains(c.values, methodGet) { // GET matches HEAD too
		patterns = append(patterns, pattern{text: methodHead})
	}
	for _, network := range c.networks {
		patterns = append(patterns, pattern{network: network})
	}
	if len(patterns) == 0 {
		patterns = append(patterns, pattern{wild: true})
	}
	return !slices.ContainsFunc(patterns, func(p pattern) bool {
		for _, list := range lists {
			for j := range list {
				if list[j].component.source == c.kind && list[j].component.name == c.name && list[j].covers(p, true) {
					return false
				}
			}
		}
		return true
	})
}

// covers reports whether the entry names all values of the pattern. A raw pattern is not normalised yet.
func (l *listEntry) covers(p pattern, raw bool) bool {
	if l.any {
		return true
	}
	if p.network.IsValid() {
		return l.networks.covers(p.network)
	}
	text := p.text
	if raw && !p.wild {
		text = string(l.component.normalise([]byte(text), 0))
	}
	return l.begins(text) || !p.wild && l.exact[text]
}

func (n *networks[T]) covers(network netip.Prefix) bool {
	i := n.find(network.Addr())
	for i >= 0 && n.list[i].prefix.Bits() > network.Bits() {
		i = n.list[i].parent
	}
	return i >= 0
}

// table warns of values of a list that never occur, and of values that a list with precedence names already.
func (l *linter) table(p place, table map[string][]string, before ...[]listEntry) {
	for _, text := range slices.Sorted(maps.Keys(table)) {
		c, _ := parseListed(text, l.pathOf(p.rule), p.rule >= 0)
		c.inForm(l.set)
		for j, value := range table[text] {
			item := place{p.rule, p.field + "." + text, j}
			v, _ := parsePatternOf(&c, value)
			if complaint := neverOccurs(&c, &v); complaint != "" {
				l.add(item, "%.80q matches nothing: %s", value, complaint)
			}
			for _, list := range before {
				if k := slices.IndexFunc(list, func(other listEntry) bool { return other.component == c }); k >= 0 &&
					list[k].covers(v, false) {
					l.add(item, "%.80q has no effect here: a list that goes before it names it already", value)
					break
				}
			}
		}
	}
}

func (l *linter) pathOf(i int) string {
	if i < 0 {
		return ""
	}
	return l.file.Rules[i].Match.Path
}

// neverOccurs says why no value of the component fits the pattern; "" if some may.
func neverOccurs(c *component, p *pattern) string {
	if p.network.IsValid() || p.any() {
		return ""
	}
	if c.source == sourceConstant && !p.wild && p.text != c.name {
		return fmt.Sprintf("the component is always %q", c.name)
	}
	text := p.text
	if p.wild { // the end of a prefix is not the end of a value
		text = strings.TrimRight(text, " \t")
	}
	normal := string(c.normalise([]byte(text), 0))
	if c.source == sourceHost {
		normal = string(appendFolded(nil, normal))
	}
	if normal == text {
		return ""
	}
	return fmt.Sprintf("values are normalised first; did you mean %q?", normal)
}

// limits warns of limits that another limit of the rule makes useless.
func (l *linter) limits(p place, rule *Rule) {
	for j, limit := range rule.limits {
		for k, other := range rule.limits {
			if j != k && other.Within(limit) && (k < j || !limit.Within(other)) {
				l.add(place{p.rule, p.field, j}, "%s never decides: %s always refuses first", limit, other)
				break
			}
		}
	}
}

// longQuota is the shortest period of a token bucket that was probably meant as a quota.
const longQuota = time.Hour

// quotas warns of token buckets beside limits of shorter periods: the author probably meant "at most N in an hour", but
// a bucket grants nearly twice as many.
func (l *linter) quotas(p place, rule *Rule) {
	for j, limit := range rule.limits {
		bucket, ok := limit.Spec().(weir.TokenBucket)
		if !ok || bucket.Period < longQuota || bucket.Capacity != bucket.Refill || bucket.Overdraft > 0 {
			continue
		}
		shorter := func(other *weir.Limit) bool {
			period := time.Duration(other.Period()) * time.Microsecond
			return !other.Leases() && period > 0 && period < bucket.Period
		}
		if slices.ContainsFunc(rule.limits, shorter) {
			l.add(place{p.rule, p.field, j}, "%s is a token bucket, which grants up to %d in any %s; for at most %d "+
				"write algorithm: sliding_log, or sliding_log before the limit",
				limit, limit.MostIn(bucket.Period), timewords.Plain(bucket.Period), bucket.Capacity)
		}
	}
}

func (l *linter) overrides(i int, s *Spec, rule *Rule) {
	for j := range s.Overrides {
		p := at(i, fmt.Sprintf("overrides[%d].key", j))
		for k, text := range s.Overrides[j].Key {
			v, _ := parsePatternOf(&rule.components[k], text)
			if complaint := neverOccurs(&rule.components[k], &v); complaint != "" {
				l.add(place{p.rule, p.field, k}, "the override never applies: no request has %.80q here; %s", text,
					complaint)
			}
		}
		// With wildcards, an override may restore the rule's own limits.
		if len(rule.overrides.wild) == 0 && slices.Equal(s.Overrides[j].Limit, s.Limit) {
			l.add(p, "the override changes nothing: its limits are the rule's")
		}
	}
}

// useless reports whether rule k has, for each limit of rule i, one that refuses first. Of two equal rules the
// later one is useless.
func (l *linter) useless(i, k int) bool {
	a, b := l.set.rules[k], l.set.rules[i]
	return refuses(a, b) && (k < i || !refuses(b, a))
}

func refuses(a, b *Rule) bool {
	for _, limit := range b.limits {
		if !slices.ContainsFunc(a.limits, func(stricter *weir.Limit) bool { return stricter.Within(limit) }) {
			return false
		}
	}
	return true
}

// requests is equal for matches of the same requests.
func requests(match *Match) string {
	m := *match
	m.Method, m.Host, m.Client = sorted(m.Method), sorted(m.Host), sorted(m.Client)
	m.Country, m.ASN = sorted(m.Country), sorted(m.ASN)
	m.Service, m.User, m.Route = sorted(m.Service), sorted(m.User), sorted(m.Route)
	return fmt.Sprintf("%q", fmt.Sprint(m))
}

// outranked warns of rules of a group that never apply because an earlier one matches the same requests.
func (l *linter) outranked() {
	first := make(map[string]*Rule)
	for i, rule := range l.set.rules {
		if rule.group == 0 || rule.disabled {
			continue
		}
		same := fmt.Sprint(rule.group, requests(&l.file.Rules[i].Match))
		if best := first[same]; best != nil {
			l.add(at(i, "group"), "the rule never applies: rules[%d] (%s) of its group matches the same requests, "+
				"and comes first", best.index, best.name)
			continue
		}
		first[same] = rule
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
