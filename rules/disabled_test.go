package rules_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestNoRequestMatchesADisabledRule: neither by the tree nor by a filter, and another rule of its group applies. The
// rule is in the set, with its limits.
func TestNoRequestMatchesADisabledRule(t *testing.T) {
	for _, match := range []string{"{}", "{path: /a}", "{regex: {path: /a.*}}", "{path: /a, any: [{method: GET}, {user: x}]}"} {
		text := func(enabled bool) string {
			return fmt.Sprintf("rules: [{name: wide, group: g, limit: 9/1s}, "+
				"{name: off, group: g, enabled: %t, limit: [1/1s, 2/1m], match: %s}]", enabled,
				strings.ReplaceAll(match, "{}", "{host: h}"))
		}
		request := &rules.Request{Host: "h", Method: "GET", Path: "/a"}
		set := compiled(t, text(false))
		got := set.Match(request, nil)
		if len(got) != 1 || got[0].Name() != "wide" {
			t.Errorf("%s: %d rules match", match, len(got))
		}
		if off := set.Rules()[1]; off.Enabled() || len(off.Limits()) != 2 || !set.Rules()[0].Enabled() {
			t.Errorf("%s: %s is enabled: %t", match, off.Name(), off.Enabled())
		}
		if got := compiled(t, text(true)).Match(request, nil); len(got) != 1 || got[0].Name() != "off" {
			t.Errorf("%s: the enabled rule does not match", match)
		}
	}
}

// TestADisabledRuleIsChecked: in full, like its exceptions; and its claims are not counted, nor does it make another
// rule useless.
func TestADisabledRuleIsChecked(t *testing.T) {
	if _, err := rules.Load("f", []byte("rules: [{name: off, enabled: false, limit: 1/x}]")); err == nil {
		t.Error("its limit is not checked")
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "\n- {name: off-%d, enabled: false, limit: [1/1s, 2/1m]}", i)
	}
	if set := compiled(t, "rules:"+many.String()); len(set.Match(&rules.Request{}, nil)) > 0 {
		t.Error("a disabled rule matches")
	}
	_, warnings, err := rules.Lint("f", []byte("rules: [{name: off, enabled: false, limit: 1/1s}, {name: on, limit: 9/1s}]"))
	if err != nil || len(warnings) > 0 {
		t.Error(warnings, err)
	}
	file, err := rules.Parse("f", []byte("rules: [{name: off, enabled: false, key: user, limit: 1/1s}]"))
	if err != nil {
		t.Fatal(err)
	}
	file.Exceptions = []rules.Exception{{ID: "1", Kind: rules.Blocked, Rule: "off", Component: "user", Values: []string{"ann"}}}
	if set, err := rules.Compile(file); err != nil || set.Unfit() != nil {
		t.Error("an exception of a disabled rule is refused:", err)
	}
}

// TestDescriptionsAndLabels are bounded, in files and in programs.
func TestDescriptionsAndLabels(t *testing.T) {
	long, name := strings.Repeat("x", 1024), strings.Repeat("n", 128)
	var full []string
	for i := range 16 {
		full = append(full, fmt.Sprintf("l%d: v", i))
	}
	for fields, want := range map[string]string{
		"description: " + long:                               "",
		"description: " + long + "x":                         "description has 1025 bytes; at most 1024",
		`description: "a\nb"`:                                "",
		`description: "a\tb"`:                                "without control characters other than newlines",
		"labels: {team: a.b, " + name + ": " + name + "}":    "",
		"labels: {" + name + "n: v}":                         "allowed in both: 1 to 128 of a-z A-Z 0-9 and . _ -",
		"labels: {team: a b}":                                "allowed in both: 1 to 128 of a-z A-Z 0-9 and . _ -",
		"labels: {}":                                         "labels is empty",
		"labels: {" + strings.Join(full, ", ") + "}":         "",
		"labels: {" + strings.Join(full, ", ") + ", l16: v}": "labels has 17 names; at most 16",
		"enabled: true":                                      "",
		"enabled: no":                                        `enabled is "no"; allowed: true or false, unquoted`,
		`enabled: "false"`:                                   "allowed: true or false, unquoted",
	} {
		_, err := rules.Load("f", []byte("rules:\n- {name: a, limit: 1/1s, "+fields+"}"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", fields, err)
		}
	}
	file, err := rules.Parse("f", []byte(`rules: [{name: a, limit: 1/1s, description: "a\nb", labels: {team: x, tier: "2"}, enabled: false}]`))
	if err != nil {
		t.Fatal(err)
	}
	spec := &file.Rules[0]
	if spec.Description != "a\nb" || !maps.Equal(spec.Labels, map[string]string{"team": "x", "tier": "2"}) || spec.IsEnabled() {
		t.Errorf("%+v", spec)
	}
}
