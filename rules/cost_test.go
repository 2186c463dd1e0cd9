package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

func TestCosts(t *testing.T) {
	for name, test := range map[string]struct {
		cost   string
		fixed  bool
		value  string // of the header X-Tokens
		want   int64
		refuse bool
	}{
		"none":             {"", false, "7", 1, false},
		"a number":         {"cost: 5", true, "7", 5, false},
		"settled only":     {"cost: {settle: bytes, default: 3}", false, "7", 3, false},
		"a default only":   {"cost: {default: 3}", false, "7", 3, false},
		"missing":          {"cost: {from: header.x-tokens, max: 40}", false, "", 1, false},
		"missing, default": {"cost: {from: header.x-tokens, max: 40, default: 9}", false, "", 9, false},
		"said":             {"cost: {from: header.x-tokens, max: 40}", false, "7", 7, false},
		"the most":         {"cost: {from: header.x-tokens, max: 40}", false, "40", 40, false},
		"over it":          {"cost: {from: header.x-tokens, max: 40}", false, "41", 0, true},
		"nothing":          {"cost: {from: header.x-tokens, max: 40}", false, "0", 0, true},
		"negative":         {"cost: {from: header.x-tokens, max: 40}", false, "-1", 0, true},
		"a sign":           {"cost: {from: header.x-tokens, max: 40}", false, "+1", 0, true},
		"octal, perhaps":   {"cost: {from: header.x-tokens, max: 40}", false, "010", 0, true},
		"a fraction":       {"cost: {from: header.x-tokens, max: 40}", false, "1.5", 0, true},
		"blanks":           {"cost: {from: header.x-tokens, max: 40}", false, " 1", 0, true},
		"two of it":        {"cost: {from: header.x-tokens, max: 40}", false, "1, 2", 0, true},
		"a word":           {"cost: {from: header.x-tokens, max: 40}", false, "many", 0, true},
		"beyond int64":     {"cost: {from: header.x-tokens, max: 40}", false, "18446744073709551617", 0, true},
		"very long":        {"cost: {from: header.x-tokens, max: 40}", false, strings.Repeat("1", 1<<20), 0, true},
		"a query":          {"cost: {from: query.n, max: 40}", false, "7", 11, false},
		"a descriptor":     {"cost: {from: descriptor.n, max: 40}", false, "7", 12, false},
	} {
		rule := compiled(t, "rules: [{name: a, limit: 100/1m, "+test.cost+"}]").Rules()[0]
		r := &rules.Request{Attributes: attributes{"header X-Tokens": test.value, "query n": "11", "descriptor n": "12"}}
		got, _, err := rule.CostOf(r)
		var input *weir.InputError
		if got != test.want || rule.FixedCost() != test.fixed || errors.As(err, &input) != test.refuse {
			t.Errorf("%s: %d, %v, fixed %v", name, got, err, rule.FixedCost())
		}
		if test.refuse && (input.Field != "header X-Tokens" || !strings.Contains(err.Error(), "from 1 to 40") || len(err.Error()) > 300) {
			t.Errorf("%s: the error is %.400v", name, err)
		}
	}
}

func TestSettlingTexts(t *testing.T) {
	for text, want := range map[string]string{"5": "", "{settle: bytes}": "bytes", "{settle: header.x-used-tokens}": "header.x-used-tokens",
		"{from: query.n, max: 9, settle: header.bytes}": "header.bytes"} {
		if got := compiled(t, "rules: [{name: a, limit: 100/1m, cost: "+text+"}]").Rules()[0].Settle(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
