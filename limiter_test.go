package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// clock drives a store.
type clock struct{ at atomic.Int64 }

func (c *clock) now() weir.Instant { return weir.Instant(c.at.Load()) }

func (c *clock) advance(d time.Duration) { c.at.Add(d.Microseconds()) }

// drive makes a limiter called "l" on a new store whose clock the test moves.
func drive(tb testing.TB, specs ...weir.Spec) (*weir.Limiter, *clock) {
	tb.Helper()
	c := &clock{}
	c.at.Store(1_790_000_000_000_000)
	return limiterOn(tb, memstore.New(memstore.WithClock(c.now)), specs...), c
}

func limiterOn(tb testing.TB, store weir.Store, specs ...weir.Spec) *weir.Limiter {
	tb.Helper()
	l, err := weir.New(store, "l", specs...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close() })
	return l
}

// must is for calls that have no reason to fail.
func must[T any](tb testing.TB) func(T, error) T {
	return func(value T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

func allow(tb testing.TB, l *weir.Limiter, n int64) weir.Answer {
	tb.Helper()
	return must[weir.Answer](tb)(l.AllowN(tb.Context(), "key", n))
}

func remaining(tb testing.TB, l *weir.Limiter) int64 {
	tb.Helper()
	return must[weir.Answer](tb)(l.Peek(tb.Context(), "key")).Remaining
}

func TestAllow(t *testing.T) {
	l, clock := drive(t, weir.SlidingLog{Limit: 3, Window: time.Minute})
	for want := int64(2); want >= 0; want-- {
		answer := must[weir.Answer](t)(l.Allow(t.Context(), "key"))
		if !answer.Allowed || answer.Remaining != want || answer.At != clock.now() {
			t.Fatalf("with %d to be left: %+v", want, answer)
		}
		clock.advance(time.Second)
	}
	refused := allow(t, l, 1)
	if refused.Allowed || refused.RetryAfter != 57*time.Second || refused.ResetAfter != 59*time.Second {
		t.Fatalf("the fourth: %+v", refused)
	}
	if other := must[weir.Answer](t)(l.Allow(t.Context(), "another")); !other.Allowed {
		t.Fatalf("another key: %+v", other)
	}
	clock.advance(refused.RetryAfter - time.Microsecond)
	if early := allow(t, l, 1); early.Allowed || early.RetryAfter != time.Microsecond {
		t.Fatalf("a microsecond before its time: %+v", early)
	}
	clock.advance(time.Microsecond)
	if !allow(t, l, 1).Allowed {
		t.Fatal("refused at its own retry-after")
	}
}

func TestAllowNIsAllOrNothing(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(10))
	if answer := allow(t, l, 7); !answer.Allowed || answer.Remaining != 3 {
		t.Fatalf("7 of 10: %+v", answer)
	}
	if answer := allow(t, l, 4); answer.Allowed || answer.Remaining != 3 || answer.RetryAfter != 6*time.Second {
		t.Fatalf("4 of 3: %+v", answer)
	}
	if answer := allow(t, l, 3); !answer.Allowed || answer.Remaining != 0 {
		t.Fatalf("3 of 3: %+v", answer)
	}
}

func TestACostOfZeroAsksWhetherTheLimitIsExceeded(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(1))
	for _, when := range []string{"fresh", "used up"} {
		if answer := allow(t, l, 0); !answer.Allowed {
			t.Fatalf("%s: %+v", when, answer)
		}
		allow(t, l, 1)
	}
	over := must[*weir.Reservation](t)(l.Reserve(t.Context(), "indebted", 1))
	if err := over.Settle(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if answer := must[weir.Answer](t)(l.AllowN(t.Context(), "indebted", 0)); answer.Allowed ||
		answer.RetryAfter != time.Minute {
		t.Fatalf("exceeded: %+v", answer)
	}
}

func TestAllowAtMostTakesWhatIsLeft(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(10), weir.PerHour(15))
	for _, want := range []int64{7, 3, 0} {
		granted, answer, err := l.AllowAtMost(t.Context(), "key", 7)
		if err != nil {
			t.Fatal(err)
		}
		if granted != want || answer.Allowed != (want > 0) {
			t.Fatalf("of 7 at most: %+v, want %d", answer, want)
		}
	}
	if _, answer, err := l.AllowAtMost(t.Context(), "key", 1); err != nil || answer.Limit.Name() != "l" {
		t.Fatalf("decided by %v, error %v", answer.Limit, err)
	}
	for _, n := range []int64{0, -1, weir.MaxUnits + 1} {
		if _, _, err := l.AllowAtMost(t.Context(), "key", n); !isInput(err) {
			t.Errorf("at most %d: %v", n, err)
		}
	}
}

