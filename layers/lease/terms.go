package lease

import (
	"time"

	"github.com/weirproject/weir"
)

const (
	// DefaultHold is the Hold of Terms that name none.
	DefaultHold = 100 * time.Millisecond

	shortestHold = time.Millisecond
	longestHold  = 10 * time.Second

	// least is the smallest lease that is worth a call.
	least = 2
	// windows is how many holding times a sliding window spans at least: units pass up to
	// one of them later than they count, which must be little beside the window.
	windows = 10
)

// Terms say how a limit may be leased. The zero Terms say that it may not.
type Terms struct {
	// Share is the part of what remains, by the last decision, that one lease takes at
	// most, and the part of the whole limit that one node holds at most of one key: above
	// 0, at most 1. 0.1 is a good one.
	Share float64
	// Hold is how long a unit is held at most before it is spent, or begins to go back: 1ms to
	// 10s, 0 is DefaultHold. It sets out 25ms later at most, 64 leases at the same time. A lease is
	// made for half of Hold, by the key's own rate.
	Hold time.Duration
}

// Check says what is wrong with terms; the zero Terms are fine.
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

// most is how many units of one key a node holds at most; 0: the limit is not leased.
// Never leased are concurrency limits, whose units have an owner, sliding windows shorter
// than ten holding times, and limits of which the share is no two units.
func (t Terms) most(l *weir.Limit) int64 {
	if t.Check() != nil || t.Share == 0 {
		return 0
	}
	switch l.Algorithm() {
	case weir.AlgorithmConcurrency:
		return 0
	case weir.AlgorithmSlidingLog, weir.AlgorithmSlidingCounter:
		if l.Period() < windows*t.hold().Microseconds() {
			return 0
		}
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

// endsWithWindow reports whether a limit's leases end with the window they were charged in.
func endsWithWindow(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmFixedWindow || l.Algorithm() == weir.AlgorithmCalendar
}
