package breaker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// State is the state of a breaker. The larger, the worse.
type State uint8

const (
	Closed   State = iota // calls go through
	HalfOpen              // a growing share goes through, the others fail at once
	Open                  // calls fail at once
)

// String is "closed", "half-open" or "open".
func (s State) String() string { return [...]string{"closed", "half-open", "open"}[s] }

// A Change is a transition, as the observer receives it.
type Change struct {
	From, To State
	At       time.Time
	Cause    error // of opening: the last failure; otherwise nil
}

// An OpenError is the error of a refused call. It is a weir.ErrUnavailable, and the call was not executed. Many
// calls share one value.
type OpenError struct {
	Next  time.Time // the next probe; zero: the breaker is half-open
	Cause error     // the last failure; not unwrapped, since its context was another call's
}

// Error says when the store is probed next, and what the last failure was.
func (e *OpenError) Error() string {
	what := "is half-open and admits a growing share of calls"
	if !e.Next.IsZero() {
		what = fmt.Sprintf("is open and probes the store again in %v",
			max(0, time.Until(e.Next)).Round(time.Millisecond))
	}
	return fmt.Sprintf("%v (the call was not executed): the circuit breaker %s; it opened because of: %v",
		weir.ErrUnavailable, what, e.Cause)
}

// Unwrap implements errors.Is.
func (e *OpenError) Unwrap() []error { return []error{weir.ErrUnavailable, weir.ErrNotExecuted} }

// A slowError is the cause of an opening without any failed call.
type slowError struct{ took, slow time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("a call took %v, and %v or more is slow", e.took.Round(time.Microsecond), e.slow)
}

// A phase lasts from one change of the state to the next. While the breaker is open, each probe begins one.
type phase struct {
	state   State
	began   time.Duration // since New
	wait    time.Duration // Open: until the next probe
	refusal error         // unless Closed: an *OpenError
	tally   tally
}

// slices is the number of parts of the window that are counted and forgotten separately.
const slices = 8

// A tally counts the outcomes of a phase. At the start of a slice, a concurrent count may be lost.
type tally struct {
	row    atomic.Int64 // requests begun and lost since the last answer
	well   atomic.Int64 // approximate time of the last answer, ns since New
	slices [slices]slice
}

type slice struct{ turn, answered, failed atomic.Int64 }

// at returns the slice for now, emptied if it is of an earlier turn.
func (y *tally) at(now, width time.Duration) *slice {
	turn := int64(now/width) + 1 // 0: never used
	s := &y.slices[turn%slices]
	if old := s.turn.Load(); old < turn && s.turn.CompareAndSwap(old, turn) {
		s.answered.Store(0)
		s.failed.Store(0)
	}
	return s
}

// count adds an outcome and reports whether the breaker should open.
func (y *tally) count(now, began time.Duration, c *Config, o *outcome) bool {
	s := y.at(now, window/slices)
	if o.answered > 0 {
		s.answered.Add(o.answered)
	}
	if o.answered+o.slow > 0 {
		y.answeredAt(now, c)
	}
	if o.lost+o.slow == 0 {
		return false
	}
	s.failed.Add(o.lost + o.slow)
	return o.lost > 0 && y.silent(now, began, c, o.lost) || y.bad(now)
}

// answeredAt notes an answer. It writes seldom: a write for each call would bounce the cache line between cores.
func (y *tally) answeredAt(now time.Duration, c *Config) {
	if y.row.Load() != 0 {
		y.row.Store(0)
	}
	if int64(now)-y.well.Load() > int64(c.Slow/16) {
		y.well.Store(int64(now))
	}
}

// silent reports whether failures alone prove the store dead: a row of them, of calls begun after the last
// answer, and no answer for as long as Config.Slow. The row alone does not prove it: calls to a lost node of a
// Cluster end together at their timeout, while calls to other nodes are answered.
func (y *tally) silent(now, began time.Duration, c *Config, lost int64) bool {
	well := y.well.Load()
	return int64(began) >= well && y.row.Add(lost) >= c.burst && int64(now)-well >= int64(c.Slow)
}

// bad reports whether too large a share of the window failed.
func (y *tally) bad(now time.Duration) bool {
	answered, failed := y.sum(now, window/slices)
	return answered+failed >= leastCalls && float64(failed) >= failedShare*float64(answered+failed)
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
