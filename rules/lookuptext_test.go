package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// TestLookupText takes a key as it is printed, or the value of a key with one component, and finds
// the key's own limits by either.
func TestLookupText(t *testing.T) {
	file, err := rules.Parse("weir.yaml", []byte(`rules:
- {name: one, key: [client.ip], limit: 5/1m, overrides: [{key: [203.0.113.0/24], limit: 9/1m}, {key: [2001:db8::/48], limit: 8/1m}]}
- {name: two, key: [user, header.X-A trim lower], limit: 5/1m, overrides: [{key: [ann, "x*"], limit: 7/1m}]}
- {name: all, limit: 5/1m}
- {name: deep, match: {service: edge, descriptor: {plan: free}}, key: [service, descriptor.plan, descriptor.user], limit: 5/1m, overrides: [{key: [edge, free, ann], limit: 7/1m}]}
- {name: pair, match: {service: edge}, key: [service, descriptor.a, descriptor.b], limit: 5/1m}
- {name: flat, key: [descriptor.a], limit: 5/1m}
- {name: plan, match: {service: edge, descriptor: {plan: free}}, key: [service, descriptor.plan], limit: 5/1m}
`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*rules.Rule)
	for _, r := range set.Rules() {
		byName[r.Name()] = r
	}
	long, _, err := byName["two"].Lookup([]string{"ann", strings.Repeat("x", 300)})
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := byName["two"].Lookup([]string{"ann", "XY "})
	if err != nil {
		t.Fatal(err)
	}
	six, _, err := byName["one"].Lookup([]string{"2001:db8::1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ rule, text, key, limit string }{
		{"one", "203.0.113.7", "client.ip=11:203.0.113.7", "9/1m0s"},
		{"one", "client.ip=11:203.0.113.7", "client.ip=11:203.0.113.7", "9/1m0s"},
		{"one", string(six), string(six), "8/1m0s"},
		{"one", "198.51.100.7", "client.ip=12:198.51.100.7", "5/1m0s"},
		{"two", string(two), string(two), "7/1m0s"},
		{"two", string(long), string(long), "5/1m0s"}, // its values are not known
		{"two", "ann", "", ""},
		{"all", "all", "all", "5/1m0s"},
		{"one", "client.ip=12:203.0.113.7", "", ""},
		{"deep", "ann", "service=4:edge descriptor.plan=4:free descriptor.user=3:ann", "7/1m0s"}, // the match says the rest
		{"deep", "edge: plan=free, user=ann", "service=4:edge descriptor.plan=4:free descriptor.user=3:ann", "7/1m0s"},
		{"pair", "edge: a=1, b=2", "service=4:edge descriptor.a=1:1 descriptor.b=1:2", "5/1m0s"},
		{"pair", "edge: a=1, b=2, b=3", "", ""}, // of two keys
		{"pair", "a=1, b=2", "", ""},
		{"pair", "1", "", ""},
		{"flat", "a=1", "descriptor.a=1:1", "5/1m0s"},
		{"flat", "b=1", "descriptor.a=3:b=1", "5/1m0s"},
		{"flat", "descriptor.a=3:a=1", "descriptor.a=3:a=1", "5/1m0s"},
		{"plan", "edge: plan=free", "service=4:edge descriptor.plan=4:free", "5/1m0s"},
		{"plan", "free", "", ""},
	} {
		key, limits, err := byName[tt.rule].LookupText(tt.text)
		if tt.limit == "" {
			if err == nil {
				t.Errorf("%s %q is %s", tt.rule, tt.text, key)
			}
			continue
		}
		if err != nil || tt.key != "" && string(key) != tt.key || len(limits) != 1 || !strings.HasPrefix(limits[0].String(), strings.TrimSuffix(tt.limit, "0s")) {
			t.Errorf("%s %q: %s %v %v, want %s %s", tt.rule, tt.text, key, limits, err, tt.key, tt.limit)
		}
	}
	var input *weir.InputError
	if _, _, err := byName["one"].LookupText(strings.Repeat("9", 1<<17)); !errors.As(err, &input) || len(input.Given.(string)) != 80 {
		t.Errorf("of a long value the error quotes more than its beginning: %.200v", err)
	}
}

// TestLabelsAreBounded: a label is a short text of valid characters.
func TestLabelsAreBounded(t *testing.T) {
	for label, want := range map[string]bool{
		strings.Repeat("限", bounds.Label): true, strings.Repeat("限", bounds.Label+1): false, "a\u009bb": false,
	} {
		_, err := rules.Compile(&rules.File{Rules: []rules.Spec{{Name: "a", Label: label, Limit: []string{"5/1m"}}}})
		if (err == nil) != want {
			t.Errorf("%.20q: %v", label, err)
		}
	}
}
