package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// granted is the limits of a request by its override, as texts.
func granted(rule *rules.Rule, r *rules.Request) string {
	key, _ := rule.AppendKey(nil, r)
	var list []string
	for _, limit := range rule.LimitsFor(r, key) {
		list = append(list, limit.Name()+" "+limit.String())
	}
	return strings.Join(list, ", ")
}

func TestOverridesOfTexts(t *testing.T) {
	rule := compiled(t, `
rules:
  - name: a
    key: [header.X-User trim nfkc lower]
    algorithm: fixed_window
    limit: 1/1m
    overrides:
      - {key: ann, limit: [2/1m, 3/1h, 4/1d]}
      - {key: "an*", limit: 5/1m}
      - {key: "*", limit: 6/1m}
      - {key: "ann*", limit: 7/1m}
      - {key: 'star\*', limit: 8/1m}
      - {key: 'star\\*', limit: 9/1m}
      - {key: 'a\b', limit: 10/1m}
      - {key: 'end\', limit: 12/1m}
      - {key: `+strings.Repeat("l", 300)+`, limit: 11/1m}
`).Rules()[0]
	for user, want := range map[string]string{
		"ann":                    "a fixed_window 2/1m, a.2 fixed_window 3/1h, a.3 fixed_window 4/1d",
		" ANN ":                  "a fixed_window 2/1m, a.2 fixed_window 3/1h, a.3 fixed_window 4/1d",
		"ａｎｎ":                    "a fixed_window 2/1m, a.2 fixed_window 3/1h, a.3 fixed_window 4/1d",
		"anna":                   "a fixed_window 7/1m",
		"Andy":                   "a fixed_window 5/1m",
		"an":                     "a fixed_window 5/1m",
		"a":                      "a fixed_window 6/1m",
		"bob":                    "a fixed_window 6/1m",
		"":                       "a fixed_window 1/1m",
		"star*":                  "a fixed_window 8/1m",
		`star\x`:                 "a fixed_window 9/1m",
		`a\b`:                    "a fixed_window 10/1m",
		`end\`:                   "a fixed_window 12/1m",
		strings.Repeat("L", 300): "a fixed_window 11/1m", // its key is hashed
	} {
		if got := granted(rule, &rules.Request{Attributes: attributes{"header X-User": user}}); got != want {
			t.Errorf("%.20q: %s, want %s", user, got, want)
		}
	}
}

func TestOverridesOfAddresses(t *testing.T) {
	rule := compiled(t, `
rules:
  - name: a
    key: client.ip
    limit: 1/1m
    overrides:
      - {key: 192.0.2.7, limit: 2/1m}
      - {key: 192.0.2.0/24, limit: 3/1m}
      - {key: 192.0.0.0/16, limit: 4/1m}
      - {key: "2001:db8:1::/64", limit: 5/1m}
      - {key: "2001:db8::/32", limit: 6/1m}
      - {key: "::ffff:198.51.100.1", limit: 7/1m}
`).Rules()[0]
	for client, want := range map[string]int{"192.0.2.7": 2, "::ffff:192.0.2.7": 2, "192.0.2.8": 3, "192.0.3.7": 4, "192.1.0.0": 1,
		"2001:db8:1::9": 5, "2001:db8:2::9": 6, "2001:db9::": 1, "198.51.100.1": 7, "2001:db8:1::1%eth0": 5} {
		if got := granted(rule, &rules.Request{Client: netip.MustParseAddr(client)}); got != fmt.Sprintf("a %d/1m", want) {
			t.Errorf("%s: %s, want %d/1m", client, got, want)
		}
	}
	if got := granted(rule, &rules.Request{}); got != "a 1/1m" {
		t.Errorf("without an address: %s", got)
	}
}

func TestOverridesOfSeveralComponents(t *testing.T) {
	rule := compiled(t, `
rules:
  - name: a
    key: [user, client.ip v4/24, constant.c]
    limit: 1/1m
    overrides:
      - {key: [ann, 192.0.2.0/24, c], limit: 2/1m}
      - {key: ["*", 192.0.2.0/24, c], limit: 3/1m}
      - {key: [ann, "*", "*"], limit: 4/1m}
      - {key: [a*, "*", c], limit: 5/1m}
      - {key: [a*, 192.0.0.0/8, "*"], limit: 6/1m}
`).Rules()[0]
	for who, want := range map[string]int{"ann 192.0.2.1": 2, "bob 192.0.2.1": 3, "ann 10.0.0.1": 4, "ada 10.0.0.1": 5,
		"bob 10.0.0.1": 1, "ada 192.9.9.9": 5, // 16 bits of text each: the first
	} {
		user, client, _ := strings.Cut(who, " ")
		if got := granted(rule, &rules.Request{User: user, Client: netip.MustParseAddr(client)}); got != fmt.Sprintf("a %d/1m", want) {
			t.Errorf("%s: %s, want %d/1m", who, got, want)
		}
	}
}

// TestManyOverridesAreOneLookUp: as many as a rule may have, and no allocation.
func TestManyOverridesAreOneLookUp(t *testing.T) {
	spec := rules.Spec{Name: "a", Key: []string{"user"}, Limit: []string{"1/1m"}}
	for i := range bounds.Overrides {
		key := fmt.Sprint("u", i)
		if i < bounds.Wildcards {
			key = fmt.Sprint("wild", i, "-*")
		}
		spec.Overrides = append(spec.Overrides, rules.Override{Key: []string{key}, Limit: []string{fmt.Sprint(i+2, "/1m")}})
	}
	set, err := rules.Compile(&rules.File{Name: "f", Rules: []rules.Spec{spec}})
	if err != nil {
		t.Fatal(err)
	}
	rule := set.Rules()[0]
	for user, want := range map[string]string{"u9999": "a 10001/1m", "u63": "a 1/1m", "wild7-x": "a 9/1m"} {
		r := &rules.Request{User: user}
		if got := granted(rule, r); got != want {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
		key, _ := rule.AppendKey(nil, r)
		if n := testing.AllocsPerRun(100, func() { rule.LimitsFor(r, key) }); n != 0 {
			t.Errorf("%s: %v allocations", user, n)
		}
	}
}
