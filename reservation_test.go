package weir_test

import (
	"context"
	"errors"
	"testing"
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
		weir.PerHour(100), weir.FixedWindow{Limit: 100, Window: time.Hour}, weir.SlidingLog{Limit: 100, Window: time.Hour},
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

func TestSettleRefusesNonsense(t *testing.T) {
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
	if refused.Answer.Allowed || refused.Answer.RetryAfter != 5*time.Second || err.Error() != `limit "l" (60/1m) refused: retry after 5s` {
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

func TestALeaseLostMeanwhileIsSaidAndTheRestIsSettled(t *testing.T) {
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

// nodes is a store whose limits live on nodes with clocks of their own, each a
// microsecond ahead of the one before; the first lost its leases.
type nodes struct {
	weir.Store
	refunds map[weir.Instant]int
}

func (n *nodes) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
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

func TestEachNodeIsToldItsOwnTime(t *testing.T) {
	store := &nodes{Store: memstore.New(), refunds: make(map[weir.Instant]int)}
	l := limiterOn(t, store, weir.Concurrency{Limit: 9, TTL: time.Hour}, weir.Concurrency{Limit: 9, TTL: time.Hour}, weir.PerHour(9))
	if err := reserve(t, l, 5).Settle(t.Context(), 3); !errors.Is(err, weir.ErrLeaseGone) {
		t.Errorf("got %v", err)
	}
	for taken := range weir.Instant(3) {
		if store.refunds[taken] != 1 {
			t.Errorf("the node at %d was told %d times", taken, store.refunds[taken])
		}
	}
}

func TestSettleIsRepeatedWithoutHarmAfterAnError(t *testing.T) {
	for _, actual := range []int64{2, 8} {
		for fails := 1; fails <= 2; fails++ {
			store := &broken{Store: memstore.New(), fails: fails}
			l := limiterOn(t, store, weir.SlidingLog{Limit: 10, Window: time.Hour}, weir.Concurrency{Limit: 10, TTL: time.Hour})
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
	if answer := must[weir.Answer](t)(l.Peek(t.Context(), "key")); answer.Remaining != 1 || answer.Limit.Name() != "l.2" {
		t.Errorf("4 of 5 an hour were used: %+v", answer)
	}
}

func TestAcquireNeedsAConcurrencyLimit(t *testing.T) {
	l, _ := drive(t, weir.PerHour(5))
	if _, err := l.Acquire(t.Context(), "key"); !isInput(err) || remaining(t, l) != 5 {
		t.Errorf("got %v", err)
	}
}
