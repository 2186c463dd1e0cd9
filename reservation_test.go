package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func reserve(tb testing.TB, l *weir.Limiter, n int64) *weir.Reservation {
	tb.Helper()
	return must[*weir.Reservation](tb)(l.Reserve(tb.Context(), "key", n))
}

func settle(tb testing.TB, r *weir.Reservation, actual int64) {
	tb.Helper()
	if err := r.Settle(tb.Context(), actual); err != nil {
		tb.Fatal(err)
	}
}

func TestSettle(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.PerHour(100), weir.FixedWindow{Limit: 100, Window: time.Hour},
		weir.SlidingLog{Limit: 100, Window: time.Hour},
		weir.SlidingCounter{Limit: 100, Window: time.Hour, Slices: 6}, weir.Calendar{Limit: 100, Unit: weir.Year},
	} {
		for _, actual := range []int64{0, 1, 39, 40, 41, 100} {
			l, _ := drive(t, spec, weir.SlidingLog{Limit: 100, Window: time.Minute})
			r := reserve(t, l, 40)
			if !r.Answer().Allowed || remaining(t, l) != 60 {
				t.Fatalf("%v: reserved 40: %+v", spec, r.Answer())
			}
			settle(t, r, actual)
			if got := remaining(t, l); got != 100-actual {
				t.Errorf("%v: 40 reserved, %d used: %d are left", spec, actual, got)
			}
			settle(t, r, 7) // a second call does nothing
			if got := remaining(t, l); got != 100-actual {
				t.Errorf("%v: settled twice: %d are left", spec, got)
			}
		}
	}
}

func TestSettleChargesBeyondTheLimit(t *testing.T) {
	l, clock := drive(t, weir.PerMinute(60))
	settle(t, reserve(t, l, 60), 90)
	if answer := allow(t, l, 1); answer.Allowed || answer.RetryAfter != 31*time.Second {
		t.Fatalf("30 in debt: %+v", answer)
	}
	clock.advance(31 * time.Second)
	if !allow(t, l, 1).Allowed {
		t.Error("the debt does not end")
	}
}

func TestSettleRefusesInvalidCosts(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(60))
	r := reserve(t, l, 10)
	for _, actual := range []int64{-1, weir.MaxUnits + 1} {
		if err := r.Settle(t.Context(), actual); !isInput(err) {
			t.Errorf("settled with %d: %v", actual, err)
		}
	}
	settle(t, r, 0) // and was still open
	if remaining(t, l) != 60 {
		t.Error("the cancelled units are gone")
	}
}

func TestAWindowThatPassedIsNotCredited(t *testing.T) {
	l, clock := drive(t, weir.FixedWindow{Limit: 10, Window: time.Minute})
	r := reserve(t, l, 5)
	clock.advance(time.Minute)
	allow(t, l, 3)
	settle(t, r, 0)
	if got := remaining(t, l); got != 7 {
		t.Errorf("%d are left of a window that lost 3", got)
	}
}

func TestReserveIsRefused(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(60))
	allow(t, l, 60)
	_, err := l.Reserve(t.Context(), "key", 5)
	var refused *weir.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, weir.ErrRefused) || errors.Is(err, weir.ErrNever) {
		t.Fatalf("got %v", err)
	}
	if refused.Answer.Allowed || refused.Answer.RetryAfter != 5*time.Second ||
		err.Error() != `limit "l" (60/1m) refused: retry after 5s` {
		t.Errorf("%q, %+v", err, refused.Answer)
	}
	for _, n := range []int64{-1, weir.MaxUnits + 1} {
		if _, err := l.Reserve(t.Context(), "key", n); !isInput(err) {
			t.Errorf("reserved %d: %v", n, err)
		}
	}
}

func TestAReservationHoldsItsLeaseUntilItIsSettled(t *testing.T) {
	for _, actual := range []int64{0, 1, 2, 3} {
		l, _ := drive(t, weir.Concurrency{Limit: 2, TTL: time.Minute}, weir.PerHour(10))
		r := reserve(t, l, 2)
		if _, err := l.Reserve(t.Context(), "key", 1); !errors.Is(err, weir.ErrRefused) {
			t.Fatalf("a third unit is held: %v", err)
		}
		settle(t, r, actual)
		answer := must[weir.Answer](t)(l.PeekN(t.Context(), "key", 2))
		if !answer.Allowed || answer.Limit.Name() != "l" || answer.Remaining != 2 {
			t.Errorf("settled with %d: %+v by %s", actual, answer, answer.Limit.Name())
		}
		if hour := must[weir.Answer](t)(l.PeekN(t.Context(), "key", 3)); hour.RetryAfter != weir.Never {
			t.Errorf("3 of 2: %+v", hour)
		}
	}
}

