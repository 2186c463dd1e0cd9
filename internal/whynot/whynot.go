// Package whynot says why a rule does not match a request.
package whynot

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

// Rule says why a rule of the file does not match, if that may surprise: its path matches, or another rule of its group
// matches better. It is nil for other rules. Each condition is tried by itself by the matcher of the server, so that
// the reasons cannot differ from real decisions.
func Rule(file *rules.File, i int, matched []*rules.Rule, r *rules.Request) (why []string) {
	spec := &file.Rules[i]
	if slices.ContainsFunc(matched, func(rule *rules.Rule) bool { return rule.Index() == i }) ||
		!mayBeAt(spec.Match.Path, r.Path) {
		return nil
	}
	if !spec.IsEnabled() {
		if Meets(file.PathForm, spec.Match, r) {
			return []string{"it is disabled, and would match"}
		}
		return nil
	}
	for _, rule := range matched {
		if spec.Group != "" && file.Rules[rule.Index()].Group == spec.Group && Meets(file.PathForm, spec.Match, r) {
			return []string{fmt.Sprintf("in group %s, %s matches better", spec.Group, rule.Name())}
		}
	}
	if spec.Match.Path == "" {
		return nil
	}
	if !Meets(file.PathForm, rules.Match{Path: spec.Match.Path}, r) {
		return spelled(file.PathForm, spec.Match, r)
	}
	return unmet(spec.Match, r)
}

// mayBeAt reports whether the pattern may match the path in some form, by the first segment of both: of many rules few
// are worth compiling their conditions.
func mayBeAt(pattern, path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
	sent, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return strings.ContainsAny(first, "*{%") || strings.ContainsAny(sent, "%;") || pattern == "" ||
		strings.EqualFold(first, sent)
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
		if other.Path, err = f.Path(r.Path); err == nil && Meets(wider, match, &other) {
			return []string{fmt.Sprintf("path is %s, not %s; they are equal with path_form: %s", r.Path, match.Path,
				word)}
		}
	}
	return nil
}

// Meets reports whether the request meets the match.
func Meets(form []string, match rules.Match, r *rules.Request) bool {
	spec := rules.Spec{Name: "rule", Match: match, Limit: []string{"1/1s"}}
	set, err := rules.Compile(&rules.File{PathForm: form, Rules: []rules.Spec{spec}})
	return err == nil && len(set.Match(r, nil)) > 0
}

// unmet describes the conditions that the request does not meet.
func unmet(m rules.Match, r *rules.Request) (why []string) {
	for _, c := range Conditions(m) {
		if c.Match.Path == "" && !Meets(nil, c.Match, r) {
			why = append(why, c.unmet(r))
		}
	}
	return why
}

// A Condition is one part of a match.
type Condition struct {
	Name  string // such as method, or header x-tenant
	Want  string // the values, in words
	Match rules.Match
	unmet func(r *rules.Request) string
}

// Conditions are the parts of a match, each of which a request must meet.
func Conditions(m rules.Match) (list []Condition) {
	add := func(is bool, name, want string, match rules.Match, unmet func(r *rules.Request) string) {
		if is {
			list = append(list, Condition{name, want, match, unmet})
		}
	}
	values := func(name string, want []string, match rules.Match, value func(r *rules.Request) string) {
		add(len(want) > 0, name, wanted(want), match, func(r *rules.Request) string {
			return fmt.Sprintf("%s is %s, not %s", name, value(r), wanted(want))
		})
	}
	always := func(text string) func(*rules.Request) string { return func(*rules.Request) string { return text } }
	add(m.Path != "", "path", m.Path, rules.Match{Path: m.Path}, nil)
	values("method", m.Method, rules.Match{Method: m.Method}, func(r *rules.Request) string { return shown(r.Method) })
	values("host", m.Host, rules.Match{Host: m.Host}, func(r *rules.Request) string { return shown(r.Host) })
	add(len(m.Client) > 0, "client", wanted(m.Client), rules.Match{Client: m.Client}, func(r *rules.Request) string {
		return fmt.Sprintf("client is %s, not in %s", r.Client, wanted(m.Client))
	})
	values("country", m.Country, rules.Match{Country: m.Country},
		func(r *rules.Request) string { return cmp.Or(r.Country, "not known") })
	values("autonomous system", m.ASN, rules.Match{ASN: m.ASN},
		func(r *rules.Request) string { return numbered(r.ASN) })
	values("service", m.Service, rules.Match{Service: m.Service},
		func(r *rules.Request) string { return shown(r.Service) })
	values("user", m.User, rules.Match{User: m.User}, func(r *rules.Request) string { return shown(r.User) })
	values("route", m.Route, rules.Match{Route: m.Route}, func(r *rules.Request) string { return shown(r.Route) })
	add(len(m.DescriptorKeys) > 0, "descriptors", strings.Join(m.DescriptorKeys, ", "),
		rules.Match{DescriptorKeys: m.DescriptorKeys}, func(r *rules.Request) string {
			return fmt.Sprintf("descriptors are %s, not %s", shown(strings.Join(r.DescriptorKeys, ", ")),
				strings.Join(m.DescriptorKeys, ", "))
		})
	expressions := len(m.Regex.Path) + len(m.Regex.Header) + len(m.Regex.Descriptor)
	add(expressions > 0, "regex", "an expression", rules.Match{Regex: m.Regex},
		always("an expression of regex does not match"))
	add(len(m.Any) > 0, "any", "an alternative", rules.Match{Any: m.Any}, always("no alternative of any is met"))
	add(len(m.Not) > 0, "not", "no alternative", rules.Match{Not: m.Not}, always("an alternative of not is met"))
	type table = map[string][]string
	for _, kind := range []struct {
		name  string
		table table
		match func(table) rules.Match
		value func(rules.Attributes, string) string
	}{
		{"header", m.Header, func(t table) rules.Match { return rules.Match{Header: t} }, rules.Attributes.Header},
		{"query", m.Query, func(t table) rules.Match { return rules.Match{Query: t} }, rules.Attributes.Query},
		{"descriptor", m.Descriptor, func(t table) rules.Match { return rules.Match{Descriptor: t} },
			rules.Attributes.Descriptor},
	} {
		for _, name := range slices.Sorted(maps.Keys(kind.table)) {
			want := kind.table[name]
			values(kind.name+" "+name, want, kind.match(table{name: want}),
				func(r *rules.Request) string { return shown(kind.value(r.Attributes, name)) })
		}
	}
	return list
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
