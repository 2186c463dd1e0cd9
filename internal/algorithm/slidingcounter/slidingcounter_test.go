package slidingcounter_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/slidingcounter"
	"github.com/weirproject/weir/internal/algorithm/stories/chance"
)

// twin is a counter with its limit.
type twin struct {
	limit *weir.Limit
	state *slidingcounter.State
}

func (s *twin) Available(now int64) int64    { return s.state.Available(s.limit, now) }
func (s *twin) Charge(n, now int64)          { s.state.Charge(s.limit, n, now) }
func (s *twin) Refund(n, takenAt, now int64) { s.state.Refund(s.limit, n, takenAt, now) }
func (s *twin) Decision(cost, now int64) weir.Decision {
	return s.state.Decision(s.limit, cost, now)
}

// slices is the count of every slice there ever was, by its index.
type slices struct {
	*weir.Limit
	counts map[int64]int64
	newest int64
}

// clock is the slice that now lies in and the ticks of it that have passed. A clock
// before the newest slice's start reads as that start.
func (s *slices) clock(now int64) (slice, elapsed int64) {
	slice = now / s.Slice()
	if len(s.counts) > 0 && slice < s.newest {
		return s.newest, 0
	}
	return slice, (now - slice*s.Slice()) / s.Tick()
}

// estimate is c[i] + … + c[i−N+1] + c[i−N] × (S − e)/S.
func (s *slices) estimate(now int64) *big.Rat {
	slice, elapsed := s.clock(now)
	ticks := s.Slice() / s.Tick()
	sum := new(big.Rat).SetFrac64(ticks-elapsed, ticks)
	sum.Mul(sum, new(big.Rat).SetInt64(s.counts[slice-s.Slices()]))
	for i, n := range s.counts {
		if i > slice-s.Slices() {
			sum.Add(sum, new(big.Rat).SetInt64(n))
		}
	}
	return sum
}

func (s *slices) Fits(n, now int64) bool {
	sum := s.estimate(now)
	return sum.Add(sum, new(big.Rat).SetInt64(n)).Cmp(new(big.Rat).SetInt64(s.Capacity())) <= 0
}

func (s *slices) Fresh(now int64) bool {
	slice, _ := s.clock(now)
	return s.sum(slice) == 0
}

// sum is all that counts when slice is the newest, the one that fades in full.
func (s *slices) sum(slice int64) (n int64) {
	for i, count := range s.counts {
		if i >= slice-s.Slices() {
			n += count
		}
	}
	return n
}

func (s *slices) Owes(int64) bool { return false }

func (s *slices) Charge(n, now int64) {
	if n == 0 {
		return
	}
	slice, _ := s.clock(now)
	s.newest = slice
	s.counts[slice] += min(n, weir.MaxUnits-s.sum(slice))
}

func (s *slices) Refund(n, takenAt, now int64) {
	slice, _ := s.clock(now)
	if taken := takenAt / s.Slice(); taken >= slice-s.Slices() {
		s.counts[taken] -= min(n, s.counts[taken])
	}
	if s.sum(s.newest) == 0 { // all given back: a state never used
		clear(s.counts)
	}
}

func pair(limit *weir.Limit) chance.Pair {
	return chance.Pair{
		Limit:     limit,
		Twin:      &twin{limit, &slidingcounter.State{}},
		Reference: &slices{Limit: limit, counts: map[int64]int64{}},
	}
}

func anyLimit(t *rapid.T) *weir.Limit {
	slice := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 3_600_000_000),
		rapid.Map(rapid.Int64Range(1, 1_000_000), func(s int64) int64 { return s * 1_000_000 }))
	return rapid.Custom(func(t *rapid.T) *weir.Limit {
		n := rapid.OneOf(rapid.SampledFrom([]int64{1, 2, 6, 10, 60}), rapid.Int64Range(1, 12)).Draw(t, "slices")
		limit, _ := weir.NewLimit("test", weir.SlidingCounter{
			Limit: rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 2_000_000),
				rapid.Int64Range(1, weir.MaxUnits)).Draw(t, "limit"),
			Window: time.Duration(n*slice.Draw(t, "slice µs")) * time.Microsecond,
			Slices: n,
		})
		return limit
	}).Filter(func(l *weir.Limit) bool { return l != nil }).Draw(t, "counter")
}

func anyPair(t *rapid.T) chance.Pair { return pair(anyLimit(t)) }

func TestReference(t *testing.T) { chance.Check(t, anyPair) }

func FuzzReference(f *testing.F) { chance.Fuzz(f, anyPair) }

func TestNoAllocations(t *testing.T) {
	for _, n := range []int64{1, 10, 60} {
		limit := weir.MustLimit("test", weir.SlidingCounter{Limit: 20, Window: 3 * time.Second, Slices: n})
		chance.NoAllocations(t, limit.String(), pair(limit).Twin)
	}
}

// A changed limit never makes room by itself: no more units remain than if each had been
// counted in the new slices from the beginning, and no fewer than if each had been taken an old
// slice and a new one later.
func TestAdopt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := small(t), small(t)
		state, now := &slidingcounter.State{}, int64(chance.Begin)
		var taken [][2]int64
		newest := int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += rapid.Int64Range(0, from.Period()/4).Draw(t, "tick")
			n := rapid.Int64Range(0, 5).Draw(t, "n")
			state.Charge(from, n, now)
			taken = append(taken, [2]int64{n, now})
			if n > 0 {
				newest = now / from.Slice()
			}
		}
		state.Adopt(from, to)
		if from.Period() < to.Period()+to.Slice() {
			return // units too old for the old window were dropped before the change
		}
		exact, late := charged(to, taken, func(at int64) int64 { return at }), charged(to, taken, func(at int64) int64 {
			return min((at/from.Slice()+2)*from.Slice()-1+to.Slice(), (newest+1)*from.Slice()-1)
		})
		got, least, most := state.Available(to, now), late.Available(to, now), exact.Available(to, now)
		if got < least || got > most {
			t.Fatalf("from %s to %s: %d available, want %d to %d", from, to, got, least, most)
		}
	})
}

// charged is a counter of units taken at instants.
func charged(l *weir.Limit, taken [][2]int64, at func(int64) int64) *slidingcounter.State {
	state := &slidingcounter.State{}
	for _, t := range taken {
		state.Charge(l, t[0], at(t[1]))
	}
	return state
}

func small(t *rapid.T) *weir.Limit {
	n := rapid.SampledFrom([]int64{1, 2, 3, 4, 6, 12}).Draw(t, "slices")
	window := rapid.Int64Range(1, 50).Draw(t, "window") * 12
	return weir.MustLimit("test", weir.SlidingCounter{Limit: 1000, Window: time.Duration(window) * time.Microsecond,
		Slices: n})
}

// A counter is saved and loaded as its counts.
func TestNew(t *testing.T) {
	limit := weir.MustLimit("test", weir.SlidingCounter{Limit: 100, Window: time.Second, Slices: 10})
	rapid.Check(t, func(t *rapid.T) {
		state, now := &slidingcounter.State{}, int64(chance.Begin)
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, 200_000).Draw(t, "tick")
			state.Charge(limit, rapid.Int64Range(0, 9).Draw(t, "n"), now)
		}
		if got, want := slidingcounter.New(state.Counts()).Decision(limit, 50, now),
			state.Decision(limit, 50, now); got != want {
			t.Fatalf("loaded: %+v, want %+v", got, want)
		}
	})
}
