package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestDescriptorKeysAreAllKeysInOrder(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: one, match: {descriptor_keys: a}, limit: 1/1s}
  - {name: two, match: {descriptor_keys: [a, b]}, limit: 1/1s}
  - {name: twice, match: {descriptor_keys: [a, a]}, limit: 1/1s}
  - {name: any, limit: 1/1s}
`)
	for _, tt := range []struct {
		keys []string
		want string
	}{
		{nil, "any"}, {[]string{"a"}, "one any"}, {[]string{"a", "b"}, "two any"}, {[]string{"b", "a"}, "any"},
		{[]string{"a", "b", "c"}, "any"}, {[]string{"a", "a"}, "twice any"}, {[]string{"a,b"}, "any"}, {[]string{""}, "any"},
		{make([]string, 10_000), "any"}, {[]string{strings.Repeat("a", 1<<20)}, "any"},
	} {
		found := set.Match(&rules.Request{DescriptorKeys: tt.keys}, nil)
		if got := names(found); got != tt.want {
			t.Errorf("%.80q: %s, want %s", tt.keys, got, tt.want)
		}
	}
}

func TestDescriptorKeysAndChargeAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		`{name: a, match: {descriptor_keys: ["a,b"]}, limit: 1/1s}`:        `match.descriptor_keys "a,b"`,
		`{name: a, charge: half, limit: 1/1s}`:                             `charge is "half"`,
		`{name: a, charge: full, limit: concurrency 5 ttl 1m}`:             "charge: full cannot be of concurrency 5 ttl 1m",
		`{name: a, cost: 5, limit: 1/1s}`:                                  "can never be granted",
		`{name: a, charge: full, cost: 5, limit: 1/1s, key: [user, user]}`: "occurs twice",
	} {
		_, err := rules.Load("rules.yaml", []byte("rules:\n  - "+text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(text, "full, cost") && strings.Contains(err.Error(), "never") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
