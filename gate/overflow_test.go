package gate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// full are rules with as many limits as a decision holds.
func full() (text string) {
	text = "rules:\n"
	for i := range weir.MaxClaims {
		text += fmt.Sprintf("  - {name: r%d, limit: fixed_window 2/1h}\n", i)
	}
	return text
}

func TestAReservationUnderAsManyLimitsAsADecisionHolds(t *testing.T) {
	store := memstore.New()
	g := open(t, store, full())
	var v gate.Verdict
	for i, want := range []gate.Outcome{gate.Passed, gate.Passed, gate.Refused} {
		lease := fmt.Sprint("lease-", i)
		ask := gate.Ask{Times: 1, Aside: []weir.Claim{guard(t, lease)}}
		if err := g.Decide(t.Context(), &rules.Request{}, ask, &v); err != nil || v.Outcome != want {
			t.Fatalf("request %d: %v %v, want %v", i, v.Outcome, err, want)
		}
		receipt := v.Receipt()
		if want != gate.Passed {
			continue
		}
		if len(receipt) != weir.MaxClaims+1 || receipt[weir.MaxClaims].Claim.Lease != lease {
			t.Errorf("request %d: the receipt has %d claims", i, len(receipt))
		}
		held := guard(t, lease)
		held.Renew = true
		if granted, err := store.Decide(t.Context(), []weir.Claim{held}, 1, nil); granted != 1 || err != nil {
			t.Errorf("request %d: its lease is not held: %v", i, err)
		}
	}
}

func TestTooManyClaimsOfACallerAreAnError(t *testing.T) {
	g := open(t, memstore.New(), full())
	var v gate.Verdict
	var input *weir.InputError
	ask := gate.Ask{Times: 1, Claims: []weir.Claim{{Key: "k", Limit: weir.MustLimit("own", weir.PerSecond(1)), Cost: 1}}}
	if err := g.Decide(t.Context(), &rules.Request{}, ask, &v); !errors.As(err, &input) || v.Granted != 0 {
		t.Errorf("the error is %v", err)
	}
}

func TestRulesThatNeedTooManyClaimsAnswerByOnStoreError(t *testing.T) {
	keys := make([]string, weir.MaxClaims+8)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	for policy, want := range map[string][]gate.Outcome{
		"allow": {gate.Passed, gate.Passed}, "deny": {gate.Failed, gate.Failed}, "local": {gate.Passed, gate.Refused},
	} {
		g := open(t, memstore.New(), fmt.Sprintf(`rules: [{name: r, limit: fixed_window 1/1h, on_store_error: %s}]`, policy))
		for i, outcome := range want {
			var v gate.Verdict
			if err := g.DecideCrowd(t.Context(), g.Rules().Rules()[0], keys, &v); err != nil || v.Outcome != outcome || !errors.Is(v.Err, gate.ErrTooManyClaims) {
				t.Errorf("%s, request %d: %v %v %v", policy, i, v.Outcome, v.Err, err)
			}
		}
	}
}
