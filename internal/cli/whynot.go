package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirproject/weir/rules"
)

// A miss is a rule whose path is the request's and that does not match all the same.
type miss struct {
	Rule string   `json:"rule"`
	Why  []string `json:"why"`
}

// mostMisses bounds what is told of them.
const mostMisses = 20

// misses are the rules that somebody may have expected. Each condition is tried by itself
// by the matcher that serves, so that what is said here cannot differ from what is done.
func misses(file *rules.File, matched []*rules.Rule, r *rules.Request) (list []miss, more int) {
	for i := range file.Rules {
		spec := &file.Rules[i]
		if slices.ContainsFunc(matched, func(rule *rules.Rule) bool { return rule.Index() == i }) ||
			spec.Match.Path == "" || !meets(rules.Match{Path: spec.Match.Path}, r) {
			continue
		}
		if len(list) == mostMisses {
			more++
			continue
		}
		list = append(list, miss{spec.Name, unmet(spec.Match, r)})
	}
	return list, more
}

// meets reports whether a match of its own would be met.
func meets(match rules.Match, r *rules.Request) bool {
	set, err := rules.Compile(&rules.File{Rules: []rules.Spec{{Name: "rule", Match: match, Limit: []string{"1/1s"}}}})
	return err == nil && len(set.Match(r, nil)) > 0
}

// unmet are the conditions that are not met, in words.
func unmet(m rules.Match, r *rules.Request) (why []string) {
	tell := func(part rules.Match, format string, values ...any) {
		if !meets(part, r) {
			why = append(why, fmt.Sprintf(format, values...))
		}
	}
	tell(rules.Match{Method: m.Method}, "method is %s, not %s", shown(r.Method), strings.Join(m.Method, " or "))
	tell(rules.Match{Host: m.Host}, "host is %s, not %s", shown(r.Host), strings.Join(m.Host, " or "))
	tell(rules.Match{Client: m.Client}, "client is %s, not in %s", r.Client, strings.Join(m.Client, " or "))
	for _, kind := range []struct {
		name  string
		table map[string][]string
		match func(map[string][]string) rules.Match
		value func(string) string
	}{
		{"header", m.Header, func(t map[string][]string) rules.Match { return rules.Match{Header: t} }, r.Attributes.Header},
		{"query", m.Query, func(t map[string][]string) rules.Match { return rules.Match{Query: t} }, r.Attributes.Query},
		{"descriptor", m.Descriptor, func(t map[string][]string) rules.Match { return rules.Match{Descriptor: t} }, r.Attributes.Descriptor},
	} {
		for _, name := range slices.Sorted(maps.Keys(kind.table)) {
			wanted := strings.Join(kind.table[name], " or ")
			if wanted == "*" {
				wanted = "any value"
			}
			tell(kind.match(map[string][]string{name: kind.table[name]}), "%s %s is %s, not %s", kind.name, name, shown(kind.value(name)), wanted)
		}
	}
	return why
}

// shown is a value, or that there is none.
func shown(value string) string {
	if value == "" {
		return "missing"
	}
	return value
}
