package gate_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestSwapsUnderLoad: while rules are swapped a hundred times under requests, none passes
// or is refused that neither set would pass or refuse, and each that passed was counted
// once under each of its limits, whichever set decided it.
func TestSwapsUnderLoad(t *testing.T) {
	const swaps, workers, each = 100, 4, 5000
	text := func(limit int, denied string) string {
		return fmt.Sprintf(`
deny: {user: [always, %[2]s]}
rules:
  - {name: site, limit: [fixed_window %[1]d/1h, 'sliding_log %[1]d/1h']}
  - {name: ip, key: [client.ip], limit: '%[1]d/1h burst %[1]d'}
  - {name: none, match: {user: refused}, limit: fixed_window 1/1h, key: [user]}
`, limit, denied)
	}
	sets := []*rules.Set{compiled(t, text(1_000_000, "even")), compiled(t, text(900_000, "odd"))}
	g := open(t, memstore.New(), text(1_000_000, "even"))
	once := func(user string) *gate.Verdict {
		r, v := from("192.0.2.1"), new(gate.Verdict)
		r.User = user
		if err := g.Decide(t.Context(), r, gate.Once, v); err != nil {
			t.Error(err)
		}
		return v
	}
	if v := once("refused"); v.Outcome != gate.Passed { // its limit is used up now
		t.Fatal(v.Outcome)
	}
	var asked, passed atomic.Int64
	passed.Add(1)
	var load sync.WaitGroup
	users := []string{"anybody", "always", "even", "odd", "refused"}
	want := map[string][]gate.Outcome{"anybody": {gate.Passed}, "always": {gate.Denied}, "refused": {gate.Refused},
		"even": {gate.Passed, gate.Denied}, "odd": {gate.Passed, gate.Denied}}
	for range workers {
		load.Go(func() {
			for i := range each {
				user := users[i%len(users)]
				v := once(user)
				asked.Add(1)
				if v.Outcome == gate.Passed {
					passed.Add(1)
				}
				if v.Outcome != want[user][0] && v.Outcome != want[user][len(want[user])-1] {
					t.Errorf("%s: %v for %v", user, v.Outcome, v.Reason)
				}
			}
		})
	}
	for i := range int64(swaps) {
		for asked.Load() < i*workers*each/swaps { // spread over all requests
		}
		if err := g.Swap(sets[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	load.Wait()
	if err := g.Swap(sets[0]); err != nil {
		t.Fatal(err)
	}
	var v gate.Verdict
	if err := g.Decide(t.Context(), from("192.0.2.1"), gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	for i := range v.Len() {
		c := v.At(i)
		if used := 1_000_000 - c.Decision.Remaining; used != passed.Load() && c.Claim.Limit.Name() != "ip" {
			t.Errorf("%s counted %d, and %d passed", c.Claim.Limit.Name(), used, passed.Load())
		}
	}
	if v.Len() != 3 || passed.Load() < workers*each/5 {
		t.Errorf("%d limits, %d passed", v.Len(), passed.Load())
	}
}

// TestAskedRulesDecide: a front end decides by the rules that it has routed a request by, in a batch too.
func TestAskedRulesDecide(t *testing.T) {
	before := compiled(t, "deny: {user: ann}\nrules: []")
	g, err := gate.New(memstore.New(), before)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Swap(compiled(t, "rules: []")); err != nil {
		t.Fatal(err)
	}
	r := from("192.0.2.1")
	r.User = "ann"
	pinned := gate.Ask{Times: 1, Rules: before}
	questions := make([]gate.Question, 3)
	for i, ask := range []gate.Ask{pinned, gate.Once, pinned} {
		questions[i] = gate.Question{Request: r, Ask: ask, Verdict: new(gate.Verdict)}
	}
	g.DecideBatch(t.Context(), questions)
	alone := new(gate.Verdict)
	if err := g.Decide(t.Context(), r, pinned, alone); err != nil {
		t.Fatal(err)
	}
	got := []gate.Outcome{questions[0].Verdict.Outcome, questions[1].Verdict.Outcome, questions[2].Verdict.Outcome,
		alone.Outcome}
	if want := []gate.Outcome{gate.Denied, gate.Passed, gate.Denied, gate.Denied}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
