package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// A fault is a known fault of other limiters, and a check that the store does not have it.
type fault struct {
	name  string
	check func(t TB, b *fixture)
}

// knownFaults shows that the store has none of the faults.
func knownFaults(t *testing.T, s Subject) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { f.check(t, open(t, s)) })
	}
	t.Run("a bucket whose two keys expire apart", func(t *testing.T) {
		store := s(t, nil)
		closeAfter(t, store.Store)
		partsExpireTogether(t, store)
	})
}

var faults = []fault{
	{"two grants in one instant counted as one", instantCountsAll},
	{"a caller's clock 1 s behind admits without limit", slowClockAdmitsNothing},
	{"burst doubled after idling", idlingSavesNothing},
	{"refill uncapped after a deficit", deficitRefillsToCapacity},
	{"a rate rounded into another", ratesAreExact},
	{"a cost larger than the capacity", tooLargeIsNever},
	{"9 + 9 granted of 10", nineAndNine},
	{"refusals that count", refusalsAreFree},
	{"an idle gap leaving stale slices", gapsForget},
	{"a ring of slices read modulo", ringForgets},
	{"TTL 0 that switches the limit off", tinyPeriodsLimit},
	{"remaining one too low on a fresh key", freshHasAll},
	{"debt sinking at each refusal", debtStays},
	{"a cancelled wait that keeps its unit", cancelledWaitGivesBack},
	{"a queue in which two leave together after one hung up", queuesStayEven},
	{"a day in nanoseconds overflowing", longWindowsFit},
	{"1,000,003 a day drifting", oddRateDoesNotDrift},
	{"a burst that changes and refills", newBurstKeepsUsage},
	{"a panic on zero and negative numbers", oddNumbersAreErrors},
	{"contention that turns into errors", contentionIsNoError},
	{"eviction that forgets a refused key", floodForgetsNobody},
	{"a key that changes with its caller's buffer", keysAreCopied},
}

// exhaust takes all that a claim has, at once.
func (b *fixture) exhaust(t TB, c weir.Claim) {
	t.Helper()
	c.Cost = c.Limit.Most()
	b.wants(t, c, 1, 1, "all of a fresh key")
}

// wants asks for times requests of a claim, of which granted are expected.
func (b *fixture) wants(t TB, c weir.Claim, times, want int64, when string) weir.Decision {
	t.Helper()
	granted, d := b.decide(t, times, c)
	if granted != want {
		t.Fatalf("%s, %s: granted %d of %d × %d, want %d", c.Limit, when, granted, times, c.Cost, want)
	}
	return d[0]
}

func (b *fixture) after(d time.Duration) { b.clock.now.Add(d.Microseconds()) }

// each runs a check for one limit of each kind, each from the same instant on.
func (b *fixture) each(check func(c weir.Claim)) {
	for _, spec := range oneOfEach {
		b.clock.set(epoch)
		check(b.claim(spec))
	}
}

// Sliding logs in a sorted set whose member and score are the time.
func instantCountsAll(t TB, b *fixture) {
	t.Helper()
	c := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second})
	for range 5 {
		b.wants(t, c, 1, 1, "within the limit, in one instant")
	}
	b.wants(t, c, 1, 0, "the sixth of one instant")
	b.after(time.Second)
	b.wants(t, c, 9, 5, "a window later")
	b.wants(t, c, 9, 0, "in the same instant")
}

// Scripts that take now from the caller, and trust it.
func slowClockAdmitsNothing(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		b.after(100 * time.Millisecond)
		b.exhaust(t, c)
		c.Lease = leaseOf(c.Limit, "late")
		for i := range 20 {
			b.clock.set(epoch + int64(i%2)*100_000 - int64(i)*50_000)
			b.wants(t, c, 1, 0, "by a clock that is behind")
		}
	})
}

// Buckets that go on filling above their capacity, and windows that carry over.
func idlingSavesNothing(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		most := c.Limit.Most()
		for range 3 {
			b.after(10 * 24 * time.Hour)
			c.Cost = most + 1
			b.wants(t, c, 1, 0, "more than its burst after idling")
			c.Cost, c.Lease = most, leaseOf(c.Limit, weir.NewLeaseID())
			b.wants(t, c, 1, 1, "its burst after idling")
			c.Cost, c.Lease = 1, leaseOf(c.Limit, weir.NewLeaseID())
			b.wants(t, c, 1, 0, "one more in the same instant")
		}
	})
}

