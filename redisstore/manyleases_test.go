package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// Of many leases that expired a call takes some out of Redis: what is left of them must not be
// held again where the clock steps back, and what was taken since must be.
func TestManyExpiredLeasesAgreeWithTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	now := int64(1_790_000_000_123_456)
	clock := func() weir.Instant { return weir.Instant(now) }
	inRedis := single(t).open(t, redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock))
	inMemory := memstore.New(memstore.WithClock(clock))
	defer inMemory.Close()
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
			var granted [2]int64
			var said [2]string
			var after [2][1]weir.Decision
			for j, store := range []weir.Store{inRedis, inMemory} {
				var err error
				if release {
					err = store.Refund(t.Context(), claims, 1, after[j][:])
				} else {
					granted[j], err = store.Decide(t.Context(), claims, 1, after[j][:])
				}
				said[j] = fmt.Sprint(err)
			}
			if granted[0] != granted[1] || said[0] != said[1] || after[0] != after[1] {
				t.Fatalf("round %d, step %d, at %d, %+v release %v:\n  in Redis  %d %s %v\n  in memory %d %s %v", round, i, now, claims[0], release,
					granted[0], said[0], after[0], granted[1], said[1], after[1])
			}
			now -= back
		}
	}
}
