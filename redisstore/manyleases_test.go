package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// Of many leases that expired a call takes some out of Redis: what is left of them must not be
// held again where the clock steps back, and what was taken since must be.
func TestManyExpiredLeasesAgreeWithTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	now := int64(1_790_000_000_123_456)
	inRedis, inMemory := pair(t, &now)
	draw := rand.New(rand.NewPCG(10, 4))
	for round := range 8 {
		most := 1 + int64(round/4)*2 // units of a lease
		for i := range 1_500 {
			capacity := 400 * most
			if draw.IntN(4) == 0 { // lowered for a while
				capacity = 1 + draw.Int64N(capacity)
			}
			limit := weir.MustLimit("held", weir.Concurrency{Limit: capacity, TTL: time.Duration(500+draw.IntN(3)*500) * time.Microsecond})
			lease := fmt.Sprint("lease-", draw.IntN(300))
			cost := 1 + draw.Int64N(most)
			if draw.IntN(8) == 0 {
				cost = 1 + draw.Int64N(capacity)
			}
			claims := []weir.Claim{{Key: fmt.Sprint("key-", round), Limit: limit, Cost: cost, Lease: lease}}
			back := int64(0)
			switch n := draw.IntN(200); {
			case n < 2: // all expire, and some of them are alive again
				now += 1_500
				back = draw.Int64N(1_500)
			case n < 100:
				now += draw.Int64N(4)
			}
			release := draw.IntN(8) == 0
			claims[0].Renew = !release && draw.IntN(8) == 0
			got, want := leaseAnswer(t, inRedis, claims, release), leaseAnswer(t, inMemory, claims, release)
			if got != want {
				t.Fatalf("round %d, step %d, at %d, %+v release %v:\n  in Redis  %s\n  in memory %s", round, i, now, claims[0], release,
					got, want)
			}
			now -= back
		}
	}
}

// leaseAnswer is what a store says to a claim of a lease, or to its release.
func leaseAnswer(t *testing.T, store weir.Store, claims []weir.Claim, release bool) string {
	var granted int64
	var after [1]weir.Decision
	var err error
	if release {
		err = store.Refund(t.Context(), claims, 1, after[:])
	} else {
		granted, err = store.Decide(t.Context(), claims, 1, after[:])
	}
	return fmt.Sprint(granted, " ", err, " ", after[0])
}

// Of the leases that expired a call takes few out of Redis, but all of them are nobody's: members come to be told apart
// and take a lease of the same id again.
func TestExpiredLeasesOfMembersAgreeWithTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	now := int64(1_790_000_000_123_456)
	inRedis, inMemory := pair(t, &now)
	draw := rand.New(rand.NewPCG(10, 5))
	limit := weir.MustLimit("held", weir.Fair{Of: weir.Concurrency{Limit: 60, TTL: time.Millisecond}, Above: 40, MaxKeys: 1})
	for i := range 8_000 {
		if now += draw.Int64N(30); draw.IntN(20) == 0 { // nearly all expire, at times all
			now += 700 + draw.Int64N(500)
		}
		back := max(0, draw.Int64N(1_200)-900)
		now -= back
		release := draw.IntN(8) == 0
		claims := []weir.Claim{{Key: fmt.Sprint("key-", i/1_000), Limit: limit, Cost: 1 + draw.Int64N(3),
			Member: fmt.Sprint("member-", draw.IntN(3)), Weight: 1 + draw.Int64N(2), Lease: fmt.Sprint("lease-", draw.IntN(8)),
			Renew: !release && draw.IntN(6) == 0}}
		got, want := leaseAnswer(t, inRedis, claims, release), leaseAnswer(t, inMemory, claims, release)
		if got != want {
			t.Fatalf("step %d, at %d, %+v release %v:\n  in Redis  %s\n  in memory %s", i, now, claims[0], release, got, want)
		}
		now += back
	}
}
