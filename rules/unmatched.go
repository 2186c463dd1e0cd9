package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/pathform"
)

// Unmatched says why rule i does not match the request, if that may surprise: its path matches, or the first entry of
// its descriptor_keys, or another rule of its group matches better. It is nil for other rules, and for rules in
// matched. Each condition is compiled and matched separately, so that the reasons cannot differ from real decisions. It
// is slow, and meant for explaining.
func (file *File) Unmatched(i int, matched []*Rule, r *Request) (why []string) {
	given := file.Rules[i].Expanded()
	spec := &given
	if slices.ContainsFunc(matched, func(rule *Rule) bool { return rule.Index() == i }) ||
		!mayBeAt(spec.Match.Path, r.Path) {
		return nil
	}
	if !spec.IsEnabled() {
		if spec.Match.Meets(file.PathForm, r) {
			return []string{"it is disabled, and would match"}
		}
		return nil
	}
	if len(spec.Match.DescriptorKeys) > 0 && spec.Match.Meets(file.PathForm, r) {
		return []string{"the descriptor is closer to " + file.described(matched)}
	}
	for _, rule := range matched {
		if spec.Group != "" && file.Rules[rule.Index()].Group == spec.Group && spec.Match.Meets(file.PathForm, r) {
			return []string{fmt.Sprintf("in group %s, %s matches better", spec.Group, rule.Name())}
		}
	}
	if spec.Match.Path == "" && spec.Match.beginsAs(r) {
		return spec.Match.unmet(r)
	}
	if spec.Match.Path == "" {
		return nil
	}
	if !(&Match{Path: spec.Match.Path}).Meets(file.PathForm, r) {
		return spec.Match.spelled(file.PathForm, r)
	}
	return spec.Match.unmet(r)
}

// described is the first matched rule with descriptor_keys, which displaces others.
func (file *File) described(matched []*Rule) string {
	for _, rule := range matched {
		if len(file.Rules[rule.Index()].Match.DescriptorKeys) > 0 {
			return rule.Name()
		}
	}
	return "another rule, which does not match either"
}

// beginsAs reports whether the match is about descriptors of the request's service that begin as the request's.
func (m *Match) beginsAs(r *Request) bool {
	return len(m.DescriptorKeys) > 0 && len(r.DescriptorKeys) > 0 && slices.Contains(m.Service, r.Service) &&
		(&Match{DescriptorKeys: m.DescriptorKeys[:1]}).Meets(nil, &Request{DescriptorKeys: r.DescriptorKeys[:1],
			DescriptorValues: r.DescriptorValues[:min(1, len(r.DescriptorValues))]})
}

// mayBeAt reports whether the pattern may match the path in some form, by the first segment of both: of many rules few
// are worth compiling their conditions.
func mayBeAt(pattern, path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
	sent, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return strings.ContainsAny(first, "*{%") || strings.ContainsAny(sent, "%;") || pattern == "" ||
		strings.EqualFold(first, sent)
}

// spelled names the path form that would let the rule match.
func (m *Match) spelled(form []string, r *Request) []string {
	for _, word := range []string{"drop-trailing-slash", "ignore-case"} {
		wider := append(slices.DeleteFunc(slices.Clone(form), func(w string) bool { return w == pathform.Strict }),
			word)
		f, err := pathform.Parse(wider)
		if err != nil {
			return nil
		}
		other := *r
		if other.Path, err = f.Path(r.Path); err == nil && m.Meets(wider, &other) {
			return []string{fmt.Sprintf("path is %s, not %s; they are equal with path_form: %s", r.Path, m.Path,
				word)}
		}
	}
	return nil
}

// Meets reports whether the request meets the match, of a file with a form of paths. It is slow, and meant for
// explaining.
func (m *Match) Meets(form []string, r *Request) bool {
	spec := Spec{Name: "rule", Match: *m, Limit: []string{"1/1s"}}
	if m.asksMCP() && m.Path == "" {
		spec.Match.Path = "/**" // a rule of a file must have a place
	}
	set, err := Compile(&File{Server: Server{PathForm: form}, Rules: []Spec{spec}})
	return err == nil && len(set.Match(r, nil)) > 0
}

