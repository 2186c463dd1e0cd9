package fair

import (
	"time"

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
	var v view
	v.find(w, l, m, now)
	return v.Standing
}

// StandingIn returns the standing with Used and Open of the present window.
func StandingIn(l *weir.Limit, w window.State, s weir.Standing, now int64) weir.Standing {
	v := view{Standing: s}
	v.open(l, w, now)
	return v.Standing
}

// A view is the present window as a request of a member finds it.
type view struct {
	weir.Standing
	window.State
	length int64 // by the limit's own numbers
}

// find fills in the view of a member. A view is too large to be a result.
func (v *view) find(w *Window, l *weir.Limit, m Member, now int64) {
	v.open(l, w.Whole, now)
	parts := &w.Parts
	if v.Count == 0 { // the parts belong to an earlier window
		parts = new(Parts)
	}
	parts.stand(l, m, &v.Standing)
}

// open fills in the window, and Used and Open of the standing.
func (v *view) open(l *weir.Limit, w window.State, now int64) {
	v.State, v.length = window.Opened(l.Whole(), w, now)
	v.Used, v.Open = v.Count, opened(l, 100*max(0, now-v.Start)/v.length)
}

// Available is the number of units that a member is granted above a floor, or −1 if a request of no units is refused
// too.
func (w *Window) Available(l *weir.Limit, m Member, floor, now int64) int64 {
	var v view
	v.find(w, l, m, now)
	return left(l, &v.Standing, floor)
}

// Take is one request of a member on a state that the limit's own numbers wrote: Available, Charge and Decision in one
// step. Unless it charges, the state is described as it is.
func (w *Window) Take(l *weir.Limit, m Member, cost, floor, now int64, charges bool, d *weir.Decision) (granted bool) {
	var v view
	v.find(w, l, m, now)
	granted = algorithm.Fit(left(l, &v.Standing, floor), cost, 1) > 0
	if granted && charges && cost > 0 {
		w.begin(v.Count)
		w.Parts.add(l, m, cost)
		v.Count += cost
		v.Used += cost
		v.Own += cost // the share already counts the member as one that uses the limit
		w.Whole = v.State
	}
	v.describe(l, cost, floor, now, d)
	d.Remaining = algorithm.LessFloor(d.Remaining, floor)
	return granted
}

// Charge counts n units of a member.
func (w *Window) Charge(l *weir.Limit, m Member, n, now int64) {
	if n == 0 {
		return
	}
	open, _ := window.Opened(l.Whole(), w.Whole, now)
	w.begin(open.Count)
	w.Whole = window.Charge(l.Whole(), w.Whole, n, now)
	w.Parts.add(l, m, n)
}

// begin drops the parts of a window that is over, or without units: a count of 0.
func (w *Window) begin(count int64) {
	if count == 0 {
		w.Parts.clear()
	}
}

// Settle is Charge, as window.Settle: others says that the window stayed the other limit's.
func (w *Window) Settle(l, other *weir.Limit, m Member, n, now int64) (others bool) {
	after, others := window.Settle(l.Whole(), other.Whole(), w.Whole, n, now)
	if !others {
		w.Whole = window.Adopt(other.Whole(), l.Whole(), w.Whole)
		open, _ := window.Opened(l.Whole(), w.Whole, now)
		w.begin(open.Count)
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
	w.begin(count)
	return true
}

// Decision describes the state for a member's next request of cost units above a floor, which is part of Remaining.
func (w *Window) Decision(l *weir.Limit, m Member, cost, floor, now int64) (d weir.Decision) {
	var v view
	v.find(w, l, m, now)
	v.describe(l, cost, floor, now, &d)
	return d
}

// Decision describes a window for the next request of a member that has a standing in it. The floor is part of
// Remaining, as of other algorithms: see algorithm.LessFloor.
func Decision(l *weir.Limit, w window.State, s *weir.Standing, cost, floor, now int64) (d weir.Decision) {
	v := view{Standing: *s}
	v.open(l, w, now)
	v.describe(l, cost, floor, now, &d)
	return d
}

func (v *view) describe(l *weir.Limit, cost, floor, now int64, d *weir.Decision) {
	free := left(l, &v.Standing, floor)
	d.Remaining, d.RetryAfter, d.ResetAfter = max(0, free)+floor, 0, 0
	d.Delay, d.At, d.Standing = 0, weir.Instant(now), nil
	if v.Count > 0 {
		d.ResetAfter = algorithm.Micros(max(v.Start+v.length, v.Until) - now)
	}
	switch {
	case cost+floor > l.Capacity():
		d.RetryAfter = weir.Never
	case v.Count+cost+floor > l.Capacity():
		d.RetryAfter = d.ResetAfter
	case free < cost || free < 0:
		d.RetryAfter = v.retry(l, cost, now, d.ResetAfter)
	}
}

// retry is the wait until the window has passed so far that any member is granted the cost, or until it ends.
func (v *view) retry(l *weir.Limit, cost, now int64, reset time.Duration) time.Duration {
	percent := opens(l, v.Count+cost)
	if percent >= 100 {
		return reset
	}
	return min(reset, algorithm.Micros(v.Start+algorithm.CeilDiv(percent*v.length, 100)-now))
}
