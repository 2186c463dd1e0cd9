package keytext_test

import (
	"slices"
	"testing"

	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/keytext"
)

func TestValuesOfAKey(t *testing.T) {
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
		if got := keytext.Values(key); !slices.Equal(got, want) {
			t.Errorf("of %q they are %q, want %q", key, got, want)
		}
	}
}

// TestValuesOfAKeyOfRules: the form is that of rules.
func TestValuesOfAKeyOfRules(t *testing.T) {
	set := gatetest.Rules(t, "rules:\n  - {name: a, key: [client.ip, user, header.X-A], limit: 1/1s}\n")
	values := []string{"203.0.113.7", "a=1:b c", "漢 字"}
	key, _, err := set.Rules()[0].Lookup(values)
	if err != nil {
		t.Fatal(err)
	}
	if got := keytext.Values(string(key)); !slices.Equal(got, values) {
		t.Errorf("of %q they are %q, want %q", key, got, values)
	}
}

// TestKeysForPeople: of descriptors with their names and the domain, else values in tables, and names in other places.
func TestKeysForPeople(t *testing.T) {
	for key, want := range map[string][2]string{
		"service=4:edge descriptor.a=1:1 descriptor.b=1:2": {"edge: a=1, b=2", "edge: a=1, b=2"},
		"service=4:edge entry.1=3:a=1 entry.3=5:b=c=d":     {"edge: a=1, b=c=d", "edge: a=1, b=c=d"},
		"descriptor.a=1:1":                       {"a=1", "a=1"},
		"descriptor.a=- descriptor.b=5:x, =y":    {"a=-, b=x, =y", "a=-, b=x, =y"},
		"service=4:edge descriptor.path=4:/a=b":  {"edge: path=/a=b", "edge: path=/a=b"},
		"descriptor.plan=4:free client.ip=3:::1": {"plan=free, client.ip=::1", "plan=free, client.ip=::1"},
		"client.ip=11:203.0.113.7 user=3:ann":    {"203.0.113.7 ann", "client.ip=11:203.0.113.7 user=3:ann"},
		"service=4:edge":                         {"edge", "service=4:edge"},
		"envoy 4:edge1:a1:11:b0:":                {"edge: a=1, b=", "edge: a=1, b="},
		"envoy 4:edge1:a1:1 1m0s":                {"edge: a=1", "edge: a=1"},
		"envoy 4:edge1:a":                        {"envoy 4:edge1:a", "envoy 4:edge1:a"},
		"envoy 4:edge9:a":                        {"envoy 4:edge9:a", "envoy 4:edge9:a"},
		"all":                                    {"all", "all"},
		"descriptor.a=9:1":                       {"descriptor.a=9:1", "descriptor.a=9:1"},
	} {
		if got := [2]string{keytext.Plain(key), keytext.Described(key)}; got != want {
			t.Errorf("%q is shown as %q, want %q", key, got, want)
		}
	}
}
