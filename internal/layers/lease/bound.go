package lease

import (
	"fmt"
	"time"

	"github.com/weirproject/weir"
)

// A Bound is what a limit promises when nodes lease from it. All units that pass were charged, so the limit is
// never charged more than without leases; but a unit may pass up to Hold after its charge.
//
// Let U = Nodes × Held, the most that is charged and neither spent nor returned. Units that pass in a time T were
// held when T began, or charged in T. Of what was charged in T, the units that are not given back keep the limit's
// own bound: windows and logs never see the others, and a bucket regains from returned units no more than was held.
// So leases add at most U. To windows, fixed and of calendars, they add nothing, because a unit passes in the window
// of its charge. To sliding windows it also applies that what passes in T was charged in T + Hold.
//
// It holds while the clocks of nodes and store run alike to a thousandth, the store's clock is not set forward, and a
// refund arrives within the layer's timeout or not at all. A Reset discards charges, and so may add U once more.
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
