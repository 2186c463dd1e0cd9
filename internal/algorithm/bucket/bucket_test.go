package bucket_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/internal/algorithm/stories/chance"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// twin is a bucket with its limit.
type twin struct {
	limit *weir.Limit
	state bucket.State
}

func (b *twin) Available(now int64) int64 { return bucket.Available(b.limit, b.state, now) }
func (b *twin) Charge(n, now int64)       { b.state = bucket.Charge(b.limit, b.state, n, now) }
func (b *twin) Refund(n, _, now int64)    { b.state = bucket.Refund(b.limit, b.state, n, now) }
func (b *twin) Back(int64)                {}
func (b *twin) Cancel(n, due, now int64)  { b.state = bucket.Cancel(b.limit, b.state, n, due, now) }
func (b *twin) Decision(cost, now int64) weir.Decision {
	return bucket.Decision(b.limit, b.state, cost, now)
}

func pair(spec weir.Spec) chance.Pair {
	limit := weir.MustLimit("test", spec)
	return chance.NewPair(limit, &twin{limit: limit})
}

// anyBucket is small numbers, odd fractions, and the largest that are allowed.
func anyBucket(t *rapid.T) weir.TokenBucket {
	number := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 2_000_000), rapid.Int64Range(1, weir.MaxUnits))
	period := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 86_400_000_000),
		rapid.Int64Range(1, weir.MaxUnits))
	overdraft := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 20), rapid.Int64Range(0, weir.MaxUnits))
	return rapid.Custom(func(t *rapid.T) weir.TokenBucket {
		return weir.TokenBucket{
			Capacity:  number.Draw(t, "capacity"),
			Refill:    number.Draw(t, "refill"),
			Period:    time.Duration(period.Draw(t, "period µs")) * time.Microsecond,
			Overdraft: overdraft.Draw(t, "overdraft"),
			Mode:      rapid.SampledFrom([]weir.RefillMode{weir.Continuous, weir.Step}).Draw(t, "mode"),
		}
	}).Filter(func(b weir.TokenBucket) bool { _, err := weir.NewLimit("test", b); return err == nil }).Draw(t, "bucket")
}

func anyPair(t *rapid.T) chance.Pair { return pair(anyBucket(t)) }

func TestReference(t *testing.T) { chance.Check(t, anyPair) }

func FuzzReference(f *testing.F) { chance.Fuzz(f, anyPair) }

func TestNoAllocations(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.TokenBucket{Capacity: 10, Refill: 10, Period: time.Second},
		weir.TokenBucket{Capacity: 7, Refill: 7, Period: 3 * time.Second, Overdraft: 3},
		weir.TokenBucket{Capacity: 5, Refill: 5, Period: time.Second, Mode: weir.Step},
	} {
		chance.NoAllocations(t, spec.String(), pair(spec).Twin)
	}
}

// Units charged and given back at once leave no trace, unless they went beyond the ceiling of
// debt.
func TestRefundUndoesCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPair(t)
		limit, now := p.Limit, int64(chance.Begin)
		first := rapid.Int64Range(0, limit.Most()).Draw(t, "first")
		before := bucket.Charge(limit, bucket.State{}, first, now)
		now += rapid.Int64Range(0, limit.Period()).Draw(t, "later")
		n := rapid.Int64Range(0, limit.Most()).Draw(t, "n")
		if bucket.Available(limit, before, now) < n {
			return
		}
		after := bucket.Refund(limit, bucket.Charge(limit, before, n, now), n, now)
		if got, want := bucket.Decision(limit, after, 1, now), bucket.Decision(limit, before, 1, now); got != want {
			t.Fatalf("%s: after a charge of %d and its refund\n got %+v\nwant %+v", limit, n, got, want)
		}
	})
}

// Debt has a ceiling, and stays there: no sum overflows however often one charges.
func TestDebtStops(t *testing.T) {
	for _, spec := range []weir.TokenBucket{
		{Capacity: 1, Refill: 1, Period: weir.MaxUnits * time.Microsecond},
		{Capacity: 1, Refill: 7, Period: weir.MaxUnits * time.Microsecond},
		{Capacity: 1, Refill: weir.MaxUnits, Period: time.Microsecond, Mode: weir.Step},
	} {
		limit, state := weir.MustLimit("test", spec), bucket.State{}
		for range 100 {
			state = bucket.Charge(limit, state, weir.MaxUnits, chance.Begin)
		}
		d := bucket.Decision(limit, state, 1, chance.Begin)
		if d.Remaining != 0 || d.ResetAfter <= 0 || d.ResetAfter.Microseconds() > weir.MaxUnits {
			t.Errorf("%s: %+v", spec, d)
		}
		back := bucket.Charge(limit, state, weir.MaxUnits, chance.Begin-1_000_000)
		if got := bucket.Decision(limit, back, 1, chance.Begin); got != d {
			t.Errorf("%s: a charge by a clock that stepped back made %+v of %+v", spec, got, d)
		}
	}
}

// Numbers that change keep the instant at which the bucket will be full, rounded up by less
// than a microsecond where T/R has another denominator.
func TestAdoptNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := ofMode(t, weir.Continuous), ofMode(t, weir.Continuous)
		state := bucket.Charge(from, bucket.State{}, rapid.Int64Range(0, from.Most()).Draw(t, "n"), chance.Begin)
		adopted := bucket.Adopt(from, to, state, chance.Begin)
		got := fullAt(to, adopted).Sub(fullAt(to, adopted), fullAt(from, state))
		if got.Sign() < 0 || got.Cmp(model.Whole(1)) >= 0 {
			t.Fatalf("from %s to %s: full %s µs later", from, to, got)
		}
	})
}

