package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
)

// One call serves all callers that find the lease used up.
func TestCallersShareARefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(5*time.Millisecond, nil, nil)
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() { b.ask(claims) })
		}
		callers.Wait()
		if times, _ := b.below.seen(); len(times) > 2 || slices.Contains(times, 1) {
			t.Errorf("30 callers made the calls %d, want one for those it is enough for and one for the rest", times)
		}
	})
}

// A caller that leaves does not end the refill of the others.
func TestRefillOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(10*time.Millisecond, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		began := time.Now()
		var others sync.WaitGroup
		others.Go(func() {
			time.Sleep(time.Millisecond)
			b.ask(claims)
			if waited := time.Since(began); waited != 20*time.Millisecond {
				t.Errorf("the second caller waited until %v, want the first one's refill at 20ms", waited)
			}
		})
		_, err := b.Decide(ctx, claims, 1, make([]weir.Decision, 1))
		if !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != 5*time.Millisecond {
			t.Errorf("the caller who went away got %v after %v", err, time.Since(began))
		}
		others.Wait()
	})
}

// Held units are spent until their time is over; then callers get the store's error.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(480, claims)
		away := fmt.Errorf("%w: away", weir.ErrUnavailable)
		b.below.set(0, away, nil)
		began, passed := time.Now(), 0
		var err error
		for err == nil {
			if _, err = b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)); err == nil {
				passed++
			}
			time.Sleep(time.Millisecond)
		}
		if passed == 0 || time.Since(began) > lease.DefaultHold || !errors.Is(err, away) {
			t.Errorf("%d passed in %v, then %v", passed, time.Since(began), err)
		}
		b.below.set(0, nil, nil)
		b.many(100, claims)
	})
}

// A grant whose reply was lost is not spent, because it may not have been charged.
func TestLostReplyLeavesUnitsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(500, claims)
		b.expire()
		b.below.set(0, nil, weir.ErrUnavailable)
		if _, err := b.Decide(t.Context(), claims, 1, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("a lost reply: %v", err)
		}
		b.below.set(0, nil, nil)
		b.below.seen()
		b.ask(claims)
		if times, _ := b.below.seen(); len(times) != 1 {
			t.Errorf("calls %d after it, want one", times)
		}
	})
}

// During an outage one lease in each sweep is tried, and the others stay due.
func TestOutageReturnsOneLeaseARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, limit := open(t, tenth), daily(1_000_000)
		for i := range 20 {
			claims := []weir.Claim{{Key: fmt.Sprint(i), Limit: limit, Cost: 1}}
			for range 6 {
				b.ask(claims)
			}
		}
		leased := b.Stats()
		b.below.set(0, weir.ErrUnavailable, nil)
		time.Sleep(lease.DefaultHold + 60*time.Millisecond)
		b.below.set(0, nil, nil)
		time.Sleep(second)
		stats := b.Stats()
		if stats.Leases != 0 || stats.Lost == 0 || stats.Lost > leased.Taken/4 || stats.Returned < leased.Taken/4 {
			t.Errorf("%+v, then %+v", leased, stats)
		}
	})
}

// A store slower than leases are held gets single calls.
func TestLateGrantIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, claims := open(t, tenth), one(daily(1_000_000))
		b.many(100, claims)
		b.expire()
		b.below.set(60*time.Millisecond, nil, nil)
		b.many(3, claims)
		times, refunds := b.below.seen()
		if len(times) != 4 || slices.Max(times[1:]) != 1 || len(refunds) != 1 || refunds[0].Cost != times[0] {
			t.Errorf("calls %d, given back %v, want one lease, back soon, and 3 single calls", times, refunds)
		}
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() { b.many(4, claims) })
		}
		callers.Wait()
		if times, _ := b.below.seen(); len(times) != 120 {
			t.Errorf("%d calls for 120 requests, want single ones", len(times))
		}
	})
}
