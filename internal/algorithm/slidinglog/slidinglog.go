// Package slidinglog is the sliding log: see README.md.
package slidinglog

import (
	"math"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// Entry is the units charged at one instant.
type Entry struct{ At, Units int64 }

// State is the charges of the last window, oldest first. The zero State is empty.
type State struct {
	entries []Entry // a ring of len(entries) places
	first   int     // the oldest
	count   int     // how many
	units   int64   // the sum of all entries, including expired ones
}

// Available is how many units the window that ends now has left, or −1 if it is exceeded.
func (s *State) Available(l *weir.Limit, now int64) int64 {
	used, _ := s.used(l, now)
	return max(-1, l.Capacity()-used)
}

// Charge records n units and drops the entries that no later window contains.
func (s *State) Charge(l *weir.Limit, n, now int64) {
	if n == 0 { // drop nothing either: after a step back of the clock the entries still count
		return
	}
	used, dead := s.used(l, now)
	s.charge(n, s.clock(now), used, dead)
}

// Ahead reports whether the newest charge is so far in the future that a clock which was wrong recorded it.
func (s *State) Ahead(l *weir.Limit, now int64) bool {
	return s.count > 0 && s.newest().At > now+l.Period()
}

// Back moves all charges by as much as takes the newest to now, if it is Ahead.
func (s *State) Back(l *weir.Limit, now int64) {
	for ahead, i := s.ahead(l, now), 0; ahead > 0 && i < s.count; i++ {
		s.at(i).At -= ahead
	}
}

// ahead is by how much Back moves.
func (s *State) ahead(l *weir.Limit, now int64) int64 {
	if s.Ahead(l, now) {
		return s.newest().At - now
	}
	return 0
}

func (s *State) charge(n, now, used int64, dead int) {
	s.drop(dead)
	s.units = used
	n = min(n, weir.MaxUnits-used)
	if n <= 0 {
		return
	}
	s.units += n
	if s.count > 0 && s.newest().At == now {
		s.newest().Units += n
		return
	}
	s.push(Entry{At: now, Units: n})
}

// Refund takes up to n units from the entry of takenAt. It drops only the entries that neither limit counts in a later
// window: other is the one under which the log was charged last.
func (s *State) Refund(l, other *weir.Limit, n, takenAt, now int64) {
	if n == 0 {
		return
	}
	if other.Period() > l.Period() {
		l = other
	}
	used, dead := s.used(l, now)
	s.drop(dead)
	s.units = used
	for i := s.count - 1; i >= 0 && s.at(i).At >= takenAt; i-- {
		if s.at(i).At != takenAt {
			continue
		}
		back := min(n, s.at(i).Units)
		s.at(i).Units -= back
		s.units -= back
		s.forgetEmpty()
		return
	}
}

// Decision describes the state for a next request of cost units.
func (s *State) Decision(l *weir.Limit, cost, now int64) weir.Decision {
	used, dead := s.used(l, now)
	summary := s.summary(l, cost, now, used, dead)
	return summary.Decision(l, cost, now)
}

// Take is one request of cost units: Available, Charge (if write is true) and Decision in one step.
func (s *State) Take(l *weir.Limit, cost, now int64, write bool, d *weir.Decision) (granted bool) {
	used, dead := s.used(l, now)
	granted = used+cost <= l.Capacity()
	if granted && cost > 0 && write {
		s.charge(cost, s.clock(now), used, dead)
		used, dead = used+cost, 0
	}
	summary := s.summary(l, cost, now, used, dead)
	summary.Describe(l, cost, now, d)
	return granted
}

func (s *State) summary(l *weir.Limit, cost, now, used int64, dead int) (summary Summary) {
	summary.Used = used
	ahead := s.ahead(l, now)
	if s.count > dead {
		summary.Newest = s.newest().At - ahead
	}
	if cost <= l.Capacity() {
		excess := used + cost - l.Capacity()
		for i := dead; excess > 0; i++ {
			excess -= s.at(i).Units
			summary.Frees = s.at(i).At - ahead
		}
	}
	return summary
}

// Summary is the part of a log that a decision depends on.
type Summary struct {
	Used   int64 // units in the window that ends now
	Newest int64 // the instant of the last charge in it; any instant if Used is 0
	Frees  int64 // if there is no room, the instant of the charge whose expiry makes it
}

// Decision describes the state for a next request of cost units.
func (s Summary) Decision(l *weir.Limit, cost, now int64) (d weir.Decision) {
	s.Describe(l, cost, now, &d)
	return d
}

// Describe fills in the decision.
func (s *Summary) Describe(l *weir.Limit, cost, now int64, d *weir.Decision) {
	d.Remaining, d.At = max(0, l.Capacity()-s.Used), weir.Instant(now)
	d.RetryAfter, d.ResetAfter, d.Delay = 0, 0, 0
	if s.Used > 0 {
		d.ResetAfter = algorithm.Micros(s.Newest + l.Period() - now)
	}
	switch {
	case cost > l.Capacity():
		d.RetryAfter = weir.Never
	case s.Used+cost > l.Capacity():
		d.RetryAfter = algorithm.Micros(s.Frees + l.Period() - now)
	}
}

// Entries are the charges, oldest first.
func (s *State) Entries() []Entry {
	entries := make([]Entry, s.count)
	for i := range entries {
		entries[i] = *s.at(i)
	}
	return entries
}

// New is a state of the given charges, oldest first.
func New(entries []Entry) *State {
	s := &State{entries: append([]Entry(nil), entries...), count: len(entries)}
	for _, e := range entries {
		s.units += e.Units
	}
	return s
}

// Bytes is about the memory of the charges.
func (s *State) Bytes() int64 { return bytes(len(s.entries)) }

func bytes(entries int) int64 { return int64(entries) * 16 }

// Growth is by how many bytes the next charge makes the state larger.
func (s *State) Growth(l *weir.Limit, now int64) int64 {
	if s.count < len(s.entries) {
		return 0
	}
	if _, dead := s.used(l, now); dead > 0 || s.count > 0 && s.newest().At >= now {
		return 0
	}
	return bytes(grown(s.count) - s.count)
}

// grown is how many places a state has once it grew.
func grown(count int) int { return max(4, 2*count) }

// Used reports whether the log has units: without, it is as if never used.
func (s *State) Used() bool { return s.count > 0 }

// Newest is the instant of the newest charge; the earliest, if there is none.
func (s *State) Newest() int64 {
	if s.count > 0 {
		return s.newest().At
	}
	return math.MinInt64
}

// clock reads a clock before the newest charge as that instant.
func (s *State) clock(now int64) int64 {
	if s.count > 0 {
		return max(now, s.newest().At)
	}
	return now
}

// used is the units in the window that ends now; dead is how many entries lie before it.
func (s *State) used(l *weir.Limit, now int64) (units int64, dead int) {
	units = s.units
	for horizon := s.clock(now) - l.Period(); dead < s.count && s.at(dead).At <= horizon; dead++ {
		units -= s.at(dead).Units
	}
	return units, dead
}

func (s *State) at(i int) *Entry {
	i += s.first
	if i >= len(s.entries) {
		i -= len(s.entries)
	}
	return &s.entries[i]
}

func (s *State) newest() *Entry { return s.at(s.count - 1) }

func (s *State) drop(dead int) {
	s.first += dead
	if s.first >= len(s.entries) {
		s.first -= len(s.entries)
	}
	s.count -= dead
}

func (s *State) push(e Entry) {
	if s.count == len(s.entries) {
		entries := make([]Entry, grown(s.count))
		copy(entries, s.Entries())
		s.entries, s.first = entries, 0
	}
	s.count++
	*s.newest() = e
}

// forgetEmpty drops entries without units at both ends, so that the newest and the oldest
// entry always have units.
func (s *State) forgetEmpty() {
	for s.count > 0 && s.newest().Units == 0 {
		s.count--
	}
	for s.count > 0 && s.at(0).Units == 0 {
		s.drop(1)
	}
}
