package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestServiceKindSetsTheFormOfPaths, unless the file states another.
func TestServiceKindSetsTheFormOfPaths(t *testing.T) {
	const rest = "\nrules: [{name: a, match: {path: /login}, limit: 5/1m}]"
	for text, want := range map[string]struct {
		form   string
		warned bool // that /login/ may be /login
	}{
		"service_kind: node":                              {"drop-trailing-slash,ignore-case", false},
		"service_kind: aspnet":                            {"drop-trailing-slash,ignore-case", false},
		"service_kind: go":                                {"strict", false},
		"service_kind: python":                            {"strict", false},
		"service_kind: php":                               {"strict", true},
		"service_kind: servlet":                           {"strict", true},
		"service_kind: node\nserver: {path_form: strict}": {"strict", false},
		"service_kind: servlet\nserver: {path_form: refuse-parameters}": {"refuse-parameters", false},
	} {
		set, warnings, err := rules.Lint("rules.yaml", []byte(text+rest))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := set.PathForm().String(); got != want.form {
			t.Errorf("%s: the form is %s, not %s", text, got, want.form)
		}
		if (len(warnings) > 0) != want.warned {
			t.Errorf("%s: %v", text, warnings)
		}
	}
	_, err := rules.Load("rules.yaml", []byte("service_kind: ruby"+rest))
	if err == nil || !strings.Contains(err.Error(), "php") {
		t.Errorf("of an unknown kind it says %v", err)
	}
}
