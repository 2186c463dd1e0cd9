// Package window counts in fixed windows and in the periods of a calendar: see README.md.
package window

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// State is one window: its start and the units charged in it. Count 0 is no window.
type State struct {
	Start, Count int64
	// Until is set if the window was opened under other numbers and counts longer than the
	// limit's own would: the instant at which it ends. A charge makes the window the limit's own.
	Until int64
	// Grid is by how much the clock of epochs and calendars is ahead of the clock of Start, in µs. Where it changes, a
	// window stays the one that its start lies in.
	Grid int64
}

// Available is how many units the open window has left, or −1 if it is exceeded.
func Available(l *weir.Limit, s State, now int64) int64 {
	return max(-1, l.Capacity()-open(l, s, now).Count)
}

// Ahead reports whether the window starts so far in the future that a clock which was wrong opened it.
func Ahead(l *weir.Limit, s State, now int64) bool {
	return s.Start > now && s.Count > 0 && s.Start > furthest(l, now, s.Grid)
}

// furthest is the latest start of a window that a right clock can have opened.
func furthest(l *weir.Limit, now, grid int64) int64 {
	if l.Algorithm() != weir.AlgorithmCalendar {
		return now + l.Period()
	}
	return end(l, end(l, now, grid), grid)
}

// Back is the window of now with the count of one that is Ahead.
func Back(l *weir.Limit, s State, now int64) State {
	return State{Start: begin(l, now, s.Grid), Count: s.Count, Grid: s.Grid}
}

// Charge counts n units in the window that is open now.
func Charge(l *weir.Limit, s State, n, now int64) State {
	if n == 0 { // not even a new window: a clock that steps back is still in the old one
		return s
	}
	s = ours(l, open(l, s, now), now)
	s.Count = algorithm.Add(s.Count, n)
	return s
}

// Settle is Charge, but a window that is open under the numbers of another limit stays as it is where the numbers of l
// would end its count sooner: that an earlier charge is corrected is no reason.
func Settle(l, other *weir.Limit, s State, n, now int64) (_ State, others bool) {
	own := Adopt(other, l, s)
	charged, until := Charge(l, own, n, now), end(other, s.Start, s.Grid)
	if s.Count == 0 || now >= until || open(l, own, now).Count > 0 && until < end(l, charged.Start, s.Grid) {
		return charged, false
	}
	s.Count = algorithm.Add(s.Count, n)
	return s, true
}

// Refund takes n units from the count if takenAt lies in the window that is open now. It changes no other part.
func Refund(l *weir.Limit, s State, n, takenAt, now int64) State {
	w := open(l, s, now)
	if w.Count > 0 && takenAt >= w.Start && takenAt < stop(l, w) {
		s.Count = max(0, w.Count-n)
	}
	return s
}

// Decision describes the state for a next request of cost units.
func Decision(l *weir.Limit, s State, cost, now int64) weir.Decision {
	s = open(l, s, now)
	d := weir.Decision{Remaining: max(0, l.Capacity()-s.Count), At: weir.Instant(now)}
	if s.Count > 0 {
		d.ResetAfter = algorithm.Micros(stop(l, s) - now)
	}
	switch {
	case cost > l.Capacity():
		d.RetryAfter = weir.Never
	case s.Count+cost > l.Capacity():
		d.RetryAfter = d.ResetAfter
	}
	return d
}

// Take is one request of cost units, with a floor, on a state that was written under the limit's own numbers:
// Available, Charge and Decision in one step.
func Take(l *weir.Limit, s State, cost, floor, now int64) (
	after State, remaining int64, retryAfter, resetAfter time.Duration, granted bool,
) {
	after = s
	need := cost + floor
	w := open(l, s, now)
	limit := l.Capacity()
	if granted = w.Count+need <= limit; granted && cost > 0 {
		w.Count += cost
		after = w
	}
	if w.Count > 0 {
		resetAfter = algorithm.Micros(end(l, w.Start, w.Grid) - now)
	}
	switch {
	case need > limit:
		retryAfter = weir.Never
	case w.Count+need > limit:
		retryAfter = resetAfter
	}
	return after, algorithm.LessFloor(limit-w.Count, floor), retryAfter, resetAfter, granted
}

// Opened is the window that is open, and its length by the limit's own numbers.
func Opened(l *weir.Limit, s State, now int64) (w State, length int64) {
	w = open(l, s, now)
	return w, end(l, w.Start, w.Grid) - w.Start
}

// Adopt reads a state that was written under the numbers of another limit. A window of
// each key's own gets the new length. On a grid (epoch, calendar) the count stands until both
// the old window and the new one that holds its start are over: the units used are kept
// too long rather than too short.
func Adopt(from, to *weir.Limit, s State) State {
	if s.Count == 0 || own(to) {
		return s
	}
	adopted := State{Start: begin(to, s.Start, s.Grid), Count: s.Count, Grid: s.Grid}
	if until := end(from, s.Start, s.Grid); until > end(to, adopted.Start, s.Grid) {
		adopted.Until = until
	}
	return adopted
}

// stop is the instant at which the count of a window ends.
func stop(l *weir.Limit, s State) int64 { return max(end(l, s.Start, s.Grid), s.Until) }

// ours is the window as a write stores it: the limit's own.
func ours(l *weir.Limit, s State, now int64) State {
	if s.Until == 0 {
		return s
	}
	return State{Start: begin(l, max(now, s.Start), s.Grid), Count: s.Count, Grid: s.Grid}
}

// own reports whether each key has its own windows.
func own(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmFixedWindow && l.Anchor() == weir.First
}

// open is the state's window if it is open at now, else the empty window of now. A clock
// before the start is in the window, unless the window is Ahead.
func open(l *weir.Limit, s State, now int64) State {
	if Ahead(l, s, now) {
		return Back(l, s, now)
	}
	if s.Count > 0 && now < stop(l, s) {
		return s
	}
	return State{Start: begin(l, now, s.Grid), Grid: s.Grid}
}

func begin(l *weir.Limit, now, grid int64) int64 {
	if own(l) {
		return now
	}
	if l.Algorithm() == weir.AlgorithmCalendar {
		start, _ := l.Bounds(weir.Instant(now + grid))
		return int64(start) - grid
	}
	return now - algorithm.FloorMod(now+grid, l.Period())
}

func end(l *weir.Limit, start, grid int64) int64 {
	switch {
	case l.Algorithm() == weir.AlgorithmCalendar:
		_, last := l.Bounds(weir.Instant(start + grid))
		return int64(last) - grid
	case grid != 0 && !own(l): // it may have begun under another one
		start = begin(l, start, grid)
	}
	return start + l.Period()
}
