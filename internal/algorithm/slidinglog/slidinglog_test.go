package slidinglog_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/slidinglog"
	"github.com/weirproject/weir/internal/algorithm/stories/chance"
)

// twin is a log with its limit.
type twin struct {
	limit *weir.Limit
	state *slidinglog.State
}

func (s *twin) Available(now int64) int64    { return s.state.Available(s.limit, now) }
func (s *twin) Charge(n, now int64)          { s.state.Charge(s.limit, n, now) }
func (s *twin) Refund(n, takenAt, now int64) { s.state.Refund(s.limit, s.limit, n, takenAt, now) }
func (s *twin) Back(now int64)               { s.state.Back(s.limit, now) }
func (s *twin) Decision(cost, now int64) weir.Decision {
	return s.state.Decision(s.limit, cost, now)
}

func pair(limit *weir.Limit) chance.Pair {
	return chance.NewPair(limit, &twin{limit, &slidinglog.State{}})
}

func anyLimit(t *rapid.T) *weir.Limit {
	window := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 86_400_000_000),
		rapid.Int64Range(1, weir.MaxUnits))
	return weir.MustLimit("test", weir.SlidingLog{
		Limit:  rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, weir.MaxUnits)).Draw(t, "limit"),
		Window: time.Duration(window.Draw(t, "window µs")) * time.Microsecond,
	})
}

func anyPair(t *rapid.T) chance.Pair { return pair(anyLimit(t)) }

func TestReference(t *testing.T) { chance.Check(t, anyPair) }

func FuzzReference(f *testing.F) { chance.Fuzz(f, anyPair) }

func TestNoAllocations(t *testing.T) {
	limit := weir.MustLimit("test", weir.SlidingLog{Limit: 20, Window: time.Second})
	chance.NoAllocations(t, limit.String(), pair(limit).Twin)
}

// The promise itself: in a schedule whose clock does not step back, no window holds more
// than the limit.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := weir.MustLimit("test", weir.SlidingLog{Limit: rapid.Int64Range(1, 9).Draw(t, "limit"),
			Window: 100 * time.Microsecond})
		state, now := &slidinglog.State{}, int64(chance.Begin)
		var granted []slidinglog.Entry
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += rapid.Int64Range(0, 40).Draw(t, "tick")
			if n := rapid.Int64Range(1, 3).Draw(t, "cost"); state.Available(limit, now) >= n {
				state.Charge(limit, n, now)
				granted = append(granted, slidinglog.Entry{At: now, Units: n})
			}
			sum := int64(0)
			for _, g := range granted {
				if g.At > now-limit.Period() {
					sum += g.Units
				}
			}
			if sum > limit.Capacity() {
				t.Fatalf("%d units in the window that ends at %d: %v", sum, now, granted)
			}
		}
	})
}

// A log is saved and loaded as its entries.
func TestNew(t *testing.T) {
	limit := weir.MustLimit("test", weir.SlidingLog{Limit: 100, Window: time.Second})
	rapid.Check(t, func(t *rapid.T) {
		state, now := &slidinglog.State{}, int64(chance.Begin)
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, 200_000).Draw(t, "tick")
			state.Charge(limit, rapid.Int64Range(0, 9).Draw(t, "n"), now)
		}
		if got, want := slidinglog.New(state.Entries()).Decision(limit, 50, now),
			state.Decision(limit, 50, now); got != want {
			t.Fatalf("loaded: %+v, want %+v", got, want)
		}
	})
}
