package lease

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// A Bound is what a limit promises when nodes lease from it. All units that pass were charged, so the limit is
// never charged more than without leases; but a unit may pass up to Hold after its charge.
//
// Let U = Nodes × Held, the most that is charged and neither spent nor returned. Units that pass in a time T were
// held when T began, or charged in T. Of what was charged in T, the units that are not given back keep the
// limit's own bound: windows and logs never see the others, and a bucket regains from returned units no more
// than was held. So leases add at most U. To windows, fixed and of calendars, they add nothing, because a unit
// passes in the window of its charge. To sliding windows it also applies that what passes in T was charged in T
// + Hold.
//
// It holds while the clocks of nodes and store run alike to a thousandth, the store's clock is not set forward,
// and a refund arrives within the layer's timeout or not at all. A Reset discards charges, and so may add U
// once more.
type Bound struct {
	Limit *weir.Limit
	Nodes int           // processes that share the limit
	Held  int64         // most units that one of them holds; 0: not leased
	Hold  time.Duration // longest time for which it holds them
}

// BoundOf returns the bound of a limit that a number of nodes lease under the same terms.
func BoundOf(l *weir.Limit, t Terms, nodes int) Bound {
	return Bound{Limit: l, Nodes: nodes, Held: t.most(l), Hold: t.hold()}
}

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

// String is a sentence such as "at most 10000 + 5000/1s × T + 3 × 1000 units in any T".
func (b Bound) String() string {
	l := b.Limit
	if b.Held == 0 {
		return "not leased"
	}
	more := fmt.Sprintf("%d × %d", b.Nodes, b.Held)
	period := time.Duration(l.Period()) * time.Microsecond
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return fmt.Sprintf("at most %d + %d/%s × T + %s units in any T", l.Most(), l.Refill(), period, more)
	case weir.AlgorithmSlidingLog:
		return fmt.Sprintf("at most %d + %s units in any %s, %[1]d in any %[4]s",
			l.Capacity(), more, period, period-b.Hold)
	case weir.AlgorithmSlidingCounter:
		return fmt.Sprintf("at most %s units more than the counter of %d in any time", more, l.Capacity())
	}
	return fmt.Sprintf("at most %d units in each window, as without leases", l.Capacity())
}
