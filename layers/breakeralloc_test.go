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

func BenchmarkClosed(b *testing.B) {
	_, store := breakerNewBreaker(b, idle{})
	claims := oneClaim()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			decideOn(store, claims)
		}
	})
}

func BenchmarkTwoLooksAtTheClock(b *testing.B) {
	born := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			time.Since(born)
			time.Since(born)
		}
	})
}

func oneClaim() []weir.Claim { return []weir.Claim{breakerClaim} }

func decideOn(store weir.Store, claims []weir.Claim) {
	store.Decide(context.Background(), claims, 1, nil)
}

// idle answers at once.
type idle struct{ weir.Store }

func (idle) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 1, nil
}
func (idle) Close() error { return nil }
