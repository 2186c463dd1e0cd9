package rules

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// A Class is requests of one importance: they leave a part of each limit of their rule to more important ones.
type Class struct {
	Name  string // the value of reserve.by
	Share int64  // percent of the limit that the class leaves to others, 0 to 99
}

// Floor is the units of a limit that the class leaves to others: its share of the most that the limit holds, rounded
// up. Without a class it is 0.
func (c *Class) Floor(l *weir.Limit) int64 {
	if c == nil {
		return 0
	}
	return (l.Most()*c.Share + 99) / 100
}

// A reserve is a checked Reserve.
type reserve struct {
	by        *component // nil: no class is named by a value
	classes   []Class    // by share, then by name
	matches   []*Set     // by class; nil: the value names the class
	values    map[string]*Class
	otherwise *Class // of any other request
	steps     int    // of the expressions that one request is matched with, at most
}

// Classes are the classes of the rule's requests, the most important first; empty without reserve. Do not change the
// slice.
func (r *Rule) Classes() []Class {
	if r.reserve == nil {
		return nil
	}
	return r.reserve.classes
}

// ClassOf is the class of a request; nil if the rule has no classes.
func (r *Rule) ClassOf(request *Request) *Class {
	if r.reserve == nil {
		return nil
	}
	return r.reserve.of(request)
}

// of returns the class of a request: the most important class with a match that it meets, else the class that its value
// names.
func (r *reserve) of(request *Request) *Class {
	for i, set := range r.matches {
		if set != nil && set.some(request) {
			return &r.classes[i]
		}
	}
	if r.by == nil {
		return r.otherwise
	}
	var buffer [bounds.Text]byte
	if class := r.values[r.by.text(buffer[:0], request)]; class != nil {
		return class
	}
	return r.otherwise
}

// reserve checks reserve of a rule; nil without it.
func (b *builder) reserve(i int, s *Spec) *reserve {
	r := b.classes(at(i, "reserve"), &s.Reserve, s.Match.Path)
	if r != nil && !s.limited() {
		b.add(at(i, "reserve"), "reserve is a part of a limit, and the rule has none")
	}
	return r
}

// classes checks the classes of a rule or a service; nil without them. path is the pattern of the rule's paths.
func (b *builder) classes(p place, given *Reserve, path string) *reserve {
	in := func(field string) place { return at(p.rule, p.field+"."+field) }
	if given.By == "" && len(given.Classes)+len(given.Match) == 0 && given.Otherwise == "" {
		return nil
	}
	r := &reserve{values: make(map[string]*Class)}
	if given.By == "" && len(given.Match) == 0 && !b.has(in("by")) && !b.has(in("match")) {
		b.add(in("by"), "reserve.by is missing: the component that names the class, such as by: user; or give match, "+
			"the conditions of each class")
	}
	if given.By != "" {
		if list := b.key(in("by"), []string{given.By}, path); len(list) == 1 {
			r.by = &list[0]
		}
	}
	if len(given.Classes) == 0 && !b.has(in("classes")) {
		b.add(in("classes"), "reserve.classes is missing: the classes, each with the part of the limit that it leaves "+
			"to others, such as classes: {critical: 0%%, batch: 50%%}")
	}
	b.count(in("classes"), len(given.Classes), bounds.Classes)
	for _, name := range slices.Sorted(maps.Keys(given.Classes)) {
		share, ok := wholePercent(given.Classes[name])
		if !ok {
			b.add(in("classes."+name), "reserve.classes.%s is %.80q; allowed: 0%% to 99%%, in whole numbers", name,
				given.Classes[name])
		}
		r.classes = append(r.classes, Class{name, share})
	}
	slices.SortStableFunc(r.classes, func(a, b Class) int { return cmp.Compare(a.Share, b.Share) })
	b.otherwise(in("otherwise"), given, r)
	b.classMatches(in, given, r)
	return r
}

