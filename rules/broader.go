package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weirproject/weir"
)

// maxCompared bounds the rules that each other rule is compared with, so that no file makes this slow.
const maxCompared = 32

// redundant warns of rules that never decide because a stricter rule counts all their requests, by their key or a
// part of it.
func (l *linter) redundant() {
	l.compare(l.likeness, l.within, "its requests and others")
	counted := func(i int) string {
		s := &l.file.Rules[i]
		return l.likeness(i) + fmt.Sprintf("%s%q %q", applies(s), requests(&s.Match), s.Key)
	}
	l.compare(counted, l.useless, "the same requests by the same key")
}

// compare warns of each rule i that has another rule k with an equal like and with less(i, k), so that k counts all
// that i counts. Rule k has no group: otherwise it might not apply.
func (l *linter) compare(like func(i int) string, less func(i, k int) bool, what string) {
	alike := make(map[string][]int)
	for i, rule := range l.set.rules {
		if !rule.disabled && rule.mode == Enforce && rule.percent == 100 && rule.bans == nil &&
			len(l.file.Rules[i].Overrides) == 0 && !rule.unlimited && rule.together.alone() {
			same := like(i)
			alike[same] = append(alike[same], i)
		}
	}
	for _, list := range alike {
		others := slices.DeleteFunc(slices.Clone(list), func(k int) bool { return l.set.rules[k].group != 0 })
		slices.SortStableFunc(others, func(i, k int) int {
			a, b := l.set.rules[i], l.set.rules[k]
			return cmp.Or(cmp.Compare(len(a.components), len(b.components)), cmp.Compare(a.rank, b.rank))
		})
		others = others[:min(len(others), maxCompared)]
		for _, i := range list {
			k := slices.IndexFunc(others, func(k int) bool { return i != k && less(i, k) })
			if k < 0 {
				continue
			}
			// Of two rules that refuse alike the first is named in the refusal.
			first := "never decides: rules[%d] (%s) counts %s, and always refuses first"
			if i < others[k] {
				first = "changes nothing: rules[%d] (%s) counts %s, and refuses whenever this rule does"
			}
			l.add(at(i, "name"), "the rule "+first, others[k], l.set.rules[others[k]].name, what)
		}
	}
}

// applies is equal for rules that, of the requests that both match, count and deny the same.
func applies(s *Spec) string { return fmt.Sprintf("%q", fmt.Sprint(s.Schedule, s.Allow, s.Deny)) }

// counts reports whether a rule counts all requests that another one counts, if it matches them, and denies all that
// the other denies.
func counts(broad, narrow *Spec) bool {
	alike := func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
	return (len(broad.Schedule) == 0 || alike(broad.Schedule, narrow.Schedule)) &&
		(len(broad.Allow) == 0 || alike(broad.Allow, narrow.Allow)) &&
		(len(narrow.Deny) == 0 || alike(broad.Deny, narrow.Deny))
}

// likeness is equal for rules that have the same costs, hold and give back units alike, and let a front end replace
// their limits alike.
func (l *linter) likeness(i int) string {
	s, rule := &l.file.Rules[i], l.set.rules[i]
	return fmt.Sprintf("%t %q %q %q %+v %t %q %q %t %d %v", rule.described, fmt.Sprint(s.CountIf), fmt.Sprint(s.Once),
		fmt.Sprint(s.Reserve, s.Fair), rule.cost, rule.full, rule.onMissing, rule.onStoreError, rule.holdUntilDone,
		rule.lease, rule.ceiling)
}

// within reports whether rule k is for all requests of rule i and more, and refuses first.
func (l *linter) within(i, k int) bool {
	narrow, broad := &l.file.Rules[i], &l.file.Rules[k]
	if l.set.rules[i].group != 0 || !broad.Match.Covers(&narrow.Match) || !counts(broad, narrow) {
		return false
	}
	alike := applies(broad) == applies(narrow)
	if alike && requests(&broad.Match) == requests(&narrow.Match) && slices.Equal(broad.Key, narrow.Key) {
		return false // see redundant
	}
	if l.set.rules[i].onMissing == Deny && len(narrow.Key) > len(broad.Key) {
		return false // it denies requests that lack what only its own key needs
	}
	for _, text := range broad.Key {
		if !slices.Contains(narrow.Key, text) || strings.HasPrefix(text, "path.") &&
			broad.Match.Path != narrow.Match.Path {
			return false
		}
	}
	for _, limit := range l.set.rules[k].limits {
		if anchored(limit) {
			return false
		}
	}
	one, other := l.set.rules[i], l.set.rules[k]
	if alike && i < k && slices.Equal(broad.Key, narrow.Key) && narrow.Match.Covers(&broad.Match) &&
		refuses(one, other) {
		return false // of two equal rules the later one never decides
	}
	return refuses(other, one)
}

