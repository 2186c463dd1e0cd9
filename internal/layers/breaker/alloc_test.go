//go:build !race

package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
)

func TestCallsDoNotAllocate(t *testing.T) {
	f := newFaulty()
	b, store := newBreaker(t, f, breaker.WithProbes(time.Hour, time.Hour))
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
	for b.State() != breaker.Open {
		decide(store)
	}
	check("open")
}

func BenchmarkClosed(b *testing.B) {
	_, store := newBreaker(b, idle{})
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

func oneClaim() []weir.Claim { return []weir.Claim{claim} }

func decideOn(store weir.Store, claims []weir.Claim) {
	store.Decide(context.Background(), claims, 1, nil)
}

// idle answers at once.
type idle struct{ weir.Store }

func (idle) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 1, nil
}
func (idle) Close() error { return nil }