func isInput(err error) bool {
	var input *weir.InputError
	return errors.As(err, &input)
}

func TestPeekChangesNothing(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(2))
	for range 3 {
		if answer := must[weir.Answer](t)(l.PeekN(t.Context(), "key", 2)); !answer.Allowed || answer.Remaining != 2 {
			t.Fatalf("fresh: %+v", answer)
		}
	}
	allow(t, l, 1)
	for range 3 {
		if answer := must[weir.Answer](t)(l.PeekN(t.Context(), "key", 2)); answer.Allowed || answer.Remaining != 1 ||
			answer.RetryAfter != 30*time.Second {
			t.Fatalf("half used: %+v", answer)
		}
	}
}

func TestNeverIsNotAWait(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(10), weir.PerHour(100))
	if answer := allow(t, l, 11); answer.Allowed || answer.RetryAfter != weir.Never || answer.Limit.Name() != "l" {
		t.Fatalf("11 of 10: %+v", answer)
	}
	if answer := must[weir.Answer](t)(l.PeekN(t.Context(), "key", 11)); answer.Allowed {
		t.Fatalf("peeking 11 of 10: %+v", answer)
	}
	_, err := l.Reserve(t.Context(), "key", 11)
	for what, err := range map[string]error{"Reserve": err, "Wait": l.WaitN(t.Context(), "key", 11)} {
		var refused *weir.RefusedError
		if !errors.Is(err, weir.ErrNever) || !errors.Is(err, weir.ErrRefused) || !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if refused.Answer.RetryAfter != weir.Never || !strings.Contains(err.Error(), `limit "l" (10/1m)`) {
			t.Errorf("%s: %q, %+v", what, err, refused.Answer)
		}
	}
	if remaining(t, l) != 10 {
		t.Error("a cost that can never be granted was charged")
	}
}

func TestSeveralLimitsAreOneDecision(t *testing.T) {
	l, clock := drive(t, weir.SlidingLog{Limit: 1, Window: time.Minute}, weir.SlidingLog{Limit: 3, Window: time.Hour},
		weir.SlidingLog{Limit: 4, Window: 24 * time.Hour})
	decided := func(wantAllowed bool, wantLimit string, wantRetry time.Duration) {
		t.Helper()
		answer := allow(t, l, 1)
		if answer.Allowed != wantAllowed || answer.Limit.Name() != wantLimit || answer.RetryAfter != wantRetry {
			t.Fatalf("allowed %v by %s, retry after %v; want %v by %s, %v", answer.Allowed, answer.Limit.Name(),
				answer.RetryAfter, wantAllowed, wantLimit, wantRetry)
		}
	}
	decided(true, "l", time.Minute)
	for range 50 { // refused by the first, and charged to none
		decided(false, "l", time.Minute)
	}
	clock.advance(time.Minute)
	decided(true, "l", time.Minute)
	clock.advance(time.Minute)
	decided(true, "l.2", 58*time.Minute)
	clock.advance(time.Minute)
	decided(false, "l.2", 57*time.Minute)
	clock.advance(57 * time.Minute)
	decided(true, "l.3", 23*time.Hour)
	if names := fmt.Sprint(l.Limits()[0].Name(), l.Limits()[1].Name(), l.Limits()[2].Name()); names != "ll.2l.3" {
		t.Errorf("the limits are called %s", names)
	}
}

func TestTheDelayIsTheLongestOfAllLimits(t *testing.T) {
	for _, specs := range [][]weir.Spec{
		{weir.LeakyQueue(1, time.Second, 9), weir.LeakyQueue(2, time.Second, 1)},
		{weir.LeakyQueue(2, time.Second, 1), weir.LeakyQueue(1, time.Second, 9)},
	} {
		l, _ := drive(t, specs...)
		allow(t, l, 1)
		answer := allow(t, l, 1)
		if !answer.Allowed || answer.Delay != time.Second || answer.Limit.Spec() != specs[0] &&
			answer.Limit.Spec() != specs[1] || answer.RetryAfter != 500*time.Millisecond {
			t.Errorf("%v: %+v", specs, answer)
		}
	}
}

