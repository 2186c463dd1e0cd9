package gate_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

func TestSettleOnceSettlesEachClaimOnce(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: large, cost: {default: 8}, limit: fixed_window 20/1h}
  - {name: small, cost: {default: 2}, limit: fixed_window 20/1h}
`)
	ask := gate.Ask{Times: 1, Claims: []weir.Claim{guard(t, "first")}}
	var v gate.Verdict
	for _, test := range []struct{ actual, large, small int64 }{{0, 20, 20}, {1, 19, 19}, {5, 15, 15}, {8, 12, 12}, {9, 11, 11}} {
		if err := g.Decide(t.Context(), &rules.Request{}, ask, &v); err != nil || v.Outcome != gate.Passed {
			t.Fatalf("%v %v", v.Outcome, err)
		}
		receipt := v.Receipt()
		held, charged := receipt[2], receipt[:2]
		if err := g.SettleOnce(t.Context(), held, charged, test.actual); err != nil {
			t.Fatalf("%d: %v", test.actual, err)
		}
		if err := g.SettleOnce(t.Context(), held, charged, test.actual); !errors.Is(err, weir.ErrLeaseGone) {
			t.Errorf("%d: settled again: %v", test.actual, err)
		}
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{}, &v); err != nil {
			t.Fatal(err)
		}
		if large, small := v.At(0).Decision.Remaining, v.At(1).Decision.Remaining; large != test.large || small != test.small {
			t.Errorf("settled at %d: %d and %d are left, want %d and %d", test.actual, large, small, test.large, test.small)
		}
		if err := g.Reset(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestASlotIsARequest: a cost that comes with the call, such as tokens, is no number of slots; the rule states that, or
// the caller asks for slots.
func TestASlotIsARequest(t *testing.T) {
	const text = `
rules:
  - {name: tokens, limit: [fixed_window 1000/1h, concurrency 9 ttl 1h]}
  - {name: stated, cost: {default: 2, from: header.X-Slots, max: 9}, limit: concurrency 9 ttl 1h}
  - {name: fixed, cost: 3, limit: concurrency 9 ttl 1h}
  - {name: candidate, limit: [concurrency 9 ttl 1h, fixed_window 1000/1h], candidate: {limit: fixed_window 1000/1h}}
`
	for _, test := range []struct {
		cost  int64
		holds bool
		want  []int64
	}{
		{7, false, []int64{7, 1, 2, 3, 1, 7, 7}},
		{7, true, []int64{7, 7, 7, 3, 7, 7, 7}},
		{0, false, []int64{0, 0, 0, 3, 0, 0, 0}},
	} {
		g := open(t, memstore.New(), text)
		var v gate.Verdict
		err := g.Decide(t.Context(), new(rules.Request), gate.Ask{Times: 1, Cost: &test.cost, HoldsCost: test.holds}, &v)
		var costs []int64
		for i := range v.Len() {
			costs = append(costs, v.At(i).Claim.Cost)
		}
		if err != nil || !slices.Equal(costs, test.want) {
			t.Errorf("%d units, of slots too: %v: costs are %v, want %v (%v)", test.cost, test.holds, costs, test.want, err)
		}
	}
}
