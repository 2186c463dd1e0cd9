package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestCountryAndASNInMatchesKeysAndLists(t *testing.T) {
	cn, unknown := &rules.Request{Country: "CN", ASN: 64512}, &rules.Request{}
	for _, test := range []struct {
		rule         string
		cn, unknown  bool
		country, asn bool
	}{
		{"match: {country: [CN, HK]}", true, false, true, false},
		{"match: {country: HK}", false, false, true, false},
		{`match: {country: "*"}`, true, false, true, false},
		{"match: {asn: [7, 64512]}", true, false, false, true},
		{"match: {asn: 7}", false, false, false, true},
		{`match: {asn: "*"}`, true, false, false, true},
		{"match: {not: {country: CN}}", false, true, true, false},
		{"match: {not: [{country: HK}, {asn: 7}]}", true, true, true, true},
		{"match: {any: [{country: CN}, {user: x}]}", true, false, true, false},
		{"key: [client.country]", true, true, true, false},
		{"key: [client.asn], on_missing: skip", true, true, false, true},
		{"deny: {client.country: [CN]}", true, true, true, false},
		{"candidate: {limit: 1/1m, key: [client.asn]}", true, true, false, true},
		{"match: {user: x}", false, false, false, false},
		{"enabled: false, key: [client.asn]", false, false, false, false},
	} {
		set := compiled(t, "rules: [{name: a, limit: 1/1s, "+test.rule+"}]")
		if got := len(set.Match(cn, nil)) == 1; got != test.cn {
			t.Errorf("%s: matches CN: %t", test.rule, got)
		}
		if got := len(set.Match(unknown, nil)) == 1; got != test.unknown {
			t.Errorf("%s: matches an unknown client: %t", test.rule, got)
		}
		if country, asn := set.Located(); country != test.country || asn != test.asn {
			t.Errorf("%s: needs %t, %t", test.rule, country, asn)
		}
	}
}

func TestListsOfCountriesAndASNs(t *testing.T) {
	set := compiled(t, `
deny: {client.country: [KP], client.asn: "64512"}
rules:
  - name: a
    key: [client.country, client.asn]
    limit: 1/1s
    overrides: [{key: [CN, "7"], limit: 9/1s}, {key: [HK, "*"], limit: 5/1s}]
`)
	for want, r := range map[rules.Listing]*rules.Request{rules.Denied: {Country: "KP"}, rules.Unlisted: {Country: "CN", ASN: 7}} {
		if got := set.Listed(r); got != want {
			t.Errorf("%+v: %v", r, got)
		}
	}
	if set.Listed(&rules.Request{ASN: 64512}) != rules.Denied {
		t.Error("AS64512 is not denied")
	}
	rule := set.Rules()[0]
	for _, test := range []struct {
		country    string
		asn        uint32
		key, limit string
	}{
		{"CN", 7, "client.country=2:CN client.asn=1:7", "9/1s"},
		{"HK", 4294967295, "client.country=2:HK client.asn=10:4294967295", "5/1s"},
		{"HK", 0, "client.country=2:HK client.asn=-", "1/1s"},
		{"", 0, "client.country=- client.asn=-", "1/1s"},
	} {
		r := &rules.Request{Country: test.country, ASN: test.asn}
		key, ok := rule.AppendKey(nil, r)
		if limit := rule.LimitsFor(r, key)[0].String(); !ok || string(key) != test.key || limit != test.limit {
			t.Errorf("%+v: %s %s, want %s %s", test, key, limit, test.key, test.limit)
		}
	}
}

func TestImpossibleCountriesAndASNsAreRefused(t *testing.T) {
	for rule, want := range map[string]string{
		"match: {country: cn}":                                       "a code of ISO 3166 in capitals",
		"match: {country: CHN}":                                      "a code of ISO 3166 in capitals",
		"match: {asn: AS64512}":                                      "without AS",
		"match: {asn: 0}":                                            "1 to 4294967295",
		"match: {asn: 4294967296}":                                   "1 to 4294967295",
		"match: {not: {asn: -1}}":                                    "1 to 4294967295",
		`match: {country: [CN, "*"]}`:                                "stands alone",
		"deny: {client.country: [china]}":                            "a code of ISO 3166 in capitals",
		`allow: {client.asn: ["645*"]}`:                              "without AS",
		"key: [client.country lower]":                                "nothing follows client.country",
		"key: [client.country], overrides: [{key: cn, limit: 2/1s}]": "a code of ISO 3166 in capitals",
		"key: [country]":                                             "client.country",
	} {
		_, err := rules.Load("f", []byte("rules: [{name: a, limit: 1/1s, "+rule+"}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}

// TestClaimsOfCountriesAndASNsAreCounted: of one country at a time, and those for any.
func TestClaimsOfCountriesAndASNsAreCounted(t *testing.T) {
	const eight = "limit: [1/1s, 2/1m, 3/1h, 4/1d, 5/1d, 6/1d, 7/1d, 8/1d]}"
	apart := "rules:"
	together := "rules:"
	for i, asn := range []string{"1", "2", "3", "4", "5"} {
		apart += "\n - {name: a" + asn + ", match: {asn: " + asn + "}, " + eight
		together += "\n - {name: a" + asn + ", match: {asn: \"*\", country: [" + []string{"AA", "AB", "AC", "AD", "AE"}[i] + ", CN]}, " + eight
	}
	compiled(t, apart)
	if _, err := rules.Load("f", []byte(together)); err == nil || !strings.Contains(err.Error(), "client.country: CN") {
		t.Error(err)
	}
}

func TestExceptionsNeedTheCountry(t *testing.T) {
	set := compiled(t, "rules: [{name: a, limit: 1/1s}]")
	file := &rules.File{Rules: []rules.Spec{{Name: "a", Limit: []string{"1/1s"}}}}
	file.Exceptions = []rules.Exception{{ID: "x", Kind: rules.Blocked, Component: "client.country", Values: []string{"KP"}}}
	if err := set.Except(file); err != nil {
		t.Fatal(err)
	}
	if country, asn := set.Located(); !country || asn {
		t.Errorf("needs %t, %t", country, asn)
	}
	if set.Listed(&rules.Request{Country: "KP"}) != rules.Denied {
		t.Error("KP is not blocked")
	}
	if text := slices.Collect(func(yield func(string) bool) {
		yield(set.Misfit(file, &rules.Exception{Kind: rules.Blocked, Component: "client.country", Values: []string{"kp"}}))
	}); !strings.Contains(text[0], "ISO 3166") {
		t.Error(text)
	}
}