// anchored reports whether charges of other requests may leave more room later, because a limit's window
// opens, or its bucket fills, at a time that depends on its first charge.
func anchored(limit *weir.Limit) bool {
	return limit.Step() || limit.Windowed() && limit.Anchor() == weir.First
}

// Covers reports whether surely every request that meets the other match meets this one.
func (m *Match) Covers(other *Match) bool {
	for _, c := range []struct {
		wide, values []string
		holds        func(wide, value string) bool
	}{
		{m.Method, other.Method, methodsOverlap},
		{m.Host, other.Host, hostCovers}, {m.Client, other.Client, clientCovers}, {m.Country, other.Country, equal},
		{m.ASN, other.ASN, equal}, {m.Service, other.Service, equal}, {m.User, other.User, equal},
		{m.Route, other.Route, equal}, {m.MCP.Method, other.MCP.Method, equal}, {m.MCP.Tool, other.MCP.Tool, equal},
	} {
		if !allOf(c.wide, c.values, c.holds) {
			return false
		}
	}
	named := func(wide, values map[string][]string) bool {
		for name := range wide {
			if !allOf(wide[name], values[name], equal) {
				return false
			}
		}
		return true
	}
	if !named(m.Query, other.Query) || !named(m.JSON, other.JSON) || !named(m.Descriptor, other.Descriptor) ||
		len(m.Header) > 0 && !named(union(m.Header, nil, canonical), union(other.Header, nil, canonical)) {
		return false
	}
	if len(m.DescriptorKeys) > 0 && !slices.Equal(m.DescriptorKeys, other.DescriptorKeys) {
		return false
	}
	filtered := len(m.Any)+len(m.Not) > 0 || !reflect.ValueOf(m.Regex).IsZero()
	if filtered && fmt.Sprint(m.Any, m.Not, m.Regex) != fmt.Sprint(other.Any, other.Not, other.Regex) {
		return false
	}
	return m.Path == "" || m.Path == other.Path || pathCovers(m.Path, other.Path)
}

func equal(wide, value string) bool { return wide == value }

func hostCovers(wide, host string) bool {
	return strings.EqualFold(wide, host) || hostsOverlap(strings.ToLower(host), strings.ToLower(wide))
}

// clientCovers reports whether a network includes another one, or an address.
func clientCovers(wide, value string) bool {
	a, complaint := parsePrefix(wide)
	b, also := parsePrefix(value)
	return complaint == "" && also == "" && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}

// pathCovers reports whether a pattern matches all paths that another one matches.
func pathCovers(wide, pattern string) bool {
	if pattern == "" {
		return wide == "/**"
	}
	var others []string
	for segment := range segments(pattern) {
		others = append(others, segment)
	}
	i := 0
	for segment := range segments(wide) {
		switch {
		case segment == "**":
			return true
		case i == len(others) || others[i] == "**":
			return false
		case segment == "*" || strings.HasPrefix(segment, "{"):
			if others[i] == "" {
				return false
			}
		case segment != others[i]:
			return false
		}
		i++
	}
	return i == len(others)
}

// allOf reports whether a condition holds for all values of another one; an empty condition includes every value.
func allOf(wide, values []string, holds func(wide, value string) bool) bool {
	if len(wide) == 0 {
		return true
	}
	if slices.Equal(wide, []string{"*"}) {
		return len(values) > 0
	}
	return len(values) > 0 && !slices.ContainsFunc(values, func(value string) bool {
		return !slices.ContainsFunc(wide, func(w string) bool { return holds(w, value) })
	})
}
