package gate_test

import (
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// half is a rule in force for half of its keys, with all that could refuse. carl and d-listed
// are in that half.
const half = `
rules:
  - name: each
    group: users
    key: [user]
    limit: fixed_window 2/1h
  - name: post
    group: users
    match: {method: POST}
    key: [user]
    on_missing: deny
    deny: {user: [b-listed, d-listed]}
    limit: fixed_window 1/1h
    overrides: [{key: carl, limit: fixed_window 3/1h}, {key: gus, limit: fixed_window 3/1h}]
    enforce_percent: 50
`

func TestAPercentageIsEnforced(t *testing.T) {
	set := compiled(t, half)
	rule := set.Rules()[1]
	g := open(t, memstore.New(), half)
	halves := map[bool]int{}
	for _, user := range []string{"ann", "carl", "gus", "hal", "b-listed", "d-listed"} {
		key, _ := rule.AppendKey(nil, &rules.Request{User: user})
		enforced, most := rule.Enforces(key), 1
		halves[enforced]++
		if user == "carl" || user == "gus" {
			most = 3
		}
		for i := range 4 {
			var v gate.Verdict
			if err := g.Decide(t.Context(), &rules.Request{Method: "POST", User: user}, gate.Once, &v); err != nil {
				t.Fatal(err)
			}
			outcome, shadow, granted := gate.Passed, !enforced, int64(1)
			switch {
			case user[1:] == "-listed":
				outcome, shadow = gate.Passed, false
				if enforced {
					outcome = gate.Denied
				}
			case i >= most && enforced:
				outcome, granted = gate.Refused, 0
			case i >= most:
				granted = 0
			}
			checks := 0
			for j := range v.Len() {
				if c := v.At(j); c.Shadow != shadow || c.Granted != granted || c.Rule.Name() != "post" {
					t.Errorf("%s, request %d: %s says shadow %v, granted %d", user, i, c.Rule.Name(), c.Shadow, c.Granted)
				}
				checks++
			}
			if v.Outcome != outcome || user[1:] != "-listed" && checks != 1 {
				t.Errorf("%s, request %d: %v with %d checks, want %v", user, i, v.Outcome, checks, outcome)
			}
		}
	}
	if halves[true] == 0 || halves[false] == 0 {
		t.Errorf("all are in one half: %v", halves)
	}
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{Method: "POST"}, gate.Once, &v); err != nil || v.Outcome != gate.Passed || len(v.Skips()) != 1 || v.Skips()[0].Why != "would be denied" {
		t.Errorf("without a key: %v, %v, %v", v.Outcome, v.Skips(), err)
	}
}

// A peek at a key outside of the percentage reads the count under its shadow key.
func TestPeekOutsideThePercentageReadsTheShadowKey(t *testing.T) {
	g := open(t, memstore.New(), half)
	rule := g.Rules().Rules()[1]
	for _, user := range []string{"ann", "carl", "gus", "hal"} {
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{Method: "POST", User: user}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		key, limits, err := rule.Lookup([]string{user})
		if err != nil {
			t.Fatal(err)
		}
		var look gate.Verdict
		if err := g.Decide(t.Context(), nil, gate.Ask{Claims: g.ClaimsOf(rule, key, limits)}, &look); err != nil {
			t.Fatal(err)
		}
		if got, want := look.At(0).Decision.Remaining, limits[0].Most()-1; got != want {
			t.Errorf("%s (enforced: %v) has %d left, want %d", user, rule.Enforces(key), got, want)
		}
	}
}