func fullAt(l *weir.Limit, s bucket.State) *big.Rat {
	return new(big.Rat).Add(model.Whole(s.At), big.NewRat(s.Part, l.Interval().Den))
}

// microsecond is the units that one microsecond refills, rounded up: the cost of rounding an
// instant up by less than that.
func microsecond(l *weir.Limit) int64 { return (l.Refill() + l.Period() - 1) / l.Period() }

// From continuous to step at the same rate: no unit is won, at most those of one step are
// lost, and when it is read does not matter.
func TestAdoptStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := modes(t)
		state := bucket.Charge(from, bucket.State{}, rapid.Int64Range(0, from.Most()).Draw(t, "n"), chance.Begin)
		now := chance.Begin + rapid.Int64Range(0, from.Period()).Draw(t, "later")
		before := bucket.Available(from, state, now)
		adopted := bucket.Adopt(from, to, state, now)
		after := bucket.Available(to, adopted, now)
		if after > before || after < max(-1, before-to.Refill()-microsecond(to)) {
			t.Fatalf("%s: %d available before, %d after", from, before, after)
		}
		later := now + rapid.Int64Range(0, 3*from.Period()).Draw(t, "later still")
		again := bucket.Available(to, bucket.Adopt(from, to, state, later), later)
		if kept := bucket.Available(to, adopted, later); kept != again {
			t.Fatalf("%s: %d available in the earlier reading, %d in this one", from, kept, again)
		}
	})
}

// From step to continuous at the same rate: the level at the mark is kept, and counts on
// evenly from there. It is stable: when it is read does not matter.
func TestAdoptContinuous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		to, from := modes(t)
		state := bucket.Charge(from, bucket.State{}, rapid.Int64Range(1, from.Most()).Draw(t, "n"), chance.Begin)
		adopted := bucket.Adopt(from, to, state, chance.Begin)
		if got, want := bucket.Available(to, adopted, chance.Begin),
			bucket.Available(from, state, chance.Begin); got > want || got < max(-1, want-microsecond(to)) {
			t.Fatalf("%s: %d available at the mark, want %d", from, got, want)
		}
		later := chance.Begin + rapid.Int64Range(0, 3*from.Period()).Draw(t, "later")
		if again := bucket.Adopt(from, to, state, later); again != adopted {
			t.Fatalf("%s: read at the mark it is %+v, later %+v", from, adopted, again)
		}
	})
}

func ofMode(t *rapid.T, mode weir.RefillMode) *weir.Limit {
	spec := anyBucket(t)
	spec.Mode = mode
	limit, err := weir.NewLimit("test", spec)
	if err != nil { // a step bucket may be larger than a continuous one
		limit = weir.MustLimit("test", weir.PerSecond(10))
	}
	return limit
}

// modes is one bucket in both modes.
func modes(t *rapid.T) (continuous, step *weir.Limit) {
	continuous = ofMode(t, weir.Continuous)
	spec := continuous.Spec().(weir.TokenBucket)
	spec.Mode = weir.Step
	step, err := weir.NewLimit("test", spec)
	if err != nil {
		spec = weir.PerSecond(10)
		continuous = weir.MustLimit("test", spec)
		spec.Mode = weir.Step
		step = weir.MustLimit("test", spec)
	}
	return continuous, step
}

// Take is the steps it stands for.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refill := rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 999, 1000, 4093}).Draw(t, "refill")
		overdraft := rapid.SampledFrom([]int64{0, 0, 1, 20}).Draw(t, "overdraft")
		limit := weir.MustLimit("test", weir.Borrowing(rapid.Int64Range(1, 50).Draw(t, "capacity"), refill,
			time.Second, overdraft))
		if !bucket.Short(limit) {
			t.Fatalf("%s is not short", limit)
		}
		state, now := bucket.State{}, int64(chance.Begin)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1, 999, 100_000, 500_000, 3_000_000, -1, -700_000}).Draw(t, "by")
			cost, floor := rapid.Int64Range(0, 60).Draw(t, "cost"), rapid.Int64Range(-20, 60).Draw(t, "floor")
			floor = max(0, floor)
			if rapid.IntRange(0, 9).Draw(t, "charge") == 0 {
				state = bucket.Charge(limit, state, cost, now)
			}
			available := bucket.Available(limit, state, now)
			after, remaining, retry, reset, delay, granted, ok := bucket.Take(limit, state, cost, floor, now)
			if ok != (available >= 0) {
				t.Fatalf("%s, %d available: Take says ok %v", limit, available, ok)
			}
			if !ok {
				continue
			}
			if granted != (cost+floor <= available) {
				t.Fatalf("%s, %d available, cost %d: granted %v", limit, available, cost, granted)
			}
			if granted {
				state = bucket.Charge(limit, state, cost, now)
			}
			want := bucket.Decision(limit, state, cost+floor, now)
			want.Remaining = max(0, want.Remaining-floor)
			got := weir.Decision{Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Delay: delay,
				At: weir.Instant(now)}
			if got != want || after != state {
				t.Fatalf("%s: %+v full at %v, want %+v full at %v", limit, got, after, want, state)
			}
		}
	})
}
