package fair

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/window"
)

// A Window is the state of a fixed window or a calendar that members share. Its parts are of the same window.
type Window struct {
	Whole window.State
	Parts Parts
}

// Standing is the standing of the member in the window that is open.
func (w *Window) Standing(l *weir.Limit, m Member, now int64) weir.Standing {
	parts := &w.Parts
	if _, _, used := window.Opened(l.Whole(), w.Whole, now); used == 0 {
		parts = new(Parts)
	}
	return StandingIn(l, w.Whole, parts.Of(l, m), now)
}

// StandingIn is the standing with the usage of the window that is open, and what is open in it to any member.
func StandingIn(l *weir.Limit, w window.State, s weir.Standing, now int64) weir.Standing {
	start, length, used := window.Opened(l.Whole(), w, now)
	s.Used, s.Open = used, opened(l, 100*max(0, now-start)/length)
	return s
}

// Available is the number of units that a member is granted above a floor, or −1 if a request of no units is refused
// too.
func (w *Window) Available(l *weir.Limit, m Member, floor, now int64) int64 {
	standing := w.Standing(l, m, now)
	return left(l, &standing, floor)
}

// Charge counts n units of a member.
func (w *Window) Charge(l *weir.Limit, m Member, n, now int64) {
	if n == 0 {
		return
	}
	w.begin(l, now)
	w.Whole = window.Charge(l.Whole(), w.Whole, n, now)
	w.Parts.add(l, m, n)
}

// begin drops the parts of a window that is over.
func (w *Window) begin(l *weir.Limit, now int64) {
	if _, _, used := window.Opened(l.Whole(), w.Whole, now); used == 0 {
		w.Parts = Parts{}
	}
}

// Settle is Charge, as window.Settle: others says that the window stayed the other limit's.
func (w *Window) Settle(l, other *weir.Limit, m Member, n, now int64) (others bool) {
	after, others := window.Settle(l.Whole(), other.Whole(), w.Whole, n, now)
	if !others {
		w.Whole = window.Adopt(other.Whole(), l.Whole(), w.Whole)
		w.begin(l, now)
	}
	w.Whole = after
	w.Parts.add(l, m, n)
	return others
}

// Refund gives back n units of a member, if the window that is open lost them.
func (w *Window) Refund(l, other *weir.Limit, m Member, n, takenAt, now int64) (found bool) {
	before := window.Adopt(other.Whole(), l.Whole(), w.Whole)
	count := window.Refund(l.Whole(), before, n, takenAt, now).Count
	if count == before.Count {
		return false
	}
	w.Whole.Count = count
	w.Parts.remove(m.ID, n)
	if count == 0 {
		w.Parts = Parts{}
	}
	return true
}

// Decision describes the state for a member's next request of cost units above a floor, which is part of Remaining.
func (w *Window) Decision(l *weir.Limit, m Member, cost, floor, now int64) weir.Decision {
	standing := w.Standing(l, m, now)
	return Decision(l, w.Whole, &standing, cost, floor, now)
}

// Decision describes a window for the next request of a member that has a standing in it. The floor is part of
// Remaining, as of other algorithms: see algorithm.LessFloor.
func Decision(l *weir.Limit, w window.State, s *weir.Standing, cost, floor, now int64) weir.Decision {
	d := window.Decision(l.Whole(), w, cost+floor, now)
	free := left(l, s, floor)
	d.Remaining = max(0, free) + floor
	if d.RetryAfter == 0 && (free < cost || free < 0) {
		start, length, _ := window.Opened(l.Whole(), w, now)
		d.RetryAfter = d.ResetAfter
		if percent := opens(l, s.Used+cost); percent < 100 {
			at := start + algorithm.CeilDiv(percent*length, 100)
			d.RetryAfter = min(d.RetryAfter, algorithm.Micros(at-now))
		}
	}
	return d
}
