package lease

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// A Bound is what a limit promises when nodes lease from it. All that passes was charged,
// so never more than the limit is charged; but a unit may pass up to Hold after it was.
//
// Let U = Nodes × Held, the most that is charged and neither spent nor back. What passes in
// a time T was held when it began, or charged in it. Of what was charged in it, what is not
// given back keeps to the limit's own bound: windows and logs never see the rest, and
// a bucket regains from what goes back no more than was held. So U is the most that leases
// add. In windows, fixed and of calendars, they add nothing, because a unit passes in the
// window it was charged in. In sliding windows it is also true that what passes in T was
// charged in T + Hold.
//
// It holds while the clocks of nodes and store run alike to a thousandth, the store's is not set
// forward, and what goes back arrives within the layer's timeout or not at all. A Reset
// takes back what was charged, and with it the promise, up to U once more.
type Bound struct {
	Limit *weir.Limit
	Nodes int           // processes that share the limit at one time
	Held  int64         // units that one of them holds at most; 0: the limit is not leased
	Hold  time.Duration // how long it holds them at most
}

// BoundOf is the bound of a limit that so many nodes lease under the same terms.
func BoundOf(l *weir.Limit, t Terms, nodes int) Bound {
	return Bound{Limit: l, Nodes: nodes, Held: t.most(l), Hold: t.hold()}
}

// Most is the most units that pass in any time as long as span, 2^52 meaning that or
// more. ok is false for calendars, whose periods differ (it is the limit in each), and
// for concurrency limits.
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

// ahead is how many units all nodes hold.
func (b Bound) ahead() int64 {
	return min(algorithm.Mul(int64(b.Nodes), b.Held), weir.MaxUnits)
}

// own is what a limit promises without leases: limits.md has the table. A window from its
// first charge is the exception, since that unit may now pass later: 2L while T ≤ W.
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

// fading is what a sliding counter promises for less than its window: the limit, until
// the time reaches into the slice that is fading.
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

// String is a sentence for people: "at most 10000 + 5000/1s × T + 3 × 1000 units in any T".
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
		return fmt.Sprintf("at most %d + %s units in any %s, %[1]d in any %[4]s", l.Capacity(), more, period, period-b.Hold)
	case weir.AlgorithmSlidingCounter:
		return fmt.Sprintf("at most %s units more than the counter of %d in any time", more, l.Capacity())
	}
	return fmt.Sprintf("at most %d units in each window, as without leases", l.Capacity())
}
