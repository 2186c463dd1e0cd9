package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// A miss is a rule that may be expected to match, and does not.
type miss struct {
	Rule string   `json:"rule"`
	Why  []string `json:"why"`
}

// maxMisses is the most misses that are listed.
const maxMisses = 20

// misses are the rules that may be expected to match. Each condition is tried by itself by the
// matcher of the server, so that the reasons cannot differ from real decisions.
func misses(file *rules.File, matched []*rules.Rule, r *rules.Request) (list []miss, more int) {
	for i := range file.Rules {
		if slices.ContainsFunc(matched, func(rule *rules.Rule) bool { return rule.Index() == i }) {
			continue
		}
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

// missed is why a rule does not match, if that may surprise: its path matches, or another rule of its
// group matches better. It is nil for other rules.
func missed(file *rules.File, i int, matched []*rules.Rule, r *rules.Request) (why []string) {
	spec := &file.Rules[i]
	if !spec.IsEnabled() {
		if meets(file.PathForm, spec.Match, r) {
			return []string{"it is disabled, and would match"}
		}
		return nil
	}
	for _, rule := range matched {
		if spec.Group != "" && file.Rules[rule.Index()].Group == spec.Group && meets(file.PathForm, spec.Match, r) {
			return []string{fmt.Sprintf("in group %s, %s matches better", spec.Group, rule.Name())}
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

// spelled names the path form with which the rule would match.
func spelled(form []string, match rules.Match, r *rules.Request) []string {
	for _, word := range []string{"drop-trailing-slash", "ignore-case"} {
		wider := append(slices.DeleteFunc(slices.Clone(form), func(w string) bool { return w == pathform.Strict }),
			word)
		f, err := pathform.Parse(wider)
		if err != nil {
			return nil
		}
		other := *r
		if other.Path, err = f.Path(r.Path); err == nil && meets(wider, match, &other) {
			return []string{fmt.Sprintf("path is %s, not %s; they are equal with path_form: %s", r.Path, match.Path,
				word)}
		}
	}
	return nil
}

// meets reports whether the request meets the match.
func meets(form []string, match rules.Match, r *rules.Request) bool {
	spec := rules.Spec{Name: "rule", Match: match, Limit: []string{"1/1s"}}
	set, err := rules.Compile(&rules.File{PathForm: form, Rules: []rules.Spec{spec}})
	return err == nil && len(set.Match(r, nil)) > 0
}

// unmet describes the conditions that the request does not meet.
func unmet(m rules.Match, r *rules.Request) (why []string) {
	check := func(part rules.Match, format string, values ...any) {
		if !meets(nil, part, r) {
			why = append(why, fmt.Sprintf(format, values...))
		}
	}
	check(rules.Match{Method: m.Method}, "method is %s, not %s", shown(r.Method), wanted(m.Method))
	check(rules.Match{Host: m.Host}, "host is %s, not %s", shown(r.Host), wanted(m.Host))
	check(rules.Match{Client: m.Client}, "client is %s, not in %s", r.Client, wanted(m.Client))
	check(rules.Match{Country: m.Country}, "country is %s, not %s", cmp.Or(r.Country, "not known"), wanted(m.Country))
	check(rules.Match{ASN: m.ASN}, "autonomous system is %s, not %s", numbered(r.ASN), wanted(m.ASN))
	check(rules.Match{Service: m.Service}, "service is %s, not %s", shown(r.Service), wanted(m.Service))
	check(rules.Match{User: m.User}, "user is %s, not %s", shown(r.User), wanted(m.User))
	check(rules.Match{Route: m.Route}, "route is %s, not %s", shown(r.Route), wanted(m.Route))
	check(rules.Match{DescriptorKeys: m.DescriptorKeys}, "descriptors are %s, not %s",
		shown(strings.Join(r.DescriptorKeys, ", ")), strings.Join(m.DescriptorKeys, ", "))
	check(rules.Match{Regex: m.Regex}, "an expression of regex does not match")
	check(rules.Match{Any: m.Any}, "no alternative of any is met")
	check(rules.Match{Not: m.Not}, "an alternative of not is met")
	type table = map[string][]string
	for _, kind := range []struct {
		name  string
		table table
		match func(table) rules.Match
		value func(string) string
	}{
		{"header", m.Header, func(t table) rules.Match { return rules.Match{Header: t} }, r.Attributes.Header},
		{"query", m.Query, func(t table) rules.Match { return rules.Match{Query: t} }, r.Attributes.Query},
		{"descriptor", m.Descriptor, func(t table) rules.Match { return rules.Match{Descriptor: t} },
			r.Attributes.Descriptor},
	} {
		for _, name := range slices.Sorted(maps.Keys(kind.table)) {
			values := kind.table[name]
			check(kind.match(table{name: values}), "%s %s is %s, not %s",
				kind.name, name, shown(kind.value(name)), wanted(values))
		}
	}
	return why
}

// wanted is the values of a condition, in words.
func wanted(values []string) string {
	if slices.Equal(values, []string{"*"}) {
		return "any value"
	}
	return strings.Join(values, " or ")
}

// numbered is an autonomous system, in words.
func numbered(asn uint32) string {
	if asn == 0 {
		return "not known"
	}
	return strconv.FormatUint(uint64(asn), 10)
}

// shown is a value, or "missing".
func shown(value string) string {
	if value == "" {
		return "missing"
	}
	return value
}
