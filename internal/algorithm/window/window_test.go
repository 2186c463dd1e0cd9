package window_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories/chance"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
	"github.com/weirproject/weir/internal/algorithm/window"
)

// twin is a window with its limit.
type twin struct {
	limit *weir.Limit
	state window.State
}

func (w *twin) Available(now int64) int64 { return window.Available(w.limit, w.state, now) }
func (w *twin) Charge(n, now int64)       { w.state = window.Charge(w.limit, w.state, n, now) }
func (w *twin) Decision(cost, now int64) weir.Decision {
	return window.Decision(w.limit, w.state, cost, now)
}

func (w *twin) Back(now int64) {
	if window.Ahead(w.limit, w.state, now) {
		w.state = window.Back(w.limit, w.state, now)
	}
}
func (w *twin) Refund(n, takenAt, now int64) {
	w.state = window.Refund(w.limit, w.state, n, takenAt, now)
}

func pair(spec weir.Spec) chance.Pair {
	limit := weir.MustLimit("test", spec)
	return chance.NewPair(limit, &twin{limit: limit})
}

func anySpec(t *rapid.T) weir.Spec {
	limit := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, weir.MaxUnits)).Draw(t, "limit")
	if rapid.Bool().Draw(t, "calendar") {
		return weir.Calendar{
			Limit: limit,
			Unit: rapid.SampledFrom([]weir.CalendarUnit{weir.Minute, weir.Hour, weir.Day, weir.Week, weir.Month,
				weir.Year}).Draw(t, "unit"),
			Zone: rapid.SampledFrom([]string{"", "Europe/Berlin", "America/Havana", "Asia/Kolkata",
				"Australia/Lord_Howe"}).Draw(t, "zone"),
		}
	}
	period := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 86_400_000_000),
		rapid.Int64Range(1, weir.MaxUnits)).Draw(t, "window µs")
	return weir.FixedWindow{
		Limit:  limit,
		Window: time.Duration(period) * time.Microsecond,
		Anchor: rapid.SampledFrom([]weir.Anchor{weir.First, weir.Epoch}).Draw(t, "anchor"),
	}
}

func anyPair(t *rapid.T) chance.Pair { return pair(anySpec(t)) }

func TestReference(t *testing.T) { chance.Check(t, anyPair) }

func FuzzReference(f *testing.F) { chance.Fuzz(f, anyPair) }

func TestNoAllocations(t *testing.T) {
	for _, text := range []string{"fixed_window 5/1s", "fixed_window 5/1s epoch", "calendar 5/month in Europe/Berlin"} {
		spec, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		chance.NoAllocations(t, text, pair(spec).Twin)
	}
}

// The count is kept: on a grid until its own window and the new one in which that began are
// over, else for as long as the window that began with it is under the new numbers.
func TestAdopt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := anyLike(t, nil)
		to := anyLike(t, from)
		charged := rapid.Int64Range(1, from.Capacity()).Draw(t, "charged")
		state := window.Charge(from, window.State{}, charged, chance.Begin)
		ends := state.Start + to.Period()
		if to.Algorithm() == weir.AlgorithmCalendar || to.Anchor() == weir.Epoch {
			ends = max(bound(from, state.Start), bound(to, state.Start))
		}
		now := rapid.SampledFrom([]int64{chance.Begin, chance.Begin - 1, ends - 1, ends, ends + 1}).Draw(t, "now")
		want := to.Capacity()
		if now < ends {
			want = max(-1, to.Capacity()-charged)
		}
		if left := window.Available(to, window.Adopt(from, to, state), now); left != want {
			t.Fatalf("from %s to %s at %d: %d available of %+v, want %d", from, to, now-chance.Begin, left, state, want)
		}
	})
}

// bound is the end of the window that begins at an instant, or on a grid contains it.
func bound(l *weir.Limit, start int64) int64 {
	_, to := model.Period(l, start)
	return to
}

// anyLike is a limit that can adopt another one's state.
func anyLike(t *rapid.T, other *weir.Limit) *weir.Limit {
	for {
		limit := weir.MustLimit("test", anySpec(t))
		if other == nil || limit.Algorithm() == other.Algorithm() {
			return limit
		}
	}
}