// Buckets that cap the level only where it was not below zero.
func deficitRefillsToCapacity(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		c.Cost = 3 * c.Limit.Most()
		if err := b.Charge(context.Background(), []weir.Claim{c}, nil); err != nil {
			t.Fatalf("Charge: %v", err)
		}
		b.after(30 * 24 * time.Hour)
		if _, d := b.decide(t, 0, c); d[0].Remaining != c.Limit.Most() {
			t.Fatalf("%s: %d remain long after a deficit, want %d", c.Limit, d[0].Remaining, c.Limit.Most())
		}
	})
}

// Rates kept as whole units a second, or a millisecond, or an interval in whole seconds.
func ratesAreExact(t TB, b *fixture) {
	t.Helper()
	for _, rate := range []struct {
		spec weir.TokenBucket
		each int64 // µs a unit
	}{
		{weir.GCRA(1, 100_000, time.Second), 10},
		{weir.GCRA(1, 1, 1900*time.Millisecond), 1_900_000},
		{weir.GCRA(5, 5, 500*time.Millisecond), 100_000},
		{weir.GCRA(1, 1, 1500*time.Microsecond), 1_500},
	} {
		c := b.claim(rate.spec)
		b.exhaust(t, c)
		for n := range int64(50) {
			b.clock.now.Add(rate.each - 1)
			b.wants(t, c, 1, 0, fmt.Sprint("1 µs before unit ", n))
			b.clock.now.Add(1)
			b.wants(t, c, 1, 1, fmt.Sprint("when unit ", n, " is due"))
		}
	}
}

// First requests that skip the check, and retry-afters that promise the impossible.
func tooLargeIsNever(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		for _, cost := range []int64{c.Limit.Most() + 1, 10 * c.Limit.Most(), weir.MaxUnits} {
			c.Cost = cost
			if d := b.wants(t, c, 1, 0, "more than it can ever hold"); d.RetryAfter != weir.Never || d.ResetAfter != 0 {
				t.Fatalf("%s: a cost of %d on a fresh key: %+v, want never, and nothing charged", c.Limit, cost, d)
			}
		}
	})
}

// Checks for any units left, instead of enough units.
func nineAndNine(t TB, b *fixture) {
	t.Helper()
	for _, spec := range oneOfEach {
		c := b.claim(spec)
		most := c.Limit.Most()
		c.Cost = most - 1
		b.wants(t, c, 1, 1, "the first nine tenths")
		c.Lease = leaseOf(c.Limit, "second")
		if d := b.wants(t, c, 1, 0, "nine tenths once more"); d.Remaining != 1 {
			t.Fatalf("%s: %d remain after %d of %d, want 1", spec, d.Remaining, most-1, most)
		}
	}
}

// Logs that add before they count, and windows that increment first.
func refusalsAreFree(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		b.exhaust(t, c)
		c.Lease = leaseOf(c.Limit, "next")
		_, d := b.decide(t, 0, c)
		granted := b.clock.now.Load() + d[0].RetryAfter.Microseconds()
		for range 200 {
			b.clock.set(min(b.clock.now.Load()+997, granted-1))
			b.wants(t, c, 1, 0, "before its time")
		}
		b.clock.set(granted)
		b.wants(t, c, 1, 1, "at the instant promised before 200 refusals")
	})
}

// Counters that read the previous slice at any age.
func gapsForget(t TB, b *fixture) {
	t.Helper()
	for _, slices := range []int64{1, 2, 10, 60} {
		for _, gap := range []int64{2, 3, 5, 50} {
			c := b.claim(weir.SlidingCounter{Limit: 10, Window: 60 * time.Second, Slices: slices})
			b.exhaust(t, c)
			b.after(time.Duration(gap) * 60 * time.Second)
			if _, d := b.decide(t, 0, c); d[0].Remaining != 10 || d[0].ResetAfter != 0 {
				t.Fatalf("%s: after a gap of %d windows: %+v, want it fresh", c.Limit, gap, d[0])
			}
			b.exhaust(t, c)
		}
	}
}

