package ruleimport_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// TestEnvoyRulesAreReadBack: what package ratelimitconf makes of a tree is the same after it was written as a file.
func TestEnvoyRulesAreReadBack(t *testing.T) {
	t.Parallel()
	result, yaml := imported(t, "envoy", `domain: site
descriptors:
  - key: plan=
    value: "f*"
    share_threshold: true
    descriptors:
      - key: user/id
        quota_mode: true
        metadata: {tier: {rank: 1}}
        rate_limit: {unit: month, requests_per_unit: 2, name: own, replaces: [{name: others}]}
      - {key: user/id, value: "7 8"}
  - {key: a, shadow_mode: true, rate_limit: {unit: week, unit_multiplier: 2, requests_per_unit: 1}}
  - {key: a, value: b, rate_limit: {unlimited: true}}
  - {key: a, value: c, rate_limit: {unit: day, requests_per_unit: 0}}
`)
	if len(result.Notes) > 0 {
		t.Errorf("%v", result.Notes)
	}
	replay := importtest.NewReplay(t, yaml)
	for _, tt := range []struct {
		entries []string
		passes  int
	}{
		{[]string{"plan=", "free", "user/id", "7"}, 2}, {[]string{"plan=", "fun", "user/id", "7"}, 0},
		{[]string{"plan=", "fun", "user/id", "7 8"}, 9}, {[]string{"a", "x"}, 9}, {[]string{"a", "b"}, 9}, {[]string{"a", "c"}, 0},
	} {
		r := &rules.Request{Service: "site"}
		for i := 0; i < len(tt.entries); i += 2 {
			r.DescriptorKeys, r.DescriptorValues = append(r.DescriptorKeys, tt.entries[i]), append(r.DescriptorValues, tt.entries[i+1])
		}
		n := 0
		for n < 9 && replay.Decide(t, 1_700_000_000_000_000, r).Outcome == gate.Passed {
			n++
		}
		if n != tt.passes {
			t.Errorf("%q passes %d times, want %d\n%s", tt.entries, n, tt.passes, yaml)
		}
	}
}

func TestEnvoyListsWhatHasNoEqual(t *testing.T) {
	t.Parallel()
	result, _ := imported(t, "envoy", `domain: site
descriptors:
  - key: a
    detailed_metric: true
    rate_limit: {unit: month, requests_per_unit: 1}
  - key: b
    unit: day
    descriptors:
      - {key: c, value_to_metric: true, rate_limit: {unit: second, requests_per_unit: 1, shadow_mode: true}}
`)
	want := []int{3, 7, 9, 9}
	var got []int
	for _, n := range result.Notes {
		got = append(got, n.Line)
	}
	if !slices.Equal(got, want) || len(result.Rules.Rules) != 2 {
		t.Errorf("notes at lines %v, want %v; %d rules\n%v", got, want, len(result.Rules.Rules), result.Notes)
	}
}

func TestEnvoyMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	one := ruleimport.Text{Name: "one", Data: []byte("domain: a\ndescriptors:\n- value: x")}
	two := ruleimport.Text{Name: "two", Data: []byte("domain: a\ndescriptors: [{key: a, rate_limit: {unit: eon}}]")}
	for want, files := range map[string][]ruleimport.Text{
		"one:3:3: key is missing": {one, two}, `two:2:36: unit is "eon"; allowed: second`: {one, two},
		`three:1:1: domain "a" occurs twice`: {{Name: "zero", Data: []byte("domain: a")}, {Name: "three", Data: []byte("domain: a")}},
	} {
		if _, err := ruleimport.Import("envoy", files, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
