//go:build !race

package layers

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func TestCallsDoNotAllocate(t *testing.T) {
	f := newFaulty()
	b, store := breakerNewBreaker(t, f, withProbes(time.Hour, time.Hour))
	defer store.Close()
	claims := oneClaim()
	check := func(when string) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, func() { decideOn(store, claims) }); n != 0 {
			t.Errorf("%s: %v allocations a call", when, n)
		}
	}
	check("closed")
	f.be(dead)
	for b.State() != stateOpen {
		decide(store)
	}
	check("open")
}

func oneClaim() []weir.Claim { return []weir.Claim{breakerClaim} }

func decideOn(store weir.Store, claims []weir.Claim) {
	store.Decide(context.Background(), claims, 1, nil)
}