// Rings of slices that read a stale count as that of the present slice.
func ringForgets(t TB, b *fixture) {
	t.Helper()
	const n = 6
	limit := weir.SlidingCounter{Limit: 100, Window: n * time.Second, Slices: n}
	for gap := int64(1); gap <= 4*(n+1); gap++ {
		c, counter := b.claim(limit), &model.SlidingCounter{}
		for range 3 {
			c.Cost = 20
			b.wants(t, c, 1, 1, "within the limit")
			counter.Charge(c.Limit, 20, b.clock.now.Load())
			b.after(time.Duration(gap) * time.Second)
			_, d := b.decide(t, 0, c)
			if want := model.Describe(counter, c.Limit, 20, 0, b.clock.now.Load()); d[0] != want {
				t.Fatalf("%s: %d slices on: got %+v, want %+v", c.Limit, gap, d[0], want)
			}
		}
	}
}

// Expiries in whole seconds or milliseconds, of which a short period leaves 0.
func tinyPeriodsLimit(t TB, b *fixture) {
	t.Helper()
	for _, period := range []time.Duration{time.Microsecond, 300 * time.Microsecond, 999 * time.Microsecond,
		time.Millisecond, 999 * time.Millisecond} {
		for _, spec := range []weir.Spec{
			weir.GCRA(2, 2, 2*period), weir.TokenBucket{Capacity: 2, Refill: 2, Period: period, Mode: weir.Step},
			weir.FixedWindow{Limit: 2, Window: period}, weir.FixedWindow{Limit: 2, Window: period, Anchor: weir.Epoch},
			weir.SlidingLog{Limit: 2, Window: period}, weir.SlidingCounter{Limit: 2, Window: period, Slices: 1},
			weir.Concurrency{Limit: 2, TTL: period},
		} {
			c := b.claim(spec)
			b.exhaust(t, c)
			c.Lease = leaseOf(c.Limit, "next")
			d := b.wants(t, c, 1, 0, "in the instant in which it was exhausted")
			b.clock.now.Add(d.RetryAfter.Microseconds())
			b.wants(t, c, 1, 1, "at its retry-after")
		}
	}
}

// Remaining reported before the charge, or after one that has not happened.
func freshHasAll(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		most := c.Limit.Most()
		if _, d := b.decide(t, 0, c); d[0].Remaining != most {
			t.Fatalf("%s: %d remain on a fresh key, want %d", c.Limit, d[0].Remaining, most)
		}
		if d := b.wants(t, c, 1, 1, "the first"); d.Remaining != most-1 {
			t.Fatalf("%s: %d remain after the first, want %d", c.Limit, d.Remaining, most-1)
		}
	})
}

// Buckets that charge refused requests, deeper each time.
func debtStays(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		b.exhaust(t, c)
		c.Cost, c.Lease = c.Limit.Most(), leaseOf(c.Limit, "next")
		_, before := b.decide(t, 0, c)
		before[0].Standing = nil // only a peek has it
		for range 100 {
			if d := b.wants(t, c, 1, 0, "when exhausted"); d != before[0] {
				t.Fatalf("%s: a refusal made it worse: %+v, before %+v", c.Limit, d, before[0])
			}
		}
	})
}

// Waiters that leave, and leave their reservation behind.
func cancelledWaitGivesBack(t TB, b *fixture) {
	t.Helper()
	limiter, err := weir.New(b.Store, "queue", weir.LeakyQueue(1, time.Hour, 10))
	if err != nil {
		t.Fatalf("%v", err)
	}
	key, background := b.key(), context.Background()
	if answer, err := limiter.Allow(background, key); err != nil || !answer.Allowed {
		t.Fatalf("Allow on a fresh key: %+v, %v", answer, err)
	}
	left := func() int64 {
		answer, err := limiter.Peek(background, key)
		if err != nil {
			t.Fatalf("Peek: %v", err)
		}
		return answer.Remaining
	}
	before := left()
	hurry, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	if err := limiter.Wait(hurry, key); !errors.Is(err, weir.ErrTooLong) {
		t.Fatalf("Wait of an hour with a minute's time: got %v, want weir.ErrTooLong", err)
	}
	if left() != before {
		t.Fatalf("a wait that would be too long took a unit: %d remain, before %d", left(), before)
	}
	ctx, leave := context.WithCancel(background)
	waited := make(chan error)
	go func() { waited <- limiter.Wait(ctx, key) }()
	for deadline := time.Now().Add(10 * time.Second); left() == before; {
		if time.Now().After(deadline) {
			t.Fatalf("a waiter in the queue took no place in it")
		}
	}
	leave()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled wait: got %v, want context.Canceled", err)
	}
	if left() != before {
		t.Fatalf("a cancelled wait kept its unit: %d remain, before %d", left(), before)
	}
}

