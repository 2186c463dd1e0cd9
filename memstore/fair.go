package memstore

import (
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
	"github.com/weirproject/weir/internal/algorithm/fair"
	"github.com/weirproject/weir/internal/algorithm/window"
)

// asks is the state with the member that a claim names, in the numbers that a large state does not need.
func (s *Store) asks(c *weir.Claim, st state) state {
	if c.Limit.Whole() != nil {
		st.a, st.b = int64(s.keyer.member(c.Member)), max(1, c.Weight)
	}
	return st
}

// memberOf is the member of such a state.
func memberOf(s state) fair.Member { return fair.Member{ID: s.a, Weight: max(1, s.b)} }

type fairWindowKind struct{}

type fairWindowState struct {
	large
	state fair.Window
}

func (b *large) fairWindow() *fair.Window { return &(*fairWindowState)(unsafe.Pointer(b)).state }

// fairWindowOf is a copy with the present grid: the state of a key never used is shared. It has the same parts.
func fairWindowOf(s state, now moment) fair.Window {
	w := *s.large.fairWindow()
	w.Whole.Grid = now.grid
	return w
}

// fairState is a state under the limit of a window that was read from s and changed.
func fairState(l *weir.Limit, s state, w fair.Window) state {
	next := newLarge(l)
	*next.fairWindow() = w
	s.large = next
	return s
}

func (*fairWindowKind) empty() *large { return &new(fairWindowState).large }

func (*fairWindowKind) copied(b *large) *large {
	return &(&fairWindowState{state: *b.fairWindow()}).large
}

func (*fairWindowKind) used(b *large) bool { return b.fairWindow().Whole.Count > 0 }

func (*fairWindowKind) size(b *large) int64 {
	return int64(unsafe.Sizeof(fairWindowState{})) + b.fairWindow().Parts.Bytes()
}

func (*fairWindowKind) growth(b *large, _ *weir.Limit, _, _ int64) int64 {
	return b.fairWindow().Parts.Growth()
}

func (*fairWindowKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	w := fairWindowOf(s, now)
	return w.Available(l, memberOf(s), floor, now.at)
}

func (*fairWindowKind) charge(l *weir.Limit, s state, n int64, now moment, _ string) state {
	w := fairWindowOf(s, now)
	w.Charge(l, memberOf(s), n, now.at)
	*s.large.fairWindow() = w
	return s
}

func (*fairWindowKind) settle(l, other *weir.Limit, s state, n int64, now moment) (state, *weir.Limit) {
	w := fairWindowOf(s, now)
	if w.Settle(l, other, memberOf(s), n, now.at) {
		l = other
	}
	return fairState(l, s, w), l
}

func (*fairWindowKind) refund(l, other *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	w := fairWindowOf(s, now)
	found := w.Refund(l, other, memberOf(s), r.n, r.takenAt, now.at)
	*s.large.fairWindow() = w
	return s, other, found
}