// classMatches checks the matches of the classes.
func (b *builder) classMatches(in func(string) place, given *Reserve, r *reserve) {
	for _, name := range slices.Sorted(maps.Keys(given.Match)) {
		if _, is := given.Classes[name]; !is && len(given.Classes) > 0 {
			b.add(in("match."+name), "reserve.match.%s names no class; %s", name,
				oneOf(name, slices.Sorted(maps.Keys(given.Classes))))
		}
	}
	r.matches = make([]*Set, len(r.classes))
	for i, class := range r.classes {
		p, list := in("match."+class.Name), given.Match[class.Name]
		if len(list) == 0 && given.By == "" && len(given.Match) > 0 && &r.classes[i] != r.otherwise {
			b.add(in("classes."+class.Name), "no request is of class %s: give it a match, or write reserve.by",
				class.Name)
		}
		if slices.ContainsFunc(list, func(m Match) bool { return m.asksMCP() }) {
			b.add(p, "reserve.match.%s has mcp; take by: mcp.tool", class.Name)
		}
		before := b.programs
		r.matches[i] = b.alternatives(p, list, true)
		r.steps += b.programs - before
	}
	b.set.filtered = b.set.filtered || r.steps > 0
}

// otherwise indexes the classes, and finds the one of other requests: by default the least important.
func (b *builder) otherwise(p place, given *Reserve, r *reserve) {
	for i := range r.classes {
		r.values[r.classes[i].Name] = &r.classes[i]
		r.otherwise = &r.classes[i]
	}
	if given.Otherwise == "" {
		return
	}
	if r.otherwise = r.values[given.Otherwise]; r.otherwise == nil && len(given.Classes) > 0 {
		b.add(p, "reserve.otherwise is %.80q; %s", given.Otherwise, oneOf(given.Otherwise,
			slices.Sorted(maps.Keys(given.Classes))))
	}
}

// wholePercent reads 0% to 99%.
func wholePercent(text string) (n int64, ok bool) {
	digits, ok := strings.CutSuffix(text, "%")
	if n, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && n >= 0 && n < 100 &&
		strconv.FormatInt(n, 10) == digits {
		return n, true
	}
	return 0, false
}

// reserve warns of classes that clients choose, and of classes that are never granted.
func (l *linter) reserve(i int, s *Spec, rule *Rule) {
	if rule.reserve == nil {
		return
	}
	l.chosen(at(i, "reserve"), rule.reserve, &s.Reserve)
	for _, class := range rule.reserve.classes {
		for _, limit := range rule.limits {
			if floor := class.Floor(limit); floor > 0 && rule.Cost()+floor > limit.Most() && !rule.full {
				l.add(at(i, "reserve.classes."+class.Name), "requests of class %s are never granted: %d%% of %s is "+
					"%d, and a request costs %d", class.Name, class.Share, limit, floor, rule.Cost())
			}
		}
	}
}

// takeProven is the advice about a value that clients choose.
const takeProven = "let a proxy set it, and name your proxies in server.trusted_proxies, or take a value that is " +
	"proven, such as user, service or a descriptor"

// chosen warns of classes that clients can choose; r may be nil. Paths are no such condition: a client that sends
// another path gets another resource.
func (l *linter) chosen(p place, r *reserve, given *Reserve) {
	if r == nil || len(l.set.proxies) > 0 {
		return
	}
	if r.by != nil && r.by.source.chosen() {
		l.add(at(p.rule, p.field+".by"), "each client can choose its class, as it sends %s itself: "+takeProven,
			strings.TrimSuffix(r.by.label, "="))
	}
	for _, class := range r.classes[:len(r.classes)-1] {
		for _, m := range given.Match[class.Name] {
			if text := m.statedBy(); text != "" {
				l.add(at(p.rule, p.field+".match."+class.Name), "each client can choose its class, as it sends %s "+
					"itself: "+takeProven, text)
			}
		}
	}
}

// statedBy is a condition by which clients state a value; "" if the match has none.
func (m *Match) statedBy() string {
	for _, one := range []struct {
		source source
		table  map[string][]string
	}{{sourceHeader, m.Header}, {sourceHeader, m.Regex.Header}, {sourceQuery, m.Query}, {sourceJSON, m.JSON}} {
		for name := range sortedTable(one.table) {
			return one.source.String() + "." + name
		}
	}
	return ""
}

// chosen reports whether a client states the value of the source itself, without a proof.
func (s source) chosen() bool {
	switch s {
	case sourceHeader, sourceQuery, sourceCookie, sourceBody, sourceJSON:
		return true
	}
	return false
}