// Products of a limit and a window in nanoseconds, in 64 bits.
func longWindowsFit(t TB, b *fixture) {
	t.Helper()
	const day, most = 24 * time.Hour, 10_000_000
	for _, spec := range []weir.Spec{
		weir.TokenBucket{Capacity: most, Refill: most, Period: day},
		weir.TokenBucket{Capacity: most, Refill: most, Period: 30 * day, Mode: weir.Step},
		weir.FixedWindow{Limit: most, Window: 365 * day},
		weir.FixedWindow{Limit: most, Window: day, Anchor: weir.Epoch},
		weir.Calendar{Limit: most, Unit: weir.Year, Zone: "Europe/Berlin"},
		weir.SlidingLog{Limit: most, Window: 3650 * day},
		weir.SlidingCounter{Limit: most, Window: day, Slices: 1},
		weir.SlidingCounter{Limit: most, Window: 30 * day, Slices: 30},
	} {
		c, slow := b.claim(spec), newModel(b.clock.read)
		for _, cost := range []int64{most - 1, 1, 1} {
			c.Cost = cost
			granted, got := b.decide(t, 1, c)
			want := make([]weir.Decision, 1)
			if should, err := slow.Decide(context.Background(), []weir.Claim{c}, 1, want); err != nil ||
				granted != should || got[0] != want[0] {
				t.Fatalf("%s: cost %d: got %d, %+v; want %d, %+v (%v)", spec, cost, granted, got[0], should, want[0],
					err)
			}
			b.after(time.Second)
		}
	}
}

// Intervals in whole nanoseconds or floats: 86,400 s / 1,000,003 is neither.
func oddRateDoesNotDrift(t TB, b *fixture) {
	t.Helper()
	const rate, day = 1_000_003, 86_400_000_000
	// A burst of 1 could not save the fraction of a microsecond that a caller waited.
	c := b.claim(weir.GCRA(2, rate, 24*time.Hour))
	start := b.clock.now.Load()
	b.exhaust(t, c)
	for n := int64(1); n <= 500; n++ {
		due := start + ceilDiv(n*day, rate)
		b.clock.set(due - 1)
		b.wants(t, c, 1, 0, fmt.Sprint("1 µs before unit ", n))
		b.clock.set(due)
		b.wants(t, c, 1, 1, fmt.Sprint("when unit ", n, " is due"))
	}
}

// State that is thrown away, or read as full, when a limit's numbers are edited.
func newBurstKeepsUsage(t TB, b *fixture) {
	t.Helper()
	c := b.claim(weir.GCRA(10, 10, time.Second))
	b.exhaust(t, c)
	for burst, want := range map[int64]int64{10: 0, 20: 10, 15: 5, 5: 0, 1: 0} {
		c.Limit = weir.MustLimit("limit", weir.GCRA(burst, 10, time.Second))
		if _, d := b.decide(t, 0, c); d[0].Remaining != want {
			t.Fatalf("10 of 10 used, then a burst of %d: %d remain, want %d", burst, d[0].Remaining, want)
		}
	}
}

