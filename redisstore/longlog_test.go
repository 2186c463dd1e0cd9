package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// pair opens a store on Redis and an embedded one, with one clock.
func pair(t *testing.T, now *int64) (inRedis, inMemory weir.Store) {
	clock := func() weir.Instant { return weir.Instant(*now) }
	memory := memstore.New(memstore.WithClock(clock))
	t.Cleanup(func() { _ = memory.Close() })
	return single(t).open(t, redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock)), memory
}

// A log of more than a block of 64 entries, or a group of 2,048, has sums of them, which charges,
// refunds and expiry must keep right: every field of every decision is the embedded store's, which has none.
func TestLongLogsAgreeWithTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	now := int64(1_790_000_000_123_456)
	inRedis, inMemory := pair(t, &now)
	draw := rand.New(rand.NewPCG(10, 3))
	for _, most := range []int64{100, 300, 1_000, 4_000, 4_000, 8_000} {
		l := logPair{t: t, draw: draw, now: &now, stores: [2]weir.Store{inRedis, inMemory}, most: most}
		l.limit()
		for range most {
			l.claims[0].Cost = 1 + draw.Int64N(2)
			now += draw.Int64N(3)
			l.take(1)
		}
		for range 2_500 {
			l.step()
		}
		l.each(func(s weir.Store) (int64, error) { return 0, s.Reset(t.Context(), l.claims) })
	}
}

// logPair is one sliding log in two stores.
type logPair struct {
	t      *testing.T
	draw   *rand.Rand
	now    *int64
	stores [2]weir.Store
	most   int64
	claims []weir.Claim
	taken  []int64
}

// limit draws the numbers: room for most charges.
func (l *logPair) limit() {
	units, window := l.most/2+l.draw.Int64N(2*l.most), l.most/2+l.draw.Int64N(3*l.most)
	limit := weir.MustLimit("long", weir.SlidingLog{Limit: units, Window: time.Duration(window) * time.Microsecond})
	l.claims = []weir.Claim{{Key: "key", Limit: limit, Cost: 1}}
}

// step is most often a charge or a refund, and now and then something that concerns many entries.
func (l *logPair) step() {
	claim := &l.claims[0]
	claim.Cost = 1 + l.draw.Int64N(1+l.draw.Int64N(4))
	*l.now += l.draw.Int64N(3)
	switch n := l.draw.IntN(1000); {
	case n < 600:
		l.take(1)
	case n < 900:
		l.refund()
	case n < 980:
		claim.Cost = l.draw.Int64N(claim.Limit.Most() + 2)
		l.take(l.draw.Int64N(2))
	case n < 988:
		*l.now += l.draw.Int64N(2 * l.most)
	case n < 993:
		*l.now -= l.draw.Int64N(l.most)
	case n < 996:
		l.empty()
	default:
		l.limit()
	}
}

// empty takes all units from the newest entries, in one order or the other: so whole blocks are
// without units, and go with the last of them.
func (l *logPair) empty() {
	n := min(len(l.taken), l.draw.IntN(int(l.most)))
	first, newest := len(l.taken)-n, l.draw.IntN(2) == 0
	l.claims[0].Cost = l.claims[0].Limit.Most()
	for i := range n {
		at := l.taken[first+i]
		if newest {
			at = l.taken[len(l.taken)-1-i]
		}
		for _, store := range l.stores {
			if err := store.Refund(l.t.Context(), l.claims, weir.Instant(at), nil); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	l.taken = l.taken[:first]
	l.claims[0].Cost = 1
	l.take(1)
}

func (l *logPair) take(times int64) {
	granted := l.each(func(s weir.Store) (int64, error) { return s.Decide(l.t.Context(), l.claims, times, nil) })
	if granted > 0 {
		l.taken = append(l.taken, *l.now)
	}
}

// refund gives back what was taken at some instant, most often a late one.
func (l *logPair) refund() {
	if len(l.taken) == 0 {
		return
	}
	i := len(l.taken) - 1 - l.draw.IntN(min(len(l.taken), 1+l.draw.IntN(int(l.most))))
	at := weir.Instant(l.taken[i])
	l.taken = append(l.taken[:i], l.taken[i+1:]...)
	l.each(func(s weir.Store) (int64, error) { return 0, s.Refund(l.t.Context(), l.claims, at, nil) })
}

// each does the same to both stores, and compares what they say then of several costs.
func (l *logPair) each(do func(weir.Store) (int64, error)) int64 {
	l.t.Helper()
	most := l.claims[0].Limit.Most()
	costs := [3]int64{1, l.draw.Int64N(most), most}
	var granted [2]int64
	var after [2][3]weir.Decision
	for i, store := range l.stores {
		var err error
		if granted[i], err = do(store); err != nil {
			l.t.Fatal(err)
		}
		for j, cost := range costs {
			claims := []weir.Claim{{Key: "key", Limit: l.claims[0].Limit, Cost: cost}}
			if _, err := store.Decide(l.t.Context(), claims, 0, after[i][j:j+1]); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	if granted[0] != granted[1] || after[0] != after[1] {
		l.t.Fatalf("%s at %d, %d units, then costs %v:\n  in Redis  %d %v\n  in memory %d %v",
			l.claims[0].Limit, *l.now, l.claims[0].Cost, costs, granted[0], after[0], granted[1], after[1])
	}
	return granted[0]
}