// unmet describes the conditions that the request does not meet.
func (m *Match) unmet(r *Request) (why []string) {
	for _, c := range m.Conditions() {
		if c.Match.Path == "" && !c.Match.Meets(nil, r) {
			why = append(why, c.unmet(r))
		}
	}
	return why
}

// A Condition is one part of a match.
type Condition struct {
	Name  string // such as method, or header x-tenant
	Want  string // the values, in words
	Match Match
	unmet func(r *Request) string
}

// Conditions are the parts of a match. A request must meet each of them.
func (m *Match) Conditions() (list []Condition) {
	add := func(is bool, name, want string, match Match, unmet func(r *Request) string) {
		if is {
			list = append(list, Condition{name, want, match, unmet})
		}
	}
	values := func(name string, want []string, match Match, value func(r *Request) string) {
		add(len(want) > 0, name, wanted(want), match, func(r *Request) string {
			return fmt.Sprintf("%s is %s, not %s", name, value(r), wanted(want))
		})
	}
	always := func(text string) func(*Request) string { return func(*Request) string { return text } }
	add(m.Path != "", "path", m.Path, Match{Path: m.Path}, nil)
	values("method", m.Method, Match{Method: m.Method}, func(r *Request) string { return shown(r.Method) })
	values("host", m.Host, Match{Host: m.Host}, func(r *Request) string { return shown(r.Host) })
	add(len(m.Client) > 0, "client", wanted(m.Client), Match{Client: m.Client}, func(r *Request) string {
		return fmt.Sprintf("client is %s, not in %s", r.Client, wanted(m.Client))
	})
	values("country", m.Country, Match{Country: m.Country},
		func(r *Request) string { return cmp.Or(r.Country, "not known") })
	values("autonomous system", m.ASN, Match{ASN: m.ASN},
		func(r *Request) string { return numbered(r.ASN) })
	values("service", m.Service, Match{Service: m.Service},
		func(r *Request) string { return shown(r.Service) })
	values("user", m.User, Match{User: m.User}, func(r *Request) string { return shown(r.User) })
	values("route", m.Route, Match{Route: m.Route}, func(r *Request) string { return shown(r.Route) })
	for _, one := range mcpParts {
		values(one.source.String(), *one.of(&m.MCP), Match{MCP: one.alone(*one.of(&m.MCP))},
			func(r *Request) string { return shown(r.attribute(one.source, "")) })
	}
	add(len(m.DescriptorKeys) > 0, "descriptors", strings.Join(m.DescriptorKeys, ", "),
		Match{DescriptorKeys: m.DescriptorKeys}, func(r *Request) string {
			return fmt.Sprintf("descriptors are %s, not %s", shown(r.entries()), strings.Join(m.DescriptorKeys, ", "))
		})
	add(!reflect.ValueOf(m.Regex).IsZero(), "regex", "an expression", Match{Regex: m.Regex},
		always("an expression of regex does not match"))
	add(len(m.Any) > 0, "any", "an alternative", Match{Any: m.Any}, always("no alternative of any is met"))
	add(len(m.Not) > 0, "not", "no alternative", Match{Not: m.Not}, always("an alternative of not is met"))
	type table = map[string][]string
	for _, kind := range []struct {
		name  string
		table table
		match func(table) Match
		of    source
	}{
		{"header", m.Header, func(t table) Match { return Match{Header: t} }, sourceHeader},
		{"query", m.Query, func(t table) Match { return Match{Query: t} }, sourceQuery},
		{"json", m.JSON, func(t table) Match { return Match{JSON: t} }, sourceJSON},
		{"descriptor", m.Descriptor, func(t table) Match { return Match{Descriptor: t} }, sourceDescriptor},
	} {
		for _, name := range slices.Sorted(maps.Keys(kind.table)) {
			want := kind.table[name]
			values(kind.name+" "+name, want, kind.match(table{name: want}),
				func(r *Request) string { return shown(r.attribute(kind.of, name)) })
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
