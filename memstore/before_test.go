package memstore_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/memstore"
)

// limitsBefore are of every algorithm that grants several times at once.
var limitsBefore = []weir.Spec{
	weir.PerSecond(10),
	weir.GCRA(20, 7, time.Second), // the interval is no whole number of µs
	weir.LeakyQueue(3, time.Second, 8),
	weir.TokenBucket{Capacity: 9, Refill: 1_000_003, Period: time.Second, Overdraft: 5},
	weir.TokenBucket{Capacity: 12, Refill: 5, Period: time.Second, Mode: weir.Step, Overdraft: 4},
	weir.FixedWindow{Limit: 15, Window: time.Second},
	weir.FixedWindow{Limit: 15, Window: time.Second, Anchor: weir.Epoch},
	weir.Calendar{Limit: 15, Unit: weir.Minute}, weir.SlidingLog{Limit: 15, Window: time.Second},
	weir.SlidingCounter{Limit: 15, Window: time.Second, Slices: 1},
	weir.SlidingCounter{Limit: 15, Window: time.Second, Slices: 10},
}

func TestBeforeEqualsSingleDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := int64(1_790_000_000_123_456)
		store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now) }))
		defer store.Close()
		var state bucket.State // of the token buckets
		claims := []weir.Claim{{Key: "key",
			Limit: weir.MustLimit("limit", rapid.SampledFrom(limitsBefore).Draw(t, "limit"))}}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			now += rapid.Int64Range(-100_000, 1_200_000).Draw(t, "by")
			claims[0].Cost = rapid.Int64Range(0, 4).Draw(t, "cost")
			checkBefore(t, store, claims, &state, now)
		}
	})
}

func checkBefore(t *rapid.T, store weir.Store, claims []weir.Claim, state *bucket.State, now int64) {
	var told []weir.Decision
	var d [1]weir.Decision
	c := &claims[0]
	for range 12 {
		if granted, _ := store.Decide(t.Context(), claims, 1, d[:]); granted == 0 {
			break
		}
		told = append(told, d[0])
		*state = bucket.Charge(c.Limit, *state, c.Cost, now)
	}
	store.Decide(t.Context(), claims, 0, d[:])
	for i, want := range told {
		n := int64(len(told)-1-i) * c.Cost
		got := algorithm.Before(d[0], n)
		if c.Limit.Algorithm() == weir.AlgorithmTokenBucket {
			got = bucket.Before(c.Limit, *state, n, c.Cost, now)
		}
		if n > 0 && got != want {
			t.Fatalf("%s, %d of %d taken, %d each: got %+v, want %+v", c.Limit, i+1, len(told), c.Cost, got, want)
		}
	}
}

// TestSettlementOfAnEmptyStateHasItsOwnNumbers: once all units are given back a state is the initial one, and has no
// longer slices or window in which a settlement would have to stay.
func TestSettlementOfAnEmptyStateHasItsOwnNumbers(t *testing.T) {
	now := weir.Instant(1_790_000_000_123_456)
	for _, limits := range [][2]weir.Spec{
		{weir.SlidingCounter{Limit: 1, Window: time.Second, Slices: 1}, weir.SlidingCounter{Limit: 1, Window: time.Second / 2, Slices: 1}},
		{weir.SlidingLog{Limit: 1, Window: time.Second}, weir.SlidingLog{Limit: 1, Window: time.Second / 2}},
	} {
		store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
		longer := weir.Claim{Key: "k", Limit: weir.MustLimit("l", limits[0]), Cost: 1}
		shorter := weir.Claim{Key: "k", Limit: weir.MustLimit("l", limits[1]), Cost: 1}
		settled := shorter
		settled.Settle = true
		var used, fresh [1]weir.Decision
		if _, err := store.Decide(t.Context(), []weir.Claim{longer}, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := store.Refund(t.Context(), []weir.Claim{longer}, now, nil); err != nil {
			t.Fatal(err)
		}
		if err := store.Charge(t.Context(), []weir.Claim{settled}, used[:]); err != nil {
			t.Fatal(err)
		}
		if err := memstore.New(memstore.WithClock(func() weir.Instant { return now })).Charge(t.Context(),
			[]weir.Claim{settled}, fresh[:]); err != nil {
			t.Fatal(err)
		}
		if used != fresh {
			t.Errorf("%v after %v: %+v, want %+v", limits[1], limits[0], used[0], fresh[0])
		}
	}
}
