package memstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// All units granted or charged are counted, for any mixture of concurrent calls on one key and of their paths.
func TestConcurrentCallsAddUp(t *testing.T) {
	const most = 1 << 20
	for _, spec := range []weir.Spec{
		weir.PerSecond(most),
		weir.TokenBucket{Capacity: most, Refill: most - 1, Period: time.Hour},
		weir.TokenBucket{Capacity: most, Refill: 7, Period: time.Hour},
		weir.TokenBucket{Capacity: most, Refill: 1, Period: time.Hour, Mode: weir.Step},
		weir.FixedWindow{Limit: most, Window: time.Hour},
		weir.Calendar{Limit: most, Unit: weir.Year},
		weir.SlidingLog{Limit: most, Window: time.Hour},
		weir.SlidingCounter{Limit: most, Window: time.Hour, Slices: 10},
	} {
		t.Run(fmt.Sprint(spec), func(t *testing.T) { addUp(t, weir.MustLimit("sum", spec)) })
	}
}

func addUp(t *testing.T, l *weir.Limit) {
	beside := weir.MustLimit("beside", weir.FixedWindow{Limit: 1 << 20, Window: time.Hour})
	store := New(WithClock(func() weir.Instant { return 1_790_000_000_000_000 }))
	ctx := t.Context()
	for round := range 1000 {
		one := []weir.Claim{{Key: fmt.Sprint(round), Limit: l, Cost: 1}}
		two := []weir.Claim{one[0], {Key: "beside", Limit: beside, Cost: 1}}
		ways := []struct {
			units int64
			call  func(d []weir.Decision) error
		}{
			{1, func(d []weir.Decision) error { _, err := store.Decide(ctx, one, 1, d[:1]); return err }},
			{2, func(d []weir.Decision) error { _, err := store.Decide(ctx, one, 2, d[:1]); return err }},
			{1, func(d []weir.Decision) error { return store.Charge(ctx, one, d[:1]) }},
			{1, func(d []weir.Decision) error { _, err := store.Decide(ctx, two, 1, d[:2]); return err }},
		}
		a, b := ways[round%len(ways)], ways[round/len(ways)%len(ways)]
		var callers sync.WaitGroup
		for _, way := range []func([]weir.Decision) error{a.call, b.call} {
			callers.Go(func() {
				decisions := make([]weir.Decision, 2)
				for range 30 {
					if err := way(decisions); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		d := make([]weir.Decision, 1)
		if _, err := store.Decide(ctx, one, 0, d); err != nil {
			t.Fatal(err)
		}
		if got, want := l.Most()-d[0].Remaining, 30*(a.units+b.units); got != want {
			t.Fatalf("ways %d and %d: %d units are counted of %d", round%len(ways), round/len(ways)%len(ways), got, want)
		}
	}
}
