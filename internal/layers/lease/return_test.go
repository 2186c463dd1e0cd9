package lease_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
)

// Unspent units go back in time, and no more than those.
func TestUnusedUnitsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(95, claims)
		used := b.Stats().Taken
		held := 1_000_000 - 95 - b.remaining(claims)
		if held <= 0 {
			t.Fatal("nothing is held")
		}
		time.Sleep(lease.DefaultHold - time.Millisecond)
		if got := 1_000_000 - 95 - b.remaining(claims); got != held {
			t.Errorf("%d of %d held before the time is over", got, held)
		}
		time.Sleep(26 * time.Millisecond)
		if got := 1_000_000 - 95 - b.remaining(claims); got != 0 {
			t.Errorf("%d still held after it", got)
		}
		stats := b.Stats()
		if stats.Returned != held || stats.Taken != used || stats.Lost != 0 {
			t.Errorf("%d held, %+v", held, stats)
		}
	})
}

func TestCloseGivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.below.Store = &unclosed{b.below.Store}
		b.many(95, claims)
		other := []weir.Claim{{Key: "late", Limit: claims[0].Limit, Cost: 1}}
		b.many(9, other)
		b.expire()
		b.below.set(20*time.Millisecond, nil, nil)
		go b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)) // a refill is under way
		time.Sleep(5 * time.Millisecond)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.below.set(0, nil, nil)
		synctest.Wait()
		if left, passed := b.remaining(claims), int64(95); left < 1_000_000-passed-1 || left > 1_000_000-passed {
			t.Errorf("%d left after %d requests and one more at most", left, passed)
		}
		if left := b.remaining(other); left != 1_000_000-9 {
			t.Errorf("%d left after 9 requests", left)
		}
		b.below.Store.(*unclosed).Store.Close()
		if _, err := b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// However many leases are over at once, and however slowly they go back.
func TestCloseDoesNotWaitForTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openIdle(t, tenth)
		for i := range 30 {
			claims := []weir.Claim{{Key: strconv.Itoa(i), Limit: daily(1_000_000), Cost: 1}}
			for range 5 {
				b.ask(claims)
			}
		}
		if n := b.Stats().Leases; n != 30 {
			t.Fatalf("%d leases, want 30", n)
		}
		b.below.set(400*time.Millisecond, nil, nil)
		time.Sleep(2 * second) // the sweep is under way
		began := time.Now()
		b.Close()
		if took := time.Since(began); took > 3*lease.DefaultTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// unclosed is a store that stays open, to look into.
type unclosed struct{ weir.Store }

func (*unclosed) Close() error { return nil }

// Units of a lease that was reset are not spent, and not credited to anybody.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		global := weir.MustLimit("global", weir.FixedWindow{Limit: 1_000_000, Window: 24 * time.Hour})
		both := append(slices.Clone(claims), weir.Claim{Key: "all", Limit: global, Cost: 1})
		b.many(95, both)
		b.below.seen()
		others := []weir.Claim{{Key: "other", Limit: global}, claims[0]}
		if err := b.Reset(t.Context(), others); err != nil {
			t.Fatal(err)
		}
		_, refunds := b.below.seen()
		if len(refunds) != 1 || refunds[0].Limit != global {
			t.Errorf("given back: %+v, want what the other limit was charged", refunds)
		}
		if left := b.remaining(both[1:]); left != 1_000_000-95 {
			t.Errorf("the other limit has %d left", left)
		}
		b.many(1, both)
		if times, _ := b.below.seen(); !slices.Equal(times, []int64{1}) {
			t.Errorf("after the reset the calls were %d, want a single one", times)
		}
		time.Sleep(second)
		if left := b.remaining(claims); left != 1_000_000-1 {
			t.Errorf("%d left after a reset and one request", left)
		}
	})
}

// Events of a key during its reset end with the reset.
func TestDuringAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(45, claims)
		b.below.seen()
		reset := make(chan error)
		b.below.set(lease.DefaultHold, nil, nil)
		go func() { reset <- b.Reset(t.Context(), claims) }()
		synctest.Wait()
		b.below.set(0, nil, nil)
		time.Sleep(lease.DefaultHold - 20*time.Millisecond)
		if _, refunds := b.below.seen(); len(refunds) != 0 {
			t.Errorf("given back during the reset: %v", refunds)
		}
		b.many(10, claims)
		if b.Stats().Leases != 1 {
			t.Fatal("nothing was leased during the reset")
		}
		if err := <-reset; err != nil {
			t.Fatal(err)
		}
		b.below.seen()
		b.many(1, claims)
		if times, refunds := b.below.seen(); !slices.Equal(times, []int64{1}) || len(refunds) != 0 {
			t.Errorf("after the reset: calls %d, given back %v, want a single call", times, refunds)
		}
	})
}