// llm is 60 requests and 100,000 tokens a minute, 10 at once.
func llm(t *testing.T) (*weir.Limiter, func() [3]int64) {
	store := memstore.New(memstore.WithClock(func() weir.Instant { return 1_790_000_000_000_000 }))
	l := limiterOn(t, store, weir.PerMinute(60), weir.PerMinute(100_000), weir.Concurrency{Limit: 10, TTL: time.Minute})
	left := func() (left [3]int64) {
		for i, limit := range l.Limits() {
			own := must[*weir.Limiter](t)(weir.NewLimiter(store, limit))
			left[i] = must[weir.Answer](t)(own.Peek(t.Context(), "team")).Remaining
		}
		return left
	}
	return l, left
}

func TestEachLimitHasItsCost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		settle func(r *weir.Reservation) error
		left   [3]int64
	}{
		{"less", func(r *weir.Reservation) error { return r.SettleEach(t.Context(), 1, 1234, 1) },
			[3]int64{59, 98_766, 10}},
		{"more", func(r *weir.Reservation) error { return r.SettleEach(t.Context(), 2, 5000, 1) },
			[3]int64{58, 95_000, 10}},
		{"less and more", func(r *weir.Reservation) error { return r.SettleEach(t.Context(), 3, 0, 0) },
			[3]int64{57, 100_000, 10}},
		{"nothing", func(r *weir.Reservation) error { return r.Cancel(t.Context()) }, [3]int64{60, 100_000, 10}},
	} {
		l, left := llm(t)
		r := must[*weir.Reservation](t)(l.ReserveEach(t.Context(), "team", 1, 4000, 1))
		if got := left(); got != [3]int64{59, 96_000, 9} {
			t.Errorf("reserved: %v are left", got)
		}
		for range 2 { // the second does nothing
			if err := tt.settle(r); err != nil || left() != tt.left {
				t.Errorf("%s: %v are left (%v), want %v", tt.name, left(), err, tt.left)
			}
		}
	}
}

func TestARequestThatOneOfItsCostsExceedsChargesNothing(t *testing.T) {
	l, left := llm(t)
	var refused *weir.RefusedError
	_, err := l.ReserveEach(t.Context(), "team", 1, 100_001, 1)
	if !errors.As(err, &refused) || !errors.Is(err, weir.ErrNever) || refused.Answer.Limit.Capacity() != 100_000 ||
		left() != [3]int64{60, 100_000, 10} {
		t.Errorf("%v, %v are left", err, left())
	}
}

