package breaker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// State says what becomes of calls. The larger, the worse.
type State uint8

const (
	Closed  State = iota // they go through
	Closing              // a growing share goes through, the others fail at once
	Open                 // they fail at once
)

// String is the state's word: "closed", "open", "closing".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case Closing:
		return "closing"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// A Change is told to the observer.
type Change struct {
	From, To State
	At       time.Time
	Cause    error // of opening: what the last failure was; else nil
}

// An OpenError is what calls that are not let in fail with, at once. It is a
// weir.ErrUnavailable, and the call was not executed. Many calls share one.
type OpenError struct {
	Next  time.Time // when the store is probed next; zero: it is well, calls are let in by and by
	Cause error     // the last failure; not unwrapped: its context was another call's
}

// Error says when the store is tried again, and why it is not now.
func (e *OpenError) Error() string {
	what := "is closing and lets more and more calls in"
	if !e.Next.IsZero() {
		what = fmt.Sprintf("is open and tries the store again in %v", max(0, time.Until(e.Next)).Round(time.Millisecond))
	}
	return fmt.Sprintf("%v (the call was not executed): the circuit breaker %s; it opened because of: %v", weir.ErrUnavailable, what, e.Cause)
}

// Unwrap is weir.ErrUnavailable.
func (e *OpenError) Unwrap() error { return weir.ErrUnavailable }

// A slowError is why a breaker opened that nobody told of an error.
type slowError struct{ took, slow time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("a call took %v; from %v on that is slow", e.took.Round(time.Microsecond), e.slow)
}

// A term is from one change of the state to the next. While it is open, each probe begins one.
type term struct {
	state   State
	began   time.Duration // since the breaker was made
	wait    time.Duration // Open: until the next probe
	refusal error         // not Closed: an *OpenError
	tally   tally
}

// slices are how many parts of the window are counted, and forgotten, each for itself.
const slices = 8

// A tally is what came of the calls of a term. Where a slice begins, a count that is made at
// that very moment may be lost.
type tally struct {
	row    atomic.Int64 // requests made and lost since the last answer
	well   atomic.Int64 // about when that came, ns since the breaker was made
	slices [slices]slice
}

type slice struct{ turn, answered, failed atomic.Int64 }

// at is the slice for now, empty if its turn begins.
func (y *tally) at(now, width time.Duration) *slice {
	turn := int64(now/width) + 1 // 0 is a slice that was never used
	s := &y.slices[turn%slices]
	if old := s.turn.Load(); old < turn && s.turn.CompareAndSwap(old, turn) {
		s.answered.Store(0)
		s.failed.Store(0)
	}
	return s
}

// count reports whether the breaker is to open.
func (y *tally) count(now, began time.Duration, c *config, o *outcome) bool {
	s := y.at(now, c.within/slices)
	if o.answered > 0 {
		s.answered.Add(o.answered)
	}
	if o.answered+o.slow > 0 {
		y.heard(now, c)
	}
	if o.lost+o.slow == 0 {
		return false
	}
	s.failed.Add(o.lost + o.slow)
	return o.lost > 0 && y.silent(now, began, c, o.lost) || y.bad(now, c)
}

// heard notes an answer. It seldom writes: to write for each call would cost the cores their
// caches.
func (y *tally) heard(now time.Duration, c *config) {
	if y.row.Load() != 0 {
		y.row.Store(0)
	}
	if int64(now)-y.well.Load() > int64(c.slow/16) {
		y.well.Store(int64(now))
	}
}

// silent reports whether nobody is answered any more: whoever asked since the last answer, and
// it is a while ago. A row of failures alone does not prove it: calls to the part of a Cluster
// that is gone end together, at their timeout, while others are answered.
func (y *tally) silent(now, began time.Duration, c *config, lost int64) bool {
	well := y.well.Load()
	return int64(began) >= well && y.row.Add(lost) >= c.burst && int64(now)-well >= int64(c.slow)
}

// bad reports whether too large a share failed lately.
func (y *tally) bad(now time.Duration, c *config) bool {
	answered, failed := y.sum(now, c.within/slices)
	return answered+failed >= c.least && float64(failed) >= c.share*float64(answered+failed)
}

func (y *tally) sum(now, width time.Duration) (answered, failed int64) {
	oldest := int64(now/width) + 1 - slices
	for i := range y.slices {
		if s := &y.slices[i]; s.turn.Load() > oldest {
			answered += s.answered.Load()
			failed += s.failed.Load()
		}
	}
	return answered, failed
}
