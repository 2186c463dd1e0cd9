package gate_test

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestStepsAreChargedAndSettled: steps are granted while they are left, or charged beyond the limit, and in the end the
// cost is what it is, more or less.
func TestStepsAreChargedAndSettled(t *testing.T) {
	for _, test := range []struct {
		mode    string
		beyond  bool
		steps   int
		granted int
		settled int64 // -1: not
		want    int64
	}{
		{"enforce", false, 5, 5, -1, 53},
		{"enforce", false, 12, 9, -1, 93},
		{"enforce", true, 12, 9, -1, 100}, // 123, of which the limit shows what it has
		{"shadow", false, 12, 12, -1, 100},
		{"enforce", false, 5, 5, 53, 53},
		{"enforce", false, 5, 5, 60, 60},
		{"enforce", false, 5, 5, 45, 45},
		{"enforce", false, 5, 5, 3, 3},
		{"enforce", false, 5, 5, 1, 1},
		{"enforce", true, 40, 9, 20, 20},
	} {
		g := gatetest.New(t, memstore.New(), "rules: [{name: a, mode: "+test.mode+
			", cost: {default: 3, settle: bytes}, charge: as_it_streams, limit: fixed_window 100/1d}]")
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		receipt, granted := v.Receipt(), 0
		for range test.steps {
			ok, wait, err := g.ChargeStep(t.Context(), receipt, g.Rules().Rules()[0], 10, test.beyond)
			if err != nil || ok == (wait > 0) && !test.beyond {
				t.Errorf("%+v: %v, %v", test, wait, err)
			}
			if ok {
				granted++
			}
		}
		if test.settled >= 0 {
			if err := g.Settle(t.Context(), receipt, test.settled); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{}, &v); err != nil {
			t.Fatal(err)
		}
		if got := 100 - v.At(0).Decision.Remaining; got != test.want || granted != test.granted {
			t.Errorf("%+v: %d are charged, and %d steps granted", test, got, granted)
		}
	}
}

// TestStepsMeetTheLimitInForce: a limit that is lowered while a response is streamed grants no more steps than it has left.
func TestStepsMeetTheLimitInForce(t *testing.T) {
	for _, limit := range []string{"fixed_window %d/1d", "token_bucket %d/1d"} {
		text := "rules: [{name: a, cost: {default: 3, settle: bytes}, charge: as_it_streams, stream: {step: 10}, limit: " + limit + "}]"
		g := gatetest.New(t, memstore.New(), fmt.Sprintf(text, 1000))
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		receipt, rule, granted := v.Receipt(), g.Rules().Rules()[0], 0
		if err := g.Swap(compiled(t, fmt.Sprintf(text, 50))); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			ok, _, err := g.ChargeStep(t.Context(), receipt, rule, 10, false)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				granted++
			}
		}
		if granted > 4 {
			t.Errorf("%s: %d steps of 10 are granted by 50 units", limit, granted)
		}
	}
}