func TestCostsAreOneForEachLimit(t *testing.T) {
	l, left := llm(t)
	r := must[*weir.Reservation](t)(l.ReserveEach(t.Context(), "team", 1, 4000, 1))
	for name, err := range map[string]error{
		"two of three":               second(l.ReserveEach(t.Context(), "team", 1, 4000)),
		"below zero":                 second(l.ReserveEach(t.Context(), "team", 1, -1, 1)),
		"Allow two of three":         second(l.AllowEach(t.Context(), "team", 1, 1)),
		"Wait two of three":          l.WaitEach(t.Context(), "team", 1, 1),
		"one cost for three":         r.Settle(t.Context(), 1234),
		"Settle two of three":        r.SettleEach(t.Context(), 1, 1),
		"Settle with less than none": r.SettleEach(t.Context(), 1, -1, 1),
	} {
		if !isInput(err) || left() != [3]int64{59, 96_000, 9} {
			t.Errorf("%s: %v, %v are left", name, err, left())
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestEachCostIsAllowedAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := limiterOn(t, memstore.New(), weir.PerSecond(10), weir.PerSecond(100)), time.Now()
		if answer := must[weir.Answer](t)(l.AllowEach(t.Context(), "key", 1, 80)); !answer.Allowed ||
			answer.Remaining != 20 {
			t.Errorf("the first: %+v", answer)
		}
		if answer := must[weir.Answer](t)(l.AllowEach(t.Context(), "key", 1, 30)); answer.Allowed ||
			answer.RetryAfter != 100*time.Millisecond {
			t.Errorf("10 tokens are missing: %+v", answer)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := l.WaitEach(t.Context(), "key", 1, 30); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took != 700*time.Millisecond {
			t.Errorf("three of 30 of which 20 were there: %v, want 700ms", took)
		}
	})
}

func TestSettleReportsALostLeaseAndSettlesTheRest(t *testing.T) {
	l, clock := drive(t, weir.Concurrency{Limit: 20, TTL: time.Minute}, weir.SlidingLog{Limit: 10, Window: time.Hour})
	r := reserve(t, l, 5)
	clock.advance(time.Minute)
	if err := r.Settle(t.Context(), 2); !errors.Is(err, weir.ErrLeaseGone) {
		t.Fatalf("got %v", err)
	}
	if got := remaining(t, l); got != 8 {
		t.Errorf("%d are left of 10, 2 used", got)
	}
	settle(t, r, 9) // it is over
	if got := remaining(t, l); got != 8 {
		t.Errorf("settled twice: %d are left", got)
	}
}

// broken is a store that fails once at the nth call that changes something.
type broken struct {
	weir.Store
	calls, fails int
}

var errBroken = errors.New("broken")

func (b *broken) fail() error {
	b.calls++
	if b.calls == b.fails {
		return errBroken
	}
	return nil
}

func (b *broken) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := b.fail(); err != nil {
		return err
	}
	return b.Store.Charge(ctx, claims, decisions)
}

func (b *broken) Refund(ctx context.Context, claims []weir.Claim, taken weir.Instant, decisions []weir.Decision) error {
	if err := b.fail(); err != nil {
		return err
	}
	return b.Store.Refund(ctx, claims, taken, decisions)
}

// nodes is a store whose limits live on nodes with separate clocks, each a
// microsecond ahead of the one before; the first lost its leases.
type nodes struct {
	weir.Store
	refunds map[weir.Instant]int
}

func (n *nodes) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64,
	error) {
	granted, err := n.Store.Decide(ctx, claims, times, decisions)
	for i := range decisions {
		decisions[i].At = weir.Instant(i)
	}
	return granted, err
}

func (n *nodes) Refund(_ context.Context, claims []weir.Claim, taken weir.Instant, _ []weir.Decision) error {
	n.refunds[taken] += len(claims)
	if taken == 0 {
		return weir.ErrLeaseGone
	}
	return nil
}

func TestRefundUsesTheTimeOfEachNode(t *testing.T) {
	store := &nodes{Store: memstore.New(), refunds: make(map[weir.Instant]int)}
	l := limiterOn(t, store, weir.Concurrency{Limit: 9, TTL: time.Hour}, weir.Concurrency{Limit: 9, TTL: time.Hour},
		weir.PerHour(9))
	if err := reserve(t, l, 5).Settle(t.Context(), 3); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("got %v", err)
	}
	for taken := range weir.Instant(3) {
		if store.refunds[taken] != 1 {
			t.Errorf("%d refunds at %d, want 1", store.refunds[taken], taken)
		}
	}
}

func TestSettleIsRepeatedWithoutHarmAfterAnError(t *testing.T) {
	for _, actual := range []int64{2, 8} {
		for fails := 1; fails <= 2; fails++ {
			store := &broken{Store: memstore.New(), fails: fails}
			l := limiterOn(t, store, weir.SlidingLog{Limit: 10, Window: time.Hour},
				weir.Concurrency{Limit: 10, TTL: time.Hour})
			r := reserve(t, l, 5)
			if err := r.Settle(t.Context(), actual); !errors.Is(err, errBroken) {
				t.Fatalf("call %d fails: %v", fails, err)
			}
			settle(t, r, actual)
			if got := remaining(t, l); got != 10-actual {
				t.Errorf("call %d failed, %d used of 10: %d are left", fails, actual, got)
			}
		}
	}
}

