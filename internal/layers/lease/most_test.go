package lease

import (
	"math/bits"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// Most is the most units that pass in any time of length span; 2^52 stands for that many or more. ok is false
// for calendars, whose periods differ (it is the limit in each), and for concurrency limits.
func (b Bound) Most(span time.Duration) (units int64, ok bool) {
	us := max(1, span.Microseconds())
	units, ok = own(b.Limit, us)
	if b.Held == 0 || !ok || b.Limit.Algorithm() == weir.AlgorithmFixedWindow {
		return units, ok
	}
	units = algorithm.Add(units, b.ahead())
	if slides(b.Limit) {
		shifted, _ := own(b.Limit, us+b.Hold.Microseconds())
		units = min(units, shifted)
	}
	return units, true
}

// ahead is the number of units that all nodes hold.
func (b Bound) ahead() int64 {
	return min(algorithm.Mul(int64(b.Nodes), b.Held), weir.MaxUnits)
}

// own is what a limit promises without leases, as in limits.md, but for a window from its first charge: 2L
// while T ≤ W, because that unit may now pass later.
func own(l *weir.Limit, us int64) (units int64, ok bool) {
	limit, period := l.Capacity(), l.Period()
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		if l.Step() {
			return algorithm.Add(l.Most(), ratio(l.Refill(), algorithm.CeilDiv(us-1, period), 1)), true
		}
		return algorithm.Add(l.Most(), ratio(l.Refill(), us-1, period)), true
	case weir.AlgorithmFixedWindow:
		return ratio(limit, algorithm.CeilDiv(us-1, period)+1, 1), true
	case weir.AlgorithmSlidingLog:
		return ratio(limit, algorithm.CeilDiv(us, period), 1), true
	case weir.AlgorithmSlidingCounter:
		return algorithm.Add(ratio(limit, 2*(us/period), 1), fading(l, us%period)), true
	}
	return 0, false
}

// fading is what a sliding counter promises for less than its window: the limit, until the time reaches into
// the fading slice.
func fading(l *weir.Limit, us int64) int64 {
	if us == 0 {
		return 0
	}
	inFading := max(0, us-(l.Period()-l.Slice()))
	return algorithm.Add(l.Capacity(), ratio(l.Capacity(), inFading, l.Slice()))
}

// ratio is ⌊a × b/c⌋, at most weir.MaxUnits.
func ratio(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return weir.MaxUnits
	}
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(quotient, weir.MaxUnits))
}

func slides(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmSlidingLog || l.Algorithm() == weir.AlgorithmSlidingCounter
}
