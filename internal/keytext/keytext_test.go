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
