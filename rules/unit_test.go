package rules_test

import (
	"math"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestUnits(t *testing.T) {
	name := strings.Repeat("x", 32)
	for text, want := range map[string]struct {
		n    int64
		text string
	}{
		"tokens":          {730, "730 tokens"},
		"tokens/1":        {730, "730 tokens"},
		"USD/1000000":     {2_500_000, "2.5 USD"},
		"EUR/1000000":     {1, "0.000001 EUR"},
		"USD/100":         {0, "0 USD"},
		"GB/1000000000":   {math.MaxInt64, "9223372036.854775807 GB"},
		name + "/10":      {15, "1.5 " + name},
		"content-bytes":   {5, "5 content-bytes"},
		"":                {5, "5"},
		name + "x":        {},
		"two words":       {},
		"元":               {},
		"/100":            {},
		"USD/":            {},
		"USD/0":           {},
		"USD/1000/10":     {},
		"USD/-10":         {},
		"USD/3":           {},
		"USD/010":         {},
		"USD/10000000000": {},
	} {
		set, err := rules.Compile(&rules.File{Rules: []rules.Spec{{Name: "a", Limit: []string{"9/1m"}, Unit: text}}})
		if want.text == "" {
			if err == nil || !strings.Contains(err.Error(), "unit is ") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := set.Rules()[0].Unit().Text(want.n); got != want.text {
			t.Errorf("%q: %s, want %s", text, got, want.text)
		}
	}
}

// TestPresetsNameTheirUnit: of the cost that they set; another cost has its own unit, or none.
func TestPresetsNameTheirUnit(t *testing.T) {
	for text, want := range map[string]string{
		"preset: openai":                                      "tokens",
		"preset: ollama, charge: as_it_streams":               "tokens",
		"preset: openai, unit: words":                         "words",
		"preset: openai, cost: 5":                             "",
		"preset: openai, cost: {settle: bytes}":               "",
		"preset: openai, cost: {settle: bytes}, unit: USD/10": "USD/10",
	} {
		set := loaded(t, "rules: [{name: a, limit: 100000/1m, "+text+"}]")
		if got := set.Rules()[0].Unit().String(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestMetered: rules count units if their requests may cost different numbers of them, or if the unit has a name.
func TestMetered(t *testing.T) {
	for text, want := range map[string]bool{
		"cost: 1":                             false,
		"cost: 5":                             false,
		"cost: 5, unit: credits":              true,
		"preset: gemini":                      true,
		"cost: {from: query.n, max: 9}":       true,
		"cost: {settle: bytes}":               true,
		"cost: {by: method, each: {POST: 5}}": true,
		"count_if: {status: 401}, algorithm: sliding_log": false,
	} {
		set := loaded(t, "rules: [{name: a, limit: 100000/1m, "+text+"}]")
		if got := set.Rules()[0].Metered(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