// One claim on one known key may take a shorter way through a store than two claims do.
func TestShortcutAnswersAsDecide(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	wide := weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Microsecond} // never decides
	for _, spec := range []weir.Spec{
		weir.PerSecond(10), weir.GCRA(5, 1, time.Second), weir.GCRA(7, 3, time.Second),
		weir.Borrowing(5, 1, time.Second, 3), weir.FixedWindow{Limit: 5, Window: time.Second},
	} {
		short, clock := drive(t, spec)
		store := memstore.New(memstore.WithClock(clock.now))
		long := limiterOn(t, store, spec, wide)
		for range 2000 {
			clock.advance(time.Duration(random.Int64N(700_000)-100_000) * time.Microsecond)
			n := random.Int64N(7)
			if random.Int64N(20) == 0 {
				n = random.Int64N(weir.MaxUnits)
			}
			if random.Int64N(10) == 0 { // overdrawn, sometimes
				overdraw(t, short, n%9)
				overdraw(t, long, n%9)
			}
			got := allow(t, short, n)
			granted, want := allowLong(t, store, long.Limits(), n)
			if got.Allowed != granted || got.Decision != want || got.Limit != short.Limits()[0] {
				t.Fatalf("%d of %v at %d: %+v; the long way: %v, %+v", n, spec, clock.now(), got, granted, want)
			}
		}
	}
}

func overdraw(t *testing.T, l *weir.Limiter, n int64) {
	t.Helper()
	if r, err := l.Reserve(t.Context(), "key", 1); err == nil {
		settle(t, r, n)
	}
}

// allowLong asks all limits at once, and describes the first.
func allowLong(t *testing.T, store weir.Store, limits []*weir.Limit, n int64) (bool, weir.Decision) {
	t.Helper()
	decisions := make([]weir.Decision, len(limits))
	var claims []weir.Claim
	for _, limit := range limits {
		claims = append(claims, weir.Claim{Key: "key", Limit: limit, Cost: n})
	}
	granted, err := store.Decide(t.Context(), claims, 1, decisions)
	if err != nil {
		t.Fatal(err)
	}
	return granted > 0, decisions[0]
}

func TestBadInputIsAnErrorOfEachMethod(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(5))
	allow(t, l, 1) // the key is known now
	for _, key := range []string{"", strings.Repeat("k", weir.MaxKey+1)} {
		if _, err := l.Allow(t.Context(), key); !isInput(err) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	for _, n := range []int64{-1, weir.MaxUnits + 1} {
		if _, err := l.AllowN(t.Context(), "key", n); !isInput(err) {
			t.Errorf("a cost of %d: %v", n, err)
		}
	}
	if remaining(t, l) != 4 {
		t.Error("bad input was charged")
	}
}

func TestWorse(t *testing.T) {
	never, long, short := weir.Decision{RetryAfter: weir.Never}, weir.Decision{RetryAfter: 9},
		weir.Decision{RetryAfter: 3}
	few, many := weir.Decision{Remaining: 1}, weir.Decision{Remaining: 2}
	order := []weir.Decision{never, long, short, few, many}
	for i := range order {
		for j := range order {
			if got := weir.Worse(&order[i], &order[j]); got != (i < j) {
				t.Errorf("%+v worse than %+v: got %v", order[i], order[j], got)
			}
		}
	}
}

// A program that sleeps RetryAfter, or the longest of several, must not spin.
func TestNeverIsTheLongestWait(t *testing.T) {
	if longest := weir.MaxUnits * time.Microsecond; max(longest, weir.Never) != weir.Never {
		t.Errorf("Never is %d, which is shorter than %v", weir.Never, longest)
	}
	synctest.Test(t, func(t *testing.T) {
		l := limiterOn(t, memstore.New(), weir.PerMinute(5), weir.SlidingLog{Limit: 10, Window: time.Hour})
		answer := must[weir.Answer](t)(l.AllowN(t.Context(), "key", 6))
		if answer.Allowed || answer.Limit.Capacity() != 5 {
			t.Errorf("the limit that can never grant did not decide: %+v", answer)
		}
		timer := time.NewTimer(answer.RetryAfter)
		defer timer.Stop()
		select {
		case <-timer.C:
			t.Errorf("a sleep of %v ended", answer.RetryAfter)
		case <-time.After(100 * 365 * 24 * time.Hour):
		}
	})
}