// A lease that is being taken while its key is reset is not spent either.
func TestResetDuringARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(10*time.Millisecond, nil, nil)
		var caller sync.WaitGroup
		caller.Go(func() { b.ask(claims) })
		time.Sleep(15 * time.Millisecond) // charged, on its way back
		if err := b.Reset(t.Context(), claims); err != nil {
			t.Fatal(err)
		}
		caller.Wait()
		times, refunds := b.below.seen()
		if len(times) != 2 || times[1] != 1 || len(refunds) != 0 || b.Stats().Leases != 0 {
			t.Errorf("calls %d, given back %v, want the refill, a single call and nothing", times, refunds)
		}
	})
}

// A limit with new numbers abandons the old lease, whose units go back.
func TestRulesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, old, new := open(t, tenth), one(daily(1_000_000)), one(daily(50))
		b.many(40, old)
		if b.Stats().Leases != 1 {
			t.Fatal("nothing is leased")
		}
		b.below.seen()
		granted, _ := b.ask(new)
		if times, _ := b.below.seen(); !slices.Equal(times, []int64{1}) {
			t.Errorf("the new rule's request made the calls %d (granted: %v), want its own", times, granted)
		}
		time.Sleep(second)
		passed := int64(40)
		if granted {
			passed++
		}
		if left := b.remaining(new); left != 50-passed {
			t.Errorf("%d left of 50 after %d requests", left, passed)
		}
	})
}

// Units count until their return has ended, also for the key's other leases.
func TestUnitsCountWhileReturning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, always(lease.Terms{Share: 0.001}))
		claims := one(weir.MustLimit("limit", weir.SlidingLog{Limit: 100_000, Window: time.Hour}))
		dear := slices.Clone(claims)
		dear[0].Cost = 2
		spent := int64(0)
		ask := func(claims []weir.Claim) {
			b.ask(claims)
			spent += claims[0].Cost
			if held := 100_000 - b.remaining(claims) - spent; held > 100 {
				t.Fatalf("%d units are held, the share is 100", held)
			}
			time.Sleep(100 * time.Microsecond)
		}
		for held := int64(0); spent < 300 || held < 70 || held > 80; { // of 100 taken
			ask(claims)
			held = 100_000 - b.remaining(claims) - spent
		}
		for refunds := 0; refunds == 0; { // until they set out, on a slow way
			b.below.set(50*time.Millisecond, nil, nil)
			time.Sleep(time.Millisecond)
			b.below.set(0, nil, nil)
			_, sent := b.below.seen()
			refunds = len(sent)
		}
		for range 20 {
			ask(claims)
		}
		for range 60 {
			ask(dear)
		}
	})
}

// On a Redis Cluster the claims of a decision have clocks of their own.
func TestEachClaimGoesBackAtItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, tenth)
		b.below.apart = true
		claims := one(daily(1_000_000))
		claims = append(claims, weir.Claim{Key: "a", Limit: claims[0].Limit, Cost: 1},
			weir.Claim{Key: "b", Limit: claims[0].Limit, Cost: 1})
		b.many(95, claims)
		b.below.seen()
		time.Sleep(lease.DefaultHold + 30*time.Millisecond)
		b.below.mu.Lock()
		taken := b.below.taken
		b.below.mu.Unlock()
		if len(taken) != 3 || taken[1] != taken[0]+1 || taken[2] != taken[0]+2 {
			t.Errorf("given back at %d, want each at its own", taken)
		}
	})
}

// A way back that fails may have succeeded: it is not taken again.
func TestUnitsAreReturnedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(95, claims)
		b.below.seen()
		b.below.set(0, nil, weir.ErrUnavailable)
		time.Sleep(second)
		if _, refunds := b.below.seen(); len(refunds) != 1 || b.Stats().Lost != refunds[0].Cost {
			t.Errorf("given back: %v; %+v", refunds, b.Stats())
		}
	})
}

// A lease of a window ends with it, not at its holding time.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	for name, spec := range map[string]weir.Spec{
		"fixed window": weir.FixedWindow{Limit: 1000, Window: second},
		"calendar":     weir.Calendar{Limit: 1000, Unit: weir.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, claims := open(t, tenth), one(weir.MustLimit("limit", spec))
				_, d := b.ask(claims)
				ends := time.Now().Add(d[0].ResetAfter)
				time.Sleep(time.Until(ends) - 30*time.Millisecond)
				for range 20 { // with a lease
					b.ask(claims)
				}
				before := b.Stats().Taken
				time.Sleep(time.Until(ends))
				b.below.seen()
				b.ask(claims)
				if times, _ := b.below.seen(); len(times) == 0 || before == 0 {
					t.Errorf("the first request of a window was answered from the last one's lease (%d taken)", before)
				}
			})
		})
	}
}
