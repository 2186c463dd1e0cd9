package gate_test

import (
	"context"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
)

func guard(t testing.TB, id string) weir.Claim {
	spec, err := weir.ParseLimit("concurrency 1 ttl 1h")
	if err != nil {
		t.Fatal(err)
	}
	return weir.Claim{Key: id, Limit: weir.MustLimit("guard", spec), Cost: 1, Lease: id}
}

// silent is a store that does not answer.
type silent struct{ weir.Store }

func (silent) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, weir.ErrUnavailable
}

func TestClaimsAsideNeverGiveTheReason(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: ip, key: [client.ip], limit: fixed_window 1/1h}]`)
	var v gate.Verdict
	ask := gate.Ask{Times: 1, Aside: []weir.Claim{guard(t, "first")}}
	if err := g.Decide(t.Context(), from("192.0.2.1"), ask, &v); err != nil || v.Outcome != gate.Passed || v.Rule.Name() != "ip" {
		t.Fatalf("%v %v by %v", v.Outcome, err, v.Rule)
	}
	if receipt := v.Receipt(); len(receipt) != 2 || receipt[1].Claim.Lease != "first" || !v.At(1).Aside || v.Holds() {
		t.Errorf("the receipt is %+v", receipt)
	}
	// A request that another limit refuses takes nothing.
	ask.Aside = []weir.Claim{guard(t, "second")}
	if err := g.Decide(t.Context(), from("192.0.2.1"), ask, &v); err != nil || v.Outcome != gate.Refused || v.Rule.Name() != "ip" {
		t.Fatalf("%v %v by %v", v.Outcome, err, v.Rule)
	}
	for i, want := range []gate.Outcome{gate.Passed, gate.Refused} {
		ask.Aside[0].Lease = string(rune('a' + i))
		if err := g.Decide(t.Context(), nil, ask, &v); err != nil || v.Outcome != want || v.Rule != nil {
			t.Errorf("alone: %v %v, want %v", v.Outcome, err, want)
		}
		if _, ok := v.Worst(); ok {
			t.Error("alone: a limit decided")
		}
	}
}

func TestClaimsAsideAreLeftOutOfAnOutage(t *testing.T) {
	g := open(t, silent{memstore.New()}, `rules: [{name: ip, key: [client.ip], limit: fixed_window 1/1h}]`)
	var v gate.Verdict
	for _, want := range []gate.Outcome{gate.Passed, gate.Refused} {
		ask := gate.Ask{Times: 1, Aside: []weir.Claim{guard(t, "one")}}
		if err := g.Decide(t.Context(), from("192.0.2.1"), ask, &v); err != nil || v.Outcome != want || v.At(1).Decided {
			t.Errorf("%v %v, want %v by the local store", v.Outcome, err, want)
		}
	}
}

func TestPeekDecidesShadowRulesWhateverTheOutcome(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: ip, key: [client.ip], limit: fixed_window 1/1h}
  - {name: tried, key: [client.ip], mode: shadow, limit: fixed_window 1/1h}
`)
	var v gate.Verdict
	for range 2 {
		if err := g.Decide(t.Context(), from("192.0.2.1"), gate.Once, &v); err != nil || v.Times != 1 {
			t.Fatal(err, v.Times)
		}
	}
	if err := g.Decide(t.Context(), from("192.0.2.1"), gate.Ask{}, &v); err != nil || v.Times != 0 || v.Outcome != gate.Refused || v.Len() != 2 {
		t.Fatalf("%v %v with %d checks", v.Outcome, err, v.Len())
	}
	if err := g.Reset(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if err := g.Decide(t.Context(), from("192.0.2.1"), gate.Ask{}, &v); err != nil || v.At(0).Decision.Remaining != 1 || v.At(1).Decision.Remaining != 1 {
		t.Errorf("after Reset: %v %+v %+v", err, v.At(0).Decision, v.At(1).Decision)
	}
}
