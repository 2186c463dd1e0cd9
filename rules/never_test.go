package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestRulesThatNeverDecide makes sets of rules by chance, and decides random requests by them. A rule of which Lint
// says that it never decides, or never applies, is never the one that refuses, and the same requests pass without it.
func TestRulesThatNeverDecide(t *testing.T) {
	warned := make(map[string]int)
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 5))
		text := randomRules(random)
		set, warnings, err := rules.Lint("f", []byte(text))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		var never []string
		for i := range warnings {
			why := warnings[i].Message
			if !strings.Contains(why, "the rule never") && !strings.Contains(why, "the rule changes nothing") {
				continue
			}
			var at int
			if _, err := fmt.Sscanf(warnings[i].Field, "rules[%d]", &at); err != nil {
				t.Fatal(err)
			}
			never = append(never, set.Rules()[at].Name())
			warned[why[:min(len(why), 22)]]++
			if strings.Contains(why, "changes nothing") {
				never[len(never)-1] += "?" // it may be named, as the first of two that refuse alike
			}
		}
		if len(never) > 0 {
			neverDecides(t, random, text, set, never)
		}
	}
	t.Log(warned)
	if len(warned) < 2 || warned["the rule never decides"] < 90 {
		t.Errorf("too few warnings: %v", warned)
	}
}

// neverDecides decides requests with and without the rules that never decide.
func neverDecides(t *testing.T, random *rand.Rand, text string, set *rules.Set, never []string) {
	t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(never, func(name string) bool {
			return strings.HasPrefix(line, "- {name: "+strings.TrimSuffix(name, "?")+",")
		}) {
			kept.WriteString(line)
		}
	}
	if !strings.Contains(kept.String(), "- {") {
		kept.WriteString("  []\n")
	}
	without := compiled(t, kept.String())
	now := weir.Instant(1_700_000_000_000_000)
	decide := [2]*gate.Gate{}
	for i, s := range []*rules.Set{set, without} {
		store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
		defer store.Close()
		var err error
		if decide[i], err = gate.New(store, s, gate.WithLocal(store)); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		now += weir.Instant(random.Int64N(3) * random.Int64N(8_000_000))
		r := &rules.Request{
			Method: pick(random, "GET", "POST"), Path: pick(random, "/a", "/a/x", "/b"), User: pick(random, "", "ann", "bob"),
			Client: netip.MustParseAddr(pick(random, "192.0.2.1", "192.0.2.2")),
		}
		var passed [2]bool
		for i, g := range decide {
			var v gate.Verdict
			if err := g.Decide(t.Context(), r, gate.Ask{Times: 1}, &v); err != nil {
				t.Fatal(err)
			}
			if passed[i] = v.Outcome == gate.Passed; !passed[i] && slices.Contains(never, v.Rule.Name()) {
				t.Fatalf("%s\n%s never decides, and refused %+v", text, v.Rule.Name(), r)
			}
		}
		if passed[0] != passed[1] {
			t.Fatalf("%s\nwithout %v: %+v passes: %v, with: %v", text, never, r, passed[1], passed[0])
		}
	}
}

func pick(random *rand.Rand, values ...string) string { return values[random.IntN(len(values))] }

// randomRules are two to four rules whose parts are often alike.
func randomRules(random *rand.Rand) string {
	var b strings.Builder
	b.WriteString("server: {path_form: strict}\nrules:\n")
	form := pick(random, "%d/%ds", "%d/%ds burst 4", "%d/%ds step", "fixed_window %d/%ds", "fixed_window %d/%ds epoch",
		"sliding_log %d/%ds", "sliding_counter %d/%ds slices 2", "%d/%ds overdraft 2")
	for i := range 2 + random.IntN(3) {
		limit := fmt.Sprintf(form, 2+random.IntN(3), 10+10*random.IntN(2))
		fmt.Fprintf(&b, "- {name: r%d, limit: %s%s%s%s%s}\n", i, limit,
			pick(random, "", "", ", match: {path: /a}", ", match: {path: /a/**}", ", match: {method: POST}",
				", match: {path: /a/**, method: [GET, POST]}", ", match: {path: /a, not: {user: ann}}"),
			pick(random, "", ", key: [client.ip]", ", key: [user]", ", key: [client.ip, user]"),
			pick(random, "", "", "", "", ", on_missing: skip", ", on_missing: deny", ", group: g"),
			pick(random, "", "", "", "", "", ", cost: 2", ", allow: {user: ann}", ", deny: {user: bob}", ", mode: shadow"))
	}
	return b.String()
}
