package lease

import (
	"fmt"
	"time"

	"github.com/weirproject/weir"
)

const (
	// DefaultHold is the Hold of Terms with a Hold of 0.
	DefaultHold = 100 * time.Millisecond

	shortestHold = time.Millisecond
	longestHold  = 10 * time.Second

	// least is the smallest lease that is worth a call.
	least = 2
	// windows is the number of holds that a sliding window must span: units pass up to one hold later than they
	// count, which must be small beside the window.
	windows = 10
)

// Terms say how a limit may be leased. The zero Terms say that it may not.
type Terms struct {
	// Share bounds one lease to this fraction of the last known remainder, and all leases of one key on a node
	// to this fraction of the whole limit: above 0, at most 1. 0.1 is a good one.
	Share float64
	// Hold is the longest time for which a unit is held before it is spent or goes back: 1ms to 10s, 0 is
	// DefaultHold. Its refund begins 25ms later at most. A lease is sized for half of Hold, by the key's own rate.
	Hold time.Duration
}

// Check returns an error for invalid terms; the zero Terms are valid.
func (t Terms) Check() error {
	if !(t.Share >= 0 && t.Share <= 1) { // NaN is neither
		return &weir.InputError{Field: "share", Given: t.Share, Allowed: "above 0, at most 1; 0 is no lease"}
	}
	if t.Hold != 0 && (t.Hold < shortestHold || t.Hold > longestHold) {
		return &weir.InputError{Field: "hold", Given: t.Hold, Allowed: "1ms to 10s; 0 is 100ms"}
	}
	return nil
}

func (t Terms) hold() time.Duration {
	if t.Hold == 0 {
		return DefaultHold
	}
	return t.Hold
}

// most is the most units of one key that a node holds; 0: the limit is not leased. Never leased are concurrency
// limits, whose units have an owner, sliding windows shorter than ten holds, and limits whose share is less
// than two units.
func (t Terms) most(l *weir.Limit) int64 {
	if t.Check() != nil || t.Share == 0 {
		return 0
	}
	if l.Leases() || l.CountsFor() > 0 && l.Period() < windows*t.hold().Microseconds() {
		return 0
	}
	most := min(part(t.Share, l.Most()), weir.MaxUnits)
	if most < least {
		return 0
	}
	return most
}

// part is a share of n units, rounded down.
func part(share float64, n int64) int64 { return int64(share * float64(n)) }

// lends reports whether a limit may be leased.
func (s *Store) lends(l *weir.Limit) bool { return s.terms(l).most(l) > 0 }

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
	switch {
	case l.Refills():
		return fmt.Sprintf("at most %d + %d/%s × T + %s units in any T", l.Most(), l.Refill(), period, more)
	case l.Windowed():
		return fmt.Sprintf("at most %d units in each window, as without leases", l.Capacity())
	case l.Itemized():
		return fmt.Sprintf("at most %d + %s units in any %s, %[1]d in any %[4]s",
			l.Capacity(), more, period, period-b.Hold)
	}
	return fmt.Sprintf("at most %s units more than the counter of %d in any time", more, l.Capacity())
}
