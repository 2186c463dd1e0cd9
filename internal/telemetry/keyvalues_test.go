package telemetry_test

import (
	"slices"
	"testing"

	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/telemetry"
)

func TestKeyValues(t *testing.T) {
	for key, want := range map[string][]string{
		"client.ip=11:203.0.113.7":            {"203.0.113.7"},
		"client.ip=11:203.0.113.7 user=3:ann": {"203.0.113.7", "ann"},
		"user=3:a b client.ip=-":              {"a b", "-"},
		"user=3:x=1":                          {"x=1"},
		"user=6:漢字":                           {"漢字"},
		"":                                    nil,
		"all":                                 nil,
		"user=9:ab":                           nil,
		"user=-1:x":                           nil,
		"user=0:":                             nil,
		"hmac-sha256:00ff":                    nil,
		"a=b":                                 nil,
	} {
		if got := telemetry.KeyValues(key); !slices.Equal(got, want) {
			t.Errorf("of %q they are %q, want %q", key, got, want)
		}
	}
}

// TestKeyValuesOfRules: the form is that of rules.
func TestKeyValuesOfRules(t *testing.T) {
	set := gatetest.Rules(t, "rules:\n  - {name: a, key: [client.ip, user, header.X-A], limit: 1/1s}\n")
	values := []string{"203.0.113.7", "a=1:b c", "漢 字"}
	key, _, err := set.Rules()[0].Lookup(values)
	if err != nil {
		t.Fatal(err)
	}
	if got := telemetry.KeyValues(string(key)); !slices.Equal(got, values) {
		t.Errorf("of %q they are %q, want %q", key, got, values)
	}
}

// TestFilterFindsKeysByValue: people look for 203.0.113.7, not for the key of a rule.
func TestFilterFindsKeysByValue(t *testing.T) {
	s := telemetry.Sample{Rule: "login", Outcome: "refused", Key: "client.ip=11:203.0.113.7 user=3:ann"}
	for f, want := range map[telemetry.Filter]bool{
		{}: true, {Key: s.Key}: true, {Key: "ann"}: true, {Key: "203.0.113.7", Rule: "login"}: true,
		{Key: "203.0.113"}: false, {Key: "ann", Rule: "other"}: false, {Key: "ann", Outcome: "passed"}: false,
	} {
		if got := f.Matches(&s); got != want {
			t.Errorf("%+v: %v, want %v", f, got, want)
		}
	}
}
