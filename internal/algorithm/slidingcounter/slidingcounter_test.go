package slidingcounter_test

import (
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
func (s *twin) Refund(n, takenAt, now int64) { s.state.Refund(s.limit, s.limit, n, takenAt, now) }
func (s *twin) Back(now int64)               { s.state.Back(s.limit, now) }
func (s *twin) Decision(cost, now int64) weir.Decision {
	return s.state.Decision(s.limit, cost, now)
}

func pair(limit *weir.Limit) chance.Pair {
	return chance.NewPair(limit, &twin{limit, &slidingcounter.State{}})
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
		state = state.Adopt(from, to, now)
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
