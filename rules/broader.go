package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir"
)

// mostBroad bounds the rules that each other rule is compared with, so that no file makes this slow.
const mostBroad = 32

// broader warns of rules that never decide because another rule covers all their requests and more, has their
// key or a part of it, and is stricter.
func (l *linter) broader() {
	alike := make(map[string][]int)
	for i, rule := range l.set.rules {
		s := &l.file.Rules[i]
		if rule.mode != Enforce || rule.percent < 100 || rule.bans != nil || rule.group != 0 || len(s.Overrides) > 0 {
			continue
		}
		same := fmt.Sprintf("%q %+v %q %q", fmt.Sprint(s.Schedule, s.Allow, s.Deny), rule.cost, rule.onMissing,
			rule.onStoreError)
		alike[same] = append(alike[same], i)
	}
	for _, list := range alike {
		broad := slices.Clone(list)
		slices.SortStableFunc(broad, func(i, k int) int {
			a, b := l.set.rules[i], l.set.rules[k]
			return cmp.Or(cmp.Compare(len(a.components), len(b.components)), cmp.Compare(a.rank, b.rank))
		})
		broad = broad[:min(len(broad), mostBroad)]
		for n, i := range list {
			l.pause(n, rulesLinted)
			for _, k := range broad {
				if l.within(i, k) {
					l.add(at(i, "name"), "the rule never decides: rules[%d] (%s) counts its requests and others, and "+
						"always refuses first", k, l.set.rules[k].name)
					break
				}
			}
		}
	}
}

// within reports whether rule k is for all requests of rule i and more, and refuses first.
func (l *linter) within(i, k int) bool {
	narrow, broad := &l.file.Rules[i], &l.file.Rules[k]
	if i == k || !covers(&broad.Match, &narrow.Match) {
		return false
	}
	if requests(&broad.Match) == requests(&narrow.Match) && slices.Equal(broad.Key, narrow.Key) {
		return false // see duplicates
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
	if i < k && slices.Equal(broad.Key, narrow.Key) && covers(&narrow.Match, &broad.Match) && refuses(one, other) {
		return false // of two equal rules the later one never decides
	}
	return refuses(other, one)
}

// anchored reports whether charges of other requests may leave more room later, because a limit's window
// opens, or its bucket fills, at a time that depends on its first charge.
func anchored(limit *weir.Limit) bool {
	switch spec := limit.Spec().(type) {
	case weir.FixedWindow:
		return spec.Anchor == weir.First
	case weir.TokenBucket:
		return spec.Mode == weir.Step
	}
	return false
}

// covers reports whether every request that meets match b also meets a.
func covers(a, b *Match) bool {
	for _, pair := range [][2][]string{{a.Method, b.Method}, {a.Host, b.Host}, {a.Client, b.Client},
		{a.Service, b.Service}, {a.User, b.User}, {a.Route, b.Route}} {
		if !allOf(pair[0], pair[1]) {
			return false
		}
	}
	for _, pair := range [][2]map[string][]string{{a.Header, b.Header}, {a.Query, b.Query},
		{a.Descriptor, b.Descriptor}} {
		for name, values := range pair[0] {
			if !allOf(values, pair[1][name]) {
				return false
			}
		}
	}
	above, deep := strings.CutSuffix(a.Path, "/**")
	return a.Path == "" || a.Path == b.Path || deep && (b.Path == above || strings.HasPrefix(b.Path, above+"/"))
}

// allOf reports whether wide includes all values; an empty condition includes every value.
func allOf(wide, values []string) bool {
	if len(wide) == 0 {
		return true
	}
	if slices.Equal(wide, []string{"*"}) {
		return len(values) > 0
	}
	return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(wide, v) })
}