// Divisions by a limit or an interval of 0, and negative costs that add units.
func oddNumbersAreErrors(t TB, b *fixture) {
	t.Helper()
	for _, n := range []int64{0, -1, math.MinInt64} {
		for _, spec := range []weir.Spec{
			weir.TokenBucket{Capacity: n, Refill: 1, Period: 1e9},
			weir.TokenBucket{Capacity: 1, Refill: n, Period: 1e9},
			weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Duration(n)},
			weir.FixedWindow{Limit: n, Window: 1e9}, weir.FixedWindow{Limit: 1, Window: time.Duration(n)},
			weir.Calendar{Limit: n, Unit: weir.Day},
			weir.SlidingLog{Limit: n, Window: 1e9}, weir.SlidingLog{Limit: 1, Window: time.Duration(n)},
			weir.SlidingCounter{Limit: n, Window: 1e9, Slices: 1},
			weir.SlidingCounter{Limit: 1, Window: 1e9, Slices: min(n, -1)}, // 0 is the usual number
			weir.Concurrency{Limit: n, TTL: 1e9}, weir.Concurrency{Limit: 1, TTL: time.Duration(n)},
		} {
			if _, err := weir.NewLimit("limit", spec); err == nil {
				t.Fatalf("NewLimit(%#v): no error", spec)
			}
		}
	}
	c := b.claim(weir.PerSecond(10))
	b.exhaust(t, c)
	for _, n := range []int64{-1, -100, math.MinInt64} {
		c.Cost = n
		if _, err := b.Decide(context.Background(), []weir.Claim{c}, 1, nil); err == nil {
			t.Fatalf("a cost of %d: no error", n)
		}
	}
	c.Cost = 1
	b.wants(t, c, 1, 0, "after negative costs")
}

// The level in one key and its time in another, of which one expires first. It takes real
// time, as long as the longest of the limits.
func partsExpireTogether(t TB, store Handle) {
	t.Helper()
	var limits []*weir.Limit
	for i, spec := range shortLived {
		limits = append(limits, weir.MustLimit(fmt.Sprint("parts-", i), spec))
	}
	claims := expiringClaims(limits, 7)
	resets, err := takeAndReset(store, claims)
	for err == nil && storeTime(t, store) <= slices.Max(resets) {
		time.Sleep(5 * time.Millisecond)
		err = agrees(store, claims, resets)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Optimistic transactions that give up, and locks that time out.
func contentionIsNoError(t TB, b *fixture) {
	t.Helper()
	limit := weir.MustLimit("hot", weir.FixedWindow{Limit: 500, Window: time.Hour})
	claims := []weir.Claim{{Key: "hot", Limit: limit, Cost: 1}}
	var granted atomic.Int64
	errs := make(chan error, 64)
	var done sync.WaitGroup
	for range 64 {
		done.Go(func() {
			for range 25 {
				n, err := b.Decide(context.Background(), claims, 1, nil)
				if err != nil {
					errs <- err
					return
				}
				granted.Add(n)
			}
		})
	}
	done.Wait()
	select {
	case err := <-errs:
		t.Fatalf("64 callers of one key: %v", err)
	default:
	}
	if granted.Load() != 500 {
		t.Fatalf("64 callers of one key were granted %d of 500", granted.Load())
	}
}

// Stores that drop the key used least, which is the one that is refused.
func floodForgetsNobody(t TB, b *fixture) {
	t.Helper()
	const keys = 20_000
	var refused []weir.Claim
	for _, spec := range oneOfEach {
		c := b.claim(spec)
		b.exhaust(t, c)
		c.Lease = leaseOf(c.Limit, "next")
		refused = append(refused, c)
	}
	flood := weir.MustLimit("flood", weir.PerHour(1))
	claims := make([]weir.Claim, weir.MaxClaims)
	for n := 0; n < keys; n += len(claims) {
		for i := range claims {
			claims[i] = weir.Claim{Key: fmt.Sprint("{", n, "}", i), Limit: flood, Cost: 1}
		}
		b.decide(t, 1, claims...)
	}
	for _, c := range refused {
		b.wants(t, c, 1, 0, fmt.Sprintf("after a flood of %d other keys", keys))
	}
}

// Stores that keep the caller's string: callers build keys in buffers that they reuse.
func keysAreCopied(t TB, b *fixture) {
	t.Helper()
	for _, length := range []int{8, 100} {
		b.each(func(c weir.Claim) {
			text := fmt.Sprintf("%-*s", length, b.key())
			buffer := []byte(text)
			c.Key = unsafe.String(&buffer[0], len(buffer))
			b.exhaust(t, c)
			buffer[0] = '#'
			c.Lease = leaseOf(c.Limit, "other")
			b.wants(t, c, 1, 1, "a key in a reused buffer")
			c.Key, c.Lease = text, leaseOf(c.Limit, "next")
			b.wants(t, c, 1, 0, "a key whose buffer was reused")
		})
	}
}
