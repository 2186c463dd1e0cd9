package lease_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/memstore"
)

// A distant store takes its time for each refund, and counts those that are under way.
type distant struct {
	weir.Store
	away            time.Duration
	begun, underWay atomic.Int64
	most            atomic.Int64
}

func (d *distant) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, decisions []weir.Decision) error {
	d.begun.Add(1)
	d.most.Store(max(d.most.Load(), d.underWay.Add(1)))
	defer d.underWay.Add(-1)
	time.Sleep(d.away)
	return d.Store.Refund(ctx, claims, at, decisions)
}

// lendTo lets a number of keys earn a lease each.
func lendTo(t *testing.T, store weir.Store, keys int) (claims []weir.Claim) {
	t.Helper()
	limit := daily(1_000_000)
	for i := range keys {
		claim := weir.Claim{Key: fmt.Sprint("key-", i), Limit: limit, Cost: 1}
		claims = append(claims, claim)
		for range 5 {
			if granted, err := store.Decide(t.Context(), claims[i:], 1, make([]weir.Decision, 1)); granted != 1 ||
				err != nil {
				t.Fatal(granted, err)
			}
		}
	}
	return claims
}

// TestManyIdleKeysGoBackInTime: units of 500 keys over a store that takes 5 ms a call are back
// within what the documentation says of one key, and the calls of eight rounds.
func TestManyIdleKeysGoBackInTime(t *testing.T) {
	const keys, away = 500, 5 * time.Millisecond
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed: ", closed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				below := &distant{Store: &unclosed{memory}, away: away}
				store := lease.New(below, tenth)
				claims := lendTo(t, store, keys)
				if n := store.Stats().Leases; n != keys {
					t.Fatalf("%d leases, want %d", n, keys)
				}
				const rounds = 1 + (keys+63)/64
				if closed {
					began := time.Now()
					store.Close()
					if took := time.Since(began); took > rounds*away {
						t.Errorf("Close took %v, want %v at most", took, rounds*away)
					}
				} else {
					time.Sleep(lease.DefaultHold + 25*time.Millisecond + rounds*away)
				}
				back := store.Stats()
				if back.Returned == 0 || back.Lost != 0 || below.begun.Load() != keys || below.underWay.Load() != 0 {
					t.Errorf("%+v after %d refunds, %d under way; want %d, done", back, below.begun.Load(),
						below.underWay.Load(), keys)
				}
				if most := below.most.Load(); most > 64 {
					t.Errorf("%d refunds at the same time, want 64 at most", most)
				}
				for i := range claims {
					d := make([]weir.Decision, 1)
					if _, err := memory.Decide(t.Context(), slices.Clone(claims[i:i+1]), 0, d); err != nil ||
						d[0].Remaining != 1_000_000-5 {
						t.Fatalf("%s has %d left (%v), want all but 5", claims[i].Key, d[0].Remaining, err)
					}
				}
				store.Close()
			})
		})
	}
}

// TestLeaseEndsBeforeItsWindowByTheStoresClock: the store's clock may run a thousandth faster than
// this node's, and its times are rounded down. No unit passes when the window it was charged in is over there.
func TestLeaseEndsBeforeItsWindowByTheStoresClock(t *testing.T) {
	for _, window := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			const epoch = 1_790_000_000_000_000
			clock := func() weir.Instant {
				fast := time.Since(start)
				return epoch + weir.Instant((fast + fast/1001 + 900*time.Nanosecond).Microseconds())
			}
			below := &spy{Store: memstore.New(memstore.WithClock(clock))}
			store := lease.New(below, tenth)
			defer store.Close()
			claims := one(weir.MustLimit("limit",
				weir.FixedWindow{Limit: 1_000_000, Window: window, Anchor: weir.Epoch}))
			d := make([]weir.Decision, 1)
			for range 5 {
				store.Decide(t.Context(), claims, 1, d)
			}
			if store.Stats().Taken == 0 {
				t.Fatal("nothing was taken ahead")
			}
			ends := d[0].At + weir.Instant(d[0].ResetAfter.Microseconds())
			for time.Sleep(window - window/500); clock() < ends; {
				time.Sleep(100 * time.Nanosecond)
			}
			below.seen()
			store.Decide(t.Context(), claims, 1, d)
			if d[0].At < ends {
				t.Errorf("window %v: a unit of the window that ended at %d passed at %d", window, ends, clock())
			}
		})
	}
}