func (*fairWindowKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision {
	w := fairWindowOf(s, now)
	return w.Decision(l, memberOf(s), cost, floor, now.at)
}

func (*fairWindowKind) standing(l *weir.Limit, s state, now moment) weir.Standing {
	w := fairWindowOf(s, now)
	return w.Standing(l, memberOf(s), now.at)
}

func (*fairWindowKind) ahead(l *weir.Limit, s state, now moment) bool {
	return s.large.fairWindow().Whole.Start > now.at && window.Ahead(l.Whole(), fairWindowOf(s, now).Whole, now.at)
}

func (*fairWindowKind) back(l *weir.Limit, s state, now moment) state {
	w := fairWindowOf(s, now)
	w.Whole = window.Back(l.Whole(), w.Whole, now.at)
	*s.large.fairWindow() = w
	return s
}

func (*fairWindowKind) adopt(from, to *weir.Limit, s state, now moment, _ bool) state {
	w := fairWindowOf(s, now)
	w.Whole = window.Adopt(from.Whole(), to.Whole(), w.Whole)
	return fairState(to, s, w)
}

func (*fairWindowKind) newest(_ *weir.Limit, s state) int64 { return s.large.fairWindow().Whole.Start }

func (*fairWindowKind) take(l *weir.Limit, s state, cost, floor int64, now moment, peeks bool) (a, b, remaining int64,
	retryAfter, resetAfter, delay time.Duration, granted bool) {
	var d weir.Decision
	grown, granted := takeFairWindow(l, s, cost, floor, now, peeks, &d)
	return grown, 0, d.Remaining, d.RetryAfter, d.ResetAfter, 0, granted
}

func takeFairWindow(l *weir.Limit, s state, cost, floor int64, now moment, peeks bool, d *weir.Decision) (
	grown int64, granted bool,
) {
	w := s.large.fairWindow()
	w.Whole.Grid = now.grid
	before := w.Parts.Bytes()
	granted = w.Take(l, memberOf(s), cost, floor, now.at, !peeks, d)
	return w.Parts.Bytes() - before, granted
}

// takeMember is a request of a member to a locked window.
func (s *Store) takeMember(c *weir.Claim, st state, now moment, decisions []weir.Decision) (count int64) {
	d := new(weir.Decision)
	if decisions != nil {
		d = &decisions[0]
	}
	grown, granted := takeFairWindow(c.Limit, st, c.Cost, c.Floor, now, false, d)
	s.grown(grown)
	return one(granted)
}

func (*fairWindowKind) numbers(s state) (list []int64, ids [][]byte) {
	w := s.large.fairWindow()
	return append([]int64{w.Whole.Start, w.Whole.Count}, w.Parts.Numbers()...), nil
}

func (*fairWindowKind) restore(_ *weir.Limit, s state, list []int64, _ [][]byte) (state, bool) {
	if len(list) < 2 || list[1] < 0 {
		return s, false
	}
	parts, ok := fair.FromNumbers(list[2:])
	*s.large.fairWindow() = fair.Window{Whole: window.State{Start: list[0], Count: list[1]}, Parts: parts}
	return s, ok
}

type fairLeaseKind struct{ plain }

type fairLeaseState struct {
	large
	state fair.Leases
}

func (b *large) fairLeases() *fair.Leases { return &(*fairLeaseState)(unsafe.Pointer(b)).state }

func (*fairLeaseKind) empty() *large { return &new(fairLeaseState).large }

func (*fairLeaseKind) copied(b *large) *large {
	return &(&fairLeaseState{state: *b.fairLeases()}).large
}

func (*fairLeaseKind) used(*large) bool { return false } // as of leaseKind

func (*fairLeaseKind) size(b *large) int64 {
	state := b.fairLeases()
	return int64(unsafe.Sizeof(fairLeaseState{})) + state.Whole.Bytes() + state.Parts().Bytes()
}

func (*fairLeaseKind) growth(b *large, _ *weir.Limit, _, _ int64) int64 {
	return concurrency.LeaseBytes + b.fairLeases().Parts().Growth()
}

func (*fairLeaseKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	return s.large.fairLeases().Available(l, memberOf(s), floor, now.at)
}

func (*fairLeaseKind) charge(l *weir.Limit, s state, n int64, now moment, lease string) state {
	s.large.fairLeases().Take(l, memberOf(s), lease, n, now.at)
	return s
}

func (*fairLeaseKind) refund(l, _ *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	return s, l, s.large.fairLeases().Release(memberOf(s), r.lease, now.at)
}

func (*fairLeaseKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) (d weir.Decision) {
	s.large.fairLeases().Describe(l, memberOf(s), cost, floor, now.at, &d)
	return d
}

func (*fairLeaseKind) standing(l *weir.Limit, s state, now moment) weir.Standing {
	return s.large.fairLeases().Standing(l, memberOf(s), now.at)
}

func (*fairLeaseKind) numbers(s state) (list []int64, ids [][]byte) {
	state := s.large.fairLeases()
	for _, lease := range state.Whole.Leases() {
		list, ids = append(list, lease.Expires, lease.Units), append(ids, []byte(lease.ID))
	}
	return append(list, state.Parts().Numbers()...), ids
}

func (*fairLeaseKind) restore(_ *weir.Limit, s state, list []int64, ids [][]byte) (state, bool) {
	if len(list) < 2*len(ids) {
		return s, false
	}
	whole, ok := leasesOf(list[:2*len(ids)], ids, weir.MaxLease+2*fair.MemberBytes)
	parts, known := fair.FromNumbers(list[2*len(ids):])
	*s.large.fairLeases() = *fair.NewLeases(whole, parts)
	return s, ok && known
}