func TestReset(t *testing.T) {
	l, _ := drive(t, weir.PerMinute(2), weir.FixedWindow{Limit: 2, Window: time.Hour})
	allow(t, l, 2)
	if err := l.Reset(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	if answer := allow(t, l, 2); !answer.Allowed {
		t.Fatalf("after a reset: %+v", answer)
	}
	if err := l.Reset(t.Context(), ""); !isInput(err) {
		t.Errorf("a reset of no key: %v", err)
	}
}

func TestNewLimiterRefusesInvalidArguments(t *testing.T) {
	store := memstore.New()
	limit := weir.MustLimit("a", weir.PerMinute(1))
	many := make([]*weir.Limit, weir.MaxClaims+1)
	for i := range many {
		many[i] = weir.MustLimit(fmt.Sprint("a", i), weir.PerMinute(1))
	}
	for want, limits := range map[string][]*weir.Limit{
		"limits is 0; allowed: 1 to 32 of one limiter":       nil,
		"limits is 33; allowed: 1 to 32 of one limiter":      many,
		`limits is "none"; allowed: limits made by NewLimit`: {nil},
		`limits is "a twice"; allowed: a name for each`:      {limit, weir.MustLimit("a", weir.PerHour(2))},
	} {
		if _, err := weir.NewLimiter(store, limits...); !isInput(err) || err.Error() != "weir: "+want {
			t.Errorf("%v instead of %s", err, want)
		}
	}
	if _, err := weir.NewLimiter(store, new(weir.Limit)); !isInput(err) {
		t.Errorf("the zero Limit: %v", err)
	}
	if _, err := weir.NewLimiter(nil, limit); !isInput(err) {
		t.Errorf("no store: %v", err)
	}
	if _, err := weir.New(store, strings.Repeat("n", weir.MaxName), weir.PerMinute(1), weir.PerHour(2)); !isInput(err) {
		t.Errorf("a second name of 130 bytes: %v", err)
	}
	if _, err := weir.NewLimiter(store, many[1:]...); err != nil {
		t.Errorf("%d limits: %v", weir.MaxClaims, err)
	}
}

func TestClosedStoreReturnsErrClosed(t *testing.T) {
	store := memstore.New()
	l := limiterOn(t, store, weir.PerMinute(1))
	store.Close()
	_, err := l.Allow(t.Context(), "key")
	if !errors.Is(err, weir.ErrClosed) || !errors.Is(l.Wait(t.Context(), "key"), weir.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestALimiterOfManyCallersGrantsEachUnitOnce(t *testing.T) {
	l, _ := drive(t, weir.PerHour(100), weir.SlidingLog{Limit: 90, Window: time.Hour},
		weir.Concurrency{Limit: 95, TTL: time.Hour})
	plain := limiterOn(t, memstore.New(), weir.PerHour(100))
	var granted, held atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				if answer, err := plain.Allow(t.Context(), "key"); err == nil && answer.Allowed {
					granted.Add(1)
				}
				if _, err := l.Acquire(t.Context(), "key"); err == nil {
					held.Add(1)
				}
				if _, err := l.Allow(t.Context(), "key"); !isInput(err) {
					t.Errorf("Allow of a lease: %v", err)
				}
			}
		})
	}
	all.Wait()
	if granted.Load() != 100 || held.Load() != 90 {
		t.Errorf("granted %d of 100, leases %d of 90", granted.Load(), held.Load())
	}
}

// The tests below run in synctest bubbles: time passes when all goroutines sleep.

func TestWaitTakesTheRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := limiterOn(t, memstore.New(), weir.PerMinute(6)), time.Now()
		for i := range 9 {
			if err := l.Wait(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			if took, want := time.Since(start), time.Duration(max(0, i-5))*10*time.Second; took != want {
				t.Errorf("the %dth passed after %v, want %v", i+1, took, want)
			}
		}
	})
}

func TestWaitFailsAtOnceIfTheDeadlineIsTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := limiterOn(t, memstore.New(), weir.PerMinute(6)), time.Now()
		allow(t, l, 6)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := l.Wait(ctx, "key")
		if !errors.Is(err, weir.ErrTooLong) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		var refused *weir.RefusedError
		if !errors.As(err, &refused) || refused.Answer.RetryAfter != 10*time.Second ||
			!strings.Contains(err.Error(), "longer than the context allows") {
			t.Errorf("the error is %q, %+v", err, refused)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second+1)
		defer cancel()
		if err := l.Wait(ctx, "key"); err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("with time enough: %v after %v", err, time.Since(start))
		}
	})
}

func TestCancelledWaitChargesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOn(t, memstore.New(), weir.PerMinute(6))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Wait(gone, "key"); !errors.Is(err, context.Canceled) || remaining(t, l) != 6 {
			t.Errorf("cancelled before it began: %v, %d of 6 left", err, remaining(t, l))
		}
		allow(t, l, 6)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(4*time.Second, cancel)
		if err := l.Wait(ctx, "key"); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while it slept: %v", err)
		}
		time.Sleep(6 * time.Second)
		if got := remaining(t, l); got != 1 {
			t.Errorf("10 s refill one unit; %d are left", got)
		}
	})
}

func TestLeakyQueueSpacesItsCallersEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := limiterOn(t, memstore.New(), weir.LeakyQueue(10, time.Second, 5)), time.Now()
		var mu sync.Mutex
		left := make(map[time.Duration]int)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if err := l.Wait(t.Context(), "key"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				left[time.Since(start)]++
				mu.Unlock()
			})
		}
		synctest.Wait()
		if answer := allow(t, l, 1); answer.Allowed || answer.RetryAfter != 100*time.Millisecond {
			t.Errorf("a seventh, past the queue: %+v", answer)
		}
		all.Wait()
		for i := range 6 {
			if at := time.Duration(i) * 100 * time.Millisecond; left[at] != 1 {
				t.Errorf("%d callers left at %v: %v", left[at], at, left)
			}
		}
	})
}

func TestCancelledWaitFreesItsPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOn(t, memstore.New(), weir.LeakyQueue(1, time.Second, 5))
		allow(t, l, 1)
		for what, limit := range map[string]time.Duration{"deadline known ahead": 500 * time.Millisecond,
			"cancelled": time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			time.AfterFunc(100*time.Millisecond, cancel)
			before := remaining(t, l)
			err := l.Wait(ctx, "key")
			var refused *weir.RefusedError
			if errors.As(err, &refused) && refused.Answer.Allowed {
				t.Errorf("%s: the answer of the cancelled units is %+v", what, refused.Answer)
			}
			if err == nil || ctx.Err() == nil && !errors.Is(err, weir.ErrTooLong) {
				t.Errorf("%s: %v", what, err)
			}
			if got := remaining(t, l); got != before {
				t.Errorf("%s: %d places are left, %d before", what, got, before)
			}
			time.Sleep(100*time.Millisecond - 1)
		}
	})
}

// Callers come faster than the queue lets them leave, and hang up at random: those that stay
// leave evenly spaced all the same.
func TestQueueStaysEvenWhileCallersHangUp(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			l := limiterOn(t, memstore.New(), weir.LeakyQueue(10, time.Second, 50))
			var mu sync.Mutex
			var left []time.Time
			var callers sync.WaitGroup
			for range 1500 {
				ctx, hangUp := context.WithTimeout(t.Context(), time.Minute)
				time.AfterFunc(time.Duration(random.Int64N(int64(8*time.Second))), hangUp)
				callers.Go(func() {
					if err := l.Wait(ctx, "key"); err == nil {
						mu.Lock()
						left = append(left, time.Now())
						mu.Unlock()
					}
				})
				time.Sleep(20 * time.Millisecond)
			}
			callers.Wait()
			if len(left) < 20 {
				t.Fatalf("only %d got their turn", len(left))
			}
			for i := range left[1:] {
				if apart := left[i+1].Sub(left[i]); apart < 100*time.Millisecond {
					t.Fatalf("seed %d: callers %d and %d left %v apart, want 100ms", seed, i, i+1, apart)
				}
			}
		})
	}
}

