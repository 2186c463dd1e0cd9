package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestFairOfAProgramIsChecked: a file cannot state a negative number, but a Spec can.
func TestFairOfAProgramIsChecked(t *testing.T) {
	_, err := rules.Compile(&rules.File{Rules: []rules.Spec{{Name: "a", Limit: []string{"fixed_window 5/1m"},
		Fair: rules.Fair{By: []string{"user"}, MaxKeys: -1}}}})
	if err == nil || !strings.Contains(err.Error(), "fair.max_keys is -1; allowed: 1 to 10000") {
		t.Errorf("the error is %v", err)
	}
}
