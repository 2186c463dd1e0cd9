package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// limits are one of each algorithm and form.
var limits = map[string]weir.Spec{
	"bucket":            weir.TokenBucket{Capacity: 7, Refill: 3, Period: time.Second},
	"fraction":          weir.TokenBucket{Capacity: 5, Refill: 7, Period: 999_999 * time.Microsecond},
	"overdraft":         weir.TokenBucket{Capacity: 4, Refill: 5, Period: time.Second, Overdraft: 3},
	"steps":             weir.TokenBucket{Capacity: 9, Refill: 4, Period: time.Second, Mode: weir.Step},
	"window":            weir.FixedWindow{Limit: 6, Window: 1500 * time.Millisecond},
	"epoch":             weir.FixedWindow{Limit: 6, Window: 700 * time.Millisecond, Anchor: weir.Epoch},
	"calendar":          weir.Calendar{Limit: 40, Unit: weir.Minute, Zone: "Asia/Kathmandu"},
	"log":               weir.SlidingLog{Limit: 6, Window: time.Second},
	"two counters":      weir.SlidingCounter{Limit: 8, Window: time.Second, Slices: 1},
	"counter of slices": weir.SlidingCounter{Limit: 8, Window: 1200 * time.Millisecond, Slices: 6},
	"coarse counter":    weir.SlidingCounter{Limit: 1 << 30, Window: 7000 * time.Second, Slices: 7},
}

// period is that of a limit in µs.
func period(l *weir.Limit) int64 {
	if l.Algorithm() == weir.AlgorithmCalendar {
		return time.Minute.Microseconds()
	}
	return l.Period()
}

// The recount has arithmetic of its own, and grants what the store grants.
func TestRecountGrantsWhatTheStoreGrants(t *testing.T) {
	for name, spec := range limits {
		t.Run(name, func(t *testing.T) {
			limit := weir.MustLimit("limit", spec)
			now, most, period := weir.Instant(epoch.UnixMicro()), limit.Most(), period(limit)
			store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
			chance, c := rand.New(rand.NewPCG(7, 7)), newCounter(limit)
			granted := 0
			for i := range 20_000 {
				now += weir.Instant(chance.Int64N(1 + period*2/most))
				if chance.IntN(50) == 0 {
					now += weir.Instant(chance.Int64N(3 * period))
				}
				cost := 1 + chance.Int64N(max(3, most/8))
				n, err := store.Decide(context.Background(), []weir.Claim{{Key: "k", Limit: limit, Cost: cost}}, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				if over := c.over(int64(now), cost); (over == 0) != (n == 1) {
					t.Fatalf("step %d at %d: cost %d, granted %d, and %d over", i, now, cost, n, over)
				}
				if n == 1 {
					granted++
					c.charge(int64(now), cost)
				}
			}
			if granted < 1000 || granted > 19_000 {
				t.Errorf("%d of 20000 were granted, which tests little", granted)
			}
		})
	}
}

// Units that are charged beyond the limit are counted as over.
func TestRecountCountsTheExcess(t *testing.T) {
	at := epoch.UnixMicro()
	for name, spec := range limits {
		limit := weir.MustLimit("limit", spec)
		c := newCounter(limit)
		c.charge(at, limit.Most()+5)
		if got := c.over(at, 0); got != 5 {
			t.Errorf("%s: %d over, want 5", name, got)
		}
		if got := c.over(at+4*period(limit)*min(limit.Most()+5, 20), 0); got != 0 {
			t.Errorf("%s: %d over after a long time", name, got)
		}
	}
}

func ExampleParseFault() {
	fault, err := ParseFault("down 1m..90s lose=1s")
	fmt.Println(fault.Kind, fault.From, fault.To, fault.Lose, err)
	// Output: down 1m0s 1m30s 1s <nil>
}
