package slidingcounter

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// Summary is the part of a counter that a decision depends on.
type Summary struct {
	Slice  int64 // the slice that holds now; a later one if the clock stepped back
	Full   int64 // units of the slices that count in full then
	Fading int64 // units of the slice before them
	Last   int64 // the newest slice with units; any slice if there are none

	// Frees is the first slice, Slice or a later one, with space for a request beside the slices
	// that count in full then. FreesFull and FreesFading are Full and Fading in that slice.
	Frees, FreesFull, FreesFading int64
}

// Decision describes the state for a next request of cost units.
func (s Summary) Decision(l *weir.Limit, cost, now int64) weir.Decision {
	available := left(l, s.Full, s.Fading, elapsed(l, s.Slice, now))
	d := weir.Decision{Remaining: max(0, available), At: weir.Instant(now)}
	if s.Full > 0 || s.Fading > 0 {
		d.ResetAfter = algorithm.Micros((s.Last+l.Slices()+1)*l.Slice() - now)
	}
	switch {
	case cost > l.Capacity():
		d.RetryAfter = weir.Never
	case algorithm.Fit(available, cost, 1) == 0:
		ticks := fits(l, l.Capacity()-cost-s.FreesFull, s.FreesFading, elapsed(l, s.Frees, now))
		d.RetryAfter = algorithm.Micros(s.Frees*l.Slice() + ticks*l.Tick() - now)
	}
	return d
}

// elapsed is how many ticks of a slice have passed: 0 if it begins later.
func elapsed(l *weir.Limit, slice, now int64) int64 {
	return max(0, floorDiv(now-slice*l.Slice(), l.Tick()))
}

// left is how many units are left beside the slices that count in full and the one that fades,
// elapsed ticks into its fading; −1 if the limit is exceeded.
func left(l *weir.Limit, full, fading, elapsed int64) int64 {
	room := l.Capacity() - full
	if room < 0 {
		return -1
	}
	ticks := inTicks(l, l.Slice())
	part := room*ticks - algorithm.Mul(fading, ticks-elapsed)
	if part < 0 {
		return -1
	}
	return part / ticks
}

// fits is how many ticks of a slice must have passed, elapsed at least, until the fading slice
// leaves room: fading × (ticks − e) ≤ room × ticks.
func fits(l *weir.Limit, room, fading, elapsed int64) int64 {
	if fading == 0 {
		return elapsed
	}
	ticks := inTicks(l, l.Slice())
	return max(elapsed, ticks-room*ticks/fading)
}
