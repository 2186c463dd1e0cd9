package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// A miss is a rule that may have been expected to apply, and does not.
type miss struct {
	Rule string   `json:"rule"`
	Why  []string `json:"why"`
}

// maxMisses bounds what is told of them.
const maxMisses = 20

// misses are the rules that somebody may have expected. Each condition is tried by itself
// by the matcher that serves, so that what is said here cannot differ from what is done.
func misses(file *rules.File, matched []*rules.Rule, r *rules.Request) (list []miss, more int) {
	for i := range file.Rules {
		if slices.ContainsFunc(matched, func(rule *rules.Rule) bool { return rule.Index() == i }) {
			continue
		}
		// Where a list of the file decides, rules are not even matched.
		why := missed(file, i, matched, r)
		switch {
		case len(why) == 0:
		case len(list) == maxMisses:
			more++
		default:
			list = append(list, miss{file.Rules[i].Name, why})
		}
	}
	return list, more
}

// missed says why a rule does not apply, if that may surprise: its path is the request's,
// or it matches and another of its group does better.
func missed(file *rules.File, i int, matched []*rules.Rule, r *rules.Request) (why []string) {
	spec := &file.Rules[i]
	for _, rule := range matched {
		if spec.Group != "" && file.Rules[rule.Index()].Group == spec.Group && meets(file.PathForm, spec.Match, r) {
			return []string{fmt.Sprintf("of the group %s, %s matches better", spec.Group, rule.Name())}
		}
	}
	if spec.Match.Path == "" {
		return nil
	}
	if !meets(file.PathForm, rules.Match{Path: spec.Match.Path}, r) {
		return spelled(file.PathForm, spec.Match, r)
	}
	return unmet(spec.Match, r)
}

// spelled says by which form of paths the rule would apply.
func spelled(form []string, match rules.Match, r *rules.Request) []string {
	for _, word := range []string{"drop-trailing-slash", "ignore-case"} {
		wider := append(slices.DeleteFunc(slices.Clone(form), func(w string) bool { return w == pathform.Strict }), word)
		f, err := pathform.Parse(wider)
		if err != nil {
			return nil
		}
		other := *r
		if other.Path, err = f.Path(r.Path); err == nil && meets(wider, match, &other) {
			return []string{fmt.Sprintf("path is %s, not %s; with path_form: %s they are one", r.Path, match.Path, word)}
		}
	}
	return nil
}

// meets reports whether a match of its own would be met.
func meets(form []string, match rules.Match, r *rules.Request) bool {
	set, err := rules.Compile(&rules.File{PathForm: form, Rules: []rules.Spec{{Name: "rule", Match: match, Limit: []string{"1/1s"}}}})
	return err == nil && len(set.Match(r, nil)) > 0
}

// unmet are the conditions that are not met, in words.
func unmet(m rules.Match, r *rules.Request) (why []string) {
	tell := func(part rules.Match, format string, values ...any) {
		if !meets(nil, part, r) {
			why = append(why, fmt.Sprintf(format, values...))
		}
	}
	tell(rules.Match{Method: m.Method}, "method is %s, not %s", shown(r.Method), wanted(m.Method))
	tell(rules.Match{Host: m.Host}, "host is %s, not %s", shown(r.Host), wanted(m.Host))
	tell(rules.Match{Client: m.Client}, "client is %s, not in %s", r.Client, wanted(m.Client))
	tell(rules.Match{Service: m.Service}, "service is %s, not %s", shown(r.Service), wanted(m.Service))
	tell(rules.Match{User: m.User}, "user is %s, not %s", shown(r.User), wanted(m.User))
	tell(rules.Match{Route: m.Route}, "route is %s, not %s", shown(r.Route), wanted(m.Route))
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
			tell(kind.match(map[string][]string{name: kind.table[name]}), "%s %s is %s, not %s", kind.name, name, shown(kind.value(name)), wanted(kind.table[name]))
		}
	}
	return why
}

// wanted are the values of a condition.
func wanted(values []string) string {
	if slices.Equal(values, []string{"*"}) {
		return "any value"
	}
	return strings.Join(values, " or ")
}

// shown is a value, or that there is none.
func shown(value string) string {
	if value == "" {
		return "missing"
	}
	return value
}
