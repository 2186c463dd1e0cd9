// Package slidinglog is the sliding log: see README.md.
package slidinglog

import (
	"math"
	"slices"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// Entry is the units charged at one instant.
type Entry struct{ At, Units int64 }

// State is the charges of the last window, oldest first. The zero State is empty. Few charges are inside: with
// its limit and mutex a store's state fits a line of the cache.
type State struct {
	count int   // how many
	ring  *ring // the charges, once there are more than few
	few   [2]Entry
}

// ring is any number of charges.
type ring struct {
	entries []Entry
	first   int   // the oldest
	units   int64 // the sum of all entries, including expired ones
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
	n = min(n, weir.MaxUnits-used)
	switch {
	case n <= 0:
	case s.count > 0 && s.newest().At == now:
		s.add(s.count-1, n)
	default:
		s.push(now)
		s.add(s.count-1, n)
	}
}

// Refund takes up to n units from the entry of takenAt. It drops only the entries that neither limit counts in a later
// window: other is the limit of the last charge. It returns the units.
func (s *State) Refund(l, other *weir.Limit, n, takenAt, now int64) (back int64) {
	if n == 0 {
		return 0
	}
	if other.Period() > l.Period() {
		l = other
	}
	_, dead := s.used(l, now)
	s.drop(dead)
	for i := s.count - 1; i >= 0 && s.at(i).At >= takenAt; i-- {
		if s.at(i).At != takenAt {
			continue
		}
		back = min(n, s.at(i).Units)
		s.add(i, -back)
		s.forgetEmpty()
		break
	}
	return back
}

// Decision describes the state for a next request of cost units.
func (s *State) Decision(l *weir.Limit, cost, now int64) weir.Decision {
	used, dead := s.used(l, now)
	summary, ahead := s.summary(l, cost, used, dead), s.ahead(l, now)
	summary.Newest -= ahead
	summary.Frees -= ahead
	return summary.Decision(l, cost, now)
}

// Take is one request of cost units, with a floor, to a State that is not Ahead: Available, Charge (if write is true)
// and Decision in one step.
func (s *State) Take(l *weir.Limit, cost, floor, now int64, write bool, d *weir.Decision) (granted bool) {
	used, dead := s.used(l, now)
	granted = used+cost+floor <= l.Capacity()
	if granted && cost > 0 && write {
		s.charge(cost, s.clock(now), used, dead)
		used, dead = used+cost, 0
	}
	summary := s.summary(l, cost+floor, used, dead)
	summary.Describe(l, cost+floor, now, d)
	d.Remaining = algorithm.LessFloor(d.Remaining, floor)
	return granted
}

func (s *State) summary(l *weir.Limit, cost, used int64, dead int) (summary Summary) {
	summary.Used = used
	if s.count > dead {
		summary.Newest = s.newest().At
	}
	if cost <= l.Capacity() {
		excess := used + cost - l.Capacity()
		for i := dead; excess > 0; i++ {
			excess -= s.at(i).Units
			summary.Frees = s.at(i).At
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
	s := &State{count: len(entries)}
	if len(entries) <= len(s.few) {
		copy(s.few[:], entries)
		return s
	}
	s.ring = &ring{entries: slices.Clone(entries)}
	for _, e := range entries {
		s.ring.units += e.Units
	}
	return s
}

// Bytes is about the memory of the charges that the State does not have inside.
func (s *State) Bytes() int64 {
	if s.ring == nil {
		return 0
	}
	return bytes(len(s.ring.entries))
}

// bytes is the memory of a ring.
func bytes(entries int) int64 {
	return int64(unsafe.Sizeof(ring{})) + int64(entries)*int64(unsafe.Sizeof(Entry{}))
}

// Growth is by how many bytes the next charge makes the state larger.
func (s *State) Growth(l *weir.Limit, now int64) int64 {
	if s.count < s.places() {
		return 0
	}
	if _, dead := s.used(l, now); dead > 0 || s.newest().At >= now {
		return 0
	}
	return bytes(2*s.count) - s.Bytes()
}

// places is how many charges have room.
func (s *State) places() int {
	if s.ring == nil {
		return len(s.few)
	}
	return len(s.ring.entries)
}

// Used reports whether the log has units: without, it is in its initial state.
func (s *State) Used() bool { return s.count > 0 }

// Newest is the instant of the newest charge; the earliest instant of an empty log.
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
	units = s.units()
	for horizon := s.clock(now) - l.Period(); dead < s.count && s.at(dead).At <= horizon; dead++ {
		units -= s.at(dead).Units
	}
	return units, dead
}

// units is the sum of all entries, including expired ones.
func (s *State) units() (sum int64) {
	if s.ring != nil {
		return s.ring.units
	}
	for i := range s.count {
		sum += s.few[i].Units
	}
	return sum
}

func (s *State) at(i int) *Entry {
	if s.ring == nil {
		return &s.few[i]
	}
	i += s.ring.first
	if i >= len(s.ring.entries) {
		i -= len(s.ring.entries)
	}
	return &s.ring.entries[i]
}

func (s *State) newest() *Entry { return s.at(s.count - 1) }

// add changes the units of an entry.
func (s *State) add(i int, units int64) {
	s.at(i).Units += units
	if s.ring != nil {
		s.ring.units += units
	}
}

// drop forgets the oldest entries.
func (s *State) drop(dead int) {
	if s.ring == nil {
		copy(s.few[:], s.few[dead:])
		s.count -= dead
		return
	}
	for range dead {
		s.ring.units -= s.at(0).Units
		s.count--
		if s.ring.first++; s.ring.first == len(s.ring.entries) {
			s.ring.first = 0
		}
	}
}

// push adds an entry without units.
func (s *State) push(at int64) {
	if s.count == s.places() {
		grown := &ring{entries: make([]Entry, 2*s.count), units: s.units()}
		for i := range s.count {
			grown.entries[i] = *s.at(i)
		}
		s.ring = grown
	}
	s.count++
	*s.newest() = Entry{At: at}
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
