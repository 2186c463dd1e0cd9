package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A telling is rules that tell the values of one attribute apart, such as a plan, and are alike otherwise.
type telling struct {
	of     string // the attribute
	first  int
	rules  int
	values []string
	others Match // of requests with any value
}

// unnamed warns of values that no rule names: a request with such a plan meets no rule, and is not limited.
func (l *linter) unnamed() {
	var list []*telling
	alike := make(map[string]*telling)
	for i, rule := range l.set.rules {
		if rule.disabled || rule.mode != Enforce || len(rule.components) == 0 {
			continue
		}
		for _, one := range l.tellings(i) {
			same := fmt.Sprintf("%s %s %q", one.of, requests(&one.others), l.file.Rules[i].Key)
			if alike[same] == nil {
				alike[same] = one
				list = append(list, one)
			}
			t := alike[same]
			t.rules, t.values = t.rules+1, append(t.values, one.values...)
		}
	}
	list = slices.DeleteFunc(list, func(t *telling) bool { return t.rules < 2 })
	for _, t := range list[:min(len(list), maxCompared)] {
		if !l.meets(&t.others) {
			slices.Sort(t.values)
			values := slices.Compact(t.values)
			l.add(at(t.first, "match"), "rules name the values %.200s of %s; a request with another value meets no "+
				"rule, and is not limited: add a rule without that condition to their group",
				strings.Join(values, ", "), t.of)
		}
	}
}

// tellings are the attributes that a rule names values of.
func (l *linter) tellings(i int) (list []*telling) {
	for _, table := range []struct {
		kind source
		in   func(*Match) *map[string][]string
	}{
		{sourceHeader, func(m *Match) *map[string][]string { return &m.Header }},
		{sourceQuery, func(m *Match) *map[string][]string { return &m.Query }},
		{sourceJSON, func(m *Match) *map[string][]string { return &m.JSON }},
		{sourceDescriptor, func(m *Match) *map[string][]string { return &m.Descriptor }},
	} {
		others := l.file.Rules[i].Match
		given := *table.in(&others)
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if slices.Contains(given[name], "*") {
				continue
			}
			changed, values := maps.Clone(given), given[name]
			delete(changed, name)
			if table.kind == sourceHeader {
				name = canonical(name)
			}
			changed[name] = []string{"*"}
			*table.in(&others) = changed
			of := table.kind.String() + "." + name
			list = append(list, &telling{of: of, first: i, values: values, others: others})
		}
	}
	return list
}

// meets reports whether an enforced rule is for all these requests.
func (l *linter) meets(requests *Match) bool {
	for k, rule := range l.set.rules {
		if !rule.disabled && rule.mode == Enforce && l.file.Rules[k].Match.Covers(requests) {
			return true
		}
	}
	return false
}