// When the work has ended its slots are free, whether or not its cost could be settled.
func TestFailedSettleReleasesLeases(t *testing.T) {
	store := &broken{Store: memstore.New()}
	l := limiterOn(t, store, weir.Concurrency{Limit: 10, TTL: time.Hour}, weir.SlidingLog{Limit: 10, Window: time.Hour})
	r := reserve(t, l, 5)
	store.fails = 1
	if err := r.Settle(t.Context(), 8); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if got := peekLimit(t, store, l.Limits()[0]); got != 10 {
		t.Errorf("%d of 10 slots are free after a failed Settle", got)
	}
	settle(t, r, 8)
	if got := peekLimit(t, store, l.Limits()[1]); got != 2 {
		t.Errorf("%d units are left after the repeated Settle, want 2", got)
	}
}

// peekLimit is what one limit has left.
func peekLimit(t *testing.T, store weir.Store, limit *weir.Limit) int64 {
	t.Helper()
	var d [1]weir.Decision
	if _, err := store.Decide(t.Context(), []weir.Claim{{Key: "key", Limit: limit, Cost: 1}}, 0, d[:]); err != nil {
		t.Fatal(err)
	}
	return d[0].Remaining
}

func TestAcquire(t *testing.T) {
	l, clock := drive(t, weir.Concurrency{Limit: 2, TTL: time.Minute})
	acquire := func(n int64) (*weir.Lease, error) { return l.AcquireN(t.Context(), "key", n) }
	first := must[*weir.Lease](t)(acquire(1))
	clock.advance(10 * time.Second)
	second := must[*weir.Lease](t)(l.Acquire(t.Context(), "key"))
	if len(first.ID()) != 22 || first.ID() == second.ID() {
		t.Errorf("the ids are %q and %q", first.ID(), second.ID())
	}
	if answer := second.Answer(); !answer.Allowed || answer.Remaining != 0 || answer.RetryAfter != 50*time.Second {
		t.Errorf("the second: %+v", answer)
	}
	if _, err := acquire(1); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a third: %v", err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Release(t.Context()); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("released twice: %v", err)
	}
	if err := first.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("renewed after its release: %v", err)
	}
	must[*weir.Lease](t)(acquire(1))
	if _, err := acquire(3); !errors.Is(err, weir.ErrNever) {
		t.Errorf("3 of 2: %v", err)
	}
}

func TestALeaseLivesAsLongAsItIsRenewed(t *testing.T) {
	l, clock := drive(t, weir.Concurrency{Limit: 1, TTL: time.Minute})
	lease := must[*weir.Lease](t)(l.Acquire(t.Context(), "key"))
	for range 5 {
		clock.advance(time.Minute - time.Microsecond)
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	clock.advance(time.Minute)
	if err := lease.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("renewed after its time-to-live: %v", err)
	}
	if _, err := l.Acquire(t.Context(), "key"); err != nil {
		t.Errorf("the holder died, and its unit with it: %v", err)
	}
}

func TestALeaseGivesBackOnlyWhatItHeld(t *testing.T) {
	l, _ := drive(t, weir.Concurrency{Limit: 5, TTL: time.Minute}, weir.PerHour(5))
	lease := must[*weir.Lease](t)(l.AcquireN(t.Context(), "key", 4))
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answer := must[weir.Answer](t)(l.Peek(t.Context(), "key")); answer.Remaining != 1 ||
		answer.Limit.Name() != "l.2" {
		t.Errorf("4 of 5 an hour were used: %+v", answer)
	}
}

func TestAcquireNeedsAConcurrencyLimit(t *testing.T) {
	l, _ := drive(t, weir.PerHour(5))
	if _, err := l.Acquire(t.Context(), "key"); !isInput(err) || remaining(t, l) != 5 {
		t.Errorf("got %v", err)
	}
}

// A cost of 0 for a concurrency limit takes no lease, and settling the others leaves it alone.
func TestReserveEachWithoutALease(t *testing.T) {
	held := weir.MustLimit("held", weir.Concurrency{Limit: 1, TTL: time.Minute})
	limiter, err := weir.NewLimiter(memstore.New(), weir.MustLimit("rate", weir.PerMinute(10)), held)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r, err := limiter.ReserveEach(t.Context(), "ann", 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.KeepAlive(t.Context(), nil)()
		if err := r.SettleEach(t.Context(), 3, 5); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := limiter.AcquireN(t.Context(), "ann", 0); err == nil {
		t.Error("a lease of nothing")
	}
}