// All but the last of a full queue are cancelled, again and again, also those that need not wait.
func TestLeakyQueueGivesEachCallerItsOwnInstant(t *testing.T) {
	l, clock := drive(t, weir.LeakyQueue(10, time.Second, 50))
	given := make(map[weir.Instant]bool)
	for range 50 {
		var queue []*weir.Reservation
		for r, err := l.Reserve(t.Context(), "key", 1); err == nil; r, err = l.Reserve(t.Context(), "key", 1) {
			queue = append(queue, r)
		}
		for i, r := range queue {
			answer := r.Answer()
			turn := answer.At + weir.Instant(answer.Delay.Microseconds())
			if i < len(queue)-1 {
				if err := r.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else if given[turn] {
				t.Fatalf("two callers leave at %d", turn)
			} else {
				given[turn] = true
			}
		}
		clock.advance(30 * time.Millisecond)
	}
	if len(given) < 10 {
		t.Errorf("only %d got a turn", len(given))
	}
}

// Of several units that wait, those are given back after which no other unit was charged.
func TestCancelRefundsUnitsWithoutLaterReservations(t *testing.T) {
	l, clock := drive(t, weir.LeakyQueue(10, time.Second, 9))
	allow(t, l, 1)
	first := must[*weir.Reservation](t)(l.Reserve(t.Context(), "key", 5))
	second := must[*weir.Reservation](t)(l.Reserve(t.Context(), "key", 2))
	if first.Answer().Delay != 500*time.Millisecond || second.Answer().Delay != 700*time.Millisecond ||
		remaining(t, l) != 2 {
		t.Fatalf("delays %v and %v, %d left", first.Answer().Delay, second.Answer().Delay, remaining(t, l))
	}
	clock.advance(100 * time.Millisecond)
	for _, step := range []struct {
		of   *weir.Reservation
		left int64
	}{{first, 6}, {second, 8}} {
		if err := step.of.Cancel(t.Context()); err != nil || remaining(t, l) != step.left {
			t.Errorf("%d are left (%v), want %d", remaining(t, l), err, step.left)
		}
	}
}

func TestWaitRefusesLeases(t *testing.T) {
	l, _ := drive(t, weir.Concurrency{Limit: 1, TTL: time.Hour})
	if err := l.Wait(t.Context(), "key"); !isInput(err) || remaining(t, l) != 1 {
		t.Errorf("waited for a lease that has no owner: %v, %d left", err, remaining(t, l))
	}
}

// A login is limited by its account and by its address, in one decision.
func TestAllowKeys(t *testing.T) {
	l := limiterOn(t, memstore.New(), weir.PerHour(2), weir.PerHour(3))
	for i, one := range []struct {
		account, address string
		want             bool
	}{{"ann", "1", true}, {"ann", "2", true}, {"ann", "3", false}, {"bob", "1", true}, {"eve", "1", true}, {"joe", "1", false}} {
		if a, err := l.AllowKeys(t.Context(), one.account, one.address); err != nil || a.Allowed != one.want {
			t.Errorf("%d: %+v, %v; want %v", i, a, err, one.want)
		}
	}
	if a, err := l.AllowKeys(t.Context(), "one for both"); err != nil || !a.Allowed {
		t.Errorf("one key: %+v, %v", a, err)
	}
	if _, err := l.AllowKeys(t.Context(), "1", "2", "3"); !isInput(err) {
		t.Errorf("three keys for two limits: %v", err)
	}
	if _, err := l.AllowKeys(t.Context()); !isInput(err) {
		t.Errorf("no key: %v", err)
	}
}

// Each refusal is ErrRefused, whatever else it is.
func TestEveryRefusalIsErrRefused(t *testing.T) {
	l := limiterOn(t, memstore.New(), weir.PerHour(1))
	allow(t, l, 1)
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, now := l.Reserve(t.Context(), "key", 1)
	_, never := l.Reserve(t.Context(), "key", 2)
	for _, err := range []error{now, never, l.Wait(soon, "key")} {
		if !errors.Is(err, weir.ErrRefused) {
			t.Errorf("%v is not ErrRefused", err)
		}
	}
	if errors.Is(now, weir.ErrNever) || !errors.Is(never, weir.ErrNever) {
		t.Errorf("%v, %v: which is ErrNever?", now, never)
	}
}

func TestRetryAfterSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2,
		weir.Never - 1: 9223372037} {
		if n, ok := (weir.Decision{RetryAfter: wait}).RetryAfterSeconds(); n != want || !ok {
			t.Errorf("%v: %d, %v", wait, n, ok)
		}
	}
	if n, ok := (weir.Decision{RetryAfter: weir.Never}).RetryAfterSeconds(); n != 0 || ok {
		t.Errorf("never: %d, %v", n, ok)
	}
}

func TestLimiterThatWasNotMadeSaysSo(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "New") {
			t.Errorf("the zero Limiter panics with %s", text)
		}
	}()
	new(weir.Limiter).Allow(t.Context(), "key")
}

func TestSlidingCounterHasTenSlices(t *testing.T) {
	limit := weir.MustLimit("counter", weir.SlidingCounter{Limit: 5, Window: time.Minute})
	if limit.String() != "sliding_counter 5/1m slices 10" {
		t.Errorf("without a number of slices it is %s", limit)
	}
}
