// Package slidingcounter is the sliding window counter: see README.md.
package slidingcounter

import (
	"math"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// State is the counts of the newest slices, one more than the limit has. The zero State
// is empty. Small counts of few slices are inside: with its limit and mutex a store's state fits a line of the cache.
type State struct {
	newest int64 // the index of the newest slice: it covers [newest × S, (newest + 1) × S)
	wide   *wide // the counts, once they do not fit into few
	total  uint32
	slots  uint8 // the size of the ring of counts, of which the newest slice is at head; 0 at first
	head   uint8
	read   reading
	few    [12]uint16
}

// wide is counts of any number and size.
type wide struct {
	total  int64 // the sum
	counts []int64
}

// reading says how a state was converted that is read under other numbers.
type reading uint8

const (
	asWritten reading = iota
	converted
	convertedAhead // of a state that was Ahead
)

// New is a state of the given counts, slice newest last.
func New(newest int64, counts []int64) *State {
	if len(counts) == 0 {
		return &State{}
	}
	s := &State{newest: newest}
	s.open(int64(len(counts)))
	for i, n := range counts {
		s.add(newest-int64(len(counts)-1-i), n)
	}
	return s
}

// Counts are the newest slice's index and the counts, slice newest last.
func (s *State) Counts() (newest int64, counts []int64) {
	for i := s.oldest(); i <= s.newest; i++ {
		counts = append(counts, s.count(i))
	}
	return s.newest, counts
}

// Available is the capacity less the estimate, or −1 if the estimate exceeds the capacity.
func (s *State) Available(l *weir.Limit, now int64) int64 {
	if s.Ahead(l, now) {
		return s.broughtBack(l, now).Available(l, now)
	}
	slice, elapsed := s.clock(l, now)
	return s.left(l, slice, elapsed)
}

// left is Available for a clock that was read.
func (s *State) left(l *weir.Limit, slice, elapsed int64) int64 {
	oldest := s.count(slice - l.Slices())
	return left(l, s.sum(l, slice)-oldest, oldest, elapsed)
}

// Take is one request of cost units, with a floor, to a State that is not Ahead: Available, Charge (if write is true)
// and Decision in one step.
func (s *State) Take(l *weir.Limit, cost, floor, now int64, write bool, d *weir.Decision) (granted bool) {
	slice, elapsed := s.clock(l, now)
	available := s.left(l, slice, elapsed)
	if granted = algorithm.Fit(available-floor, cost, 1) > 0; granted && cost > 0 && write {
		s.charge(l, cost, slice)
		available -= cost
	}
	s.describe(l, available, cost+floor, now, slice, elapsed, d)
	d.Remaining = algorithm.LessFloor(d.Remaining, floor)
	return granted
}

// Ahead reports whether the newest slice is so far in the future that a clock which was wrong charged it.
func (s *State) Ahead(l *weir.Limit, now int64) bool {
	if s.read != asWritten {
		return s.read == convertedAhead
	}
	return s.ahead(l, l, now)
}

// ahead is Ahead for a state in the slices of another limit.
func (s *State) ahead(other, l *weir.Limit, now int64) bool {
	start := s.newest * other.Slice()
	return s.Used() && start > now && start > floorDiv(now, l.Tick())*l.Tick()+l.Period()
}

// Back moves the slices so that the newest is the slice of now, if it is Ahead.
func (s *State) Back(l *weir.Limit, now int64) {
	if s.Ahead(l, now) {
		s.newest, s.read = floorDiv(now, l.Slice()), asWritten
	}
}

// broughtBack reads the state as after Back.
func (s *State) broughtBack(l *weir.Limit, now int64) *State {
	moved := *s
	moved.Back(l, now)
	return &moved
}

// Charge counts n units in the slice that now lies in.
func (s *State) Charge(l *weir.Limit, n, now int64) {
	if n == 0 {
		return
	}
	slice, _ := s.clock(l, now)
	s.charge(l, n, slice)
}

func (s *State) charge(l *weir.Limit, n, slice int64) {
	if slice != s.newest || !s.Used() {
		s.advance(l, slice)
	}
	s.add(slice, min(n, weir.MaxUnits-s.sumOfAll()))
}

// Refund takes up to n units from the slice that holds takenAt, if it still counts. It changes no other slice: counts
// under the numbers of another limit stay in its slices. It returns the units.
func (s *State) Refund(l, other *weir.Limit, n, takenAt, now int64) (back int64) {
	taken := floorDiv(takenAt, other.Slice())
	if s.count(taken) == 0 || same(l, other) && taken < s.slice(l, now)-l.Slices() {
		return 0
	}
	back = min(n, s.count(taken))
	s.add(taken, -back)
	return back
}

// Decision describes the state for a next request of cost units.
func (s *State) Decision(l *weir.Limit, cost, now int64) weir.Decision {
	if s.Ahead(l, now) {
		return s.broughtBack(l, now).Decision(l, cost, now)
	}
	var d weir.Decision
	slice, elapsed := s.clock(l, now)
	s.describe(l, s.left(l, slice, elapsed), cost, now, slice, elapsed, &d)
	return d
}

// describe is Decision for a known number of available units, n less after a charge of n, and a clock that
// was read.
func (s *State) describe(l *weir.Limit, available, cost, now, slice, elapsed int64, d *weir.Decision) {
	d.Remaining, d.At = max(0, available), weir.Instant(now)
	d.RetryAfter, d.ResetAfter, d.Delay = 0, 0, 0
	if s.Used() {
		d.ResetAfter = algorithm.Micros((s.lastUsed()+l.Slices()+1)*l.Slice() - now)
	}
	switch {
	case cost > l.Capacity():
		d.RetryAfter = weir.Never
	case available < cost || available < 0:
		d.RetryAfter = algorithm.Micros(s.grantable(l, cost, slice, elapsed) - now)
	}
}

// Adopt is the state, which was written under the numbers of another limit, under the numbers of to. A reading does not
// depend on the clock, because each must give the same until the state is written: now only tells whether the state is
// Ahead. So the newest slice is placed by its end. That may lie ahead; then the clock reads as that slice. The other
// slices are placed behind it by the least possible age of their units.
func (s *State) Adopt(from, to *weir.Limit, now int64) *State {
	adopted := s.adopt(from, to, math.MaxInt64)
	if adopted != s && s.ahead(from, to, now) {
		adopted.read = convertedAhead
	} else if adopted != s {
		adopted.read = converted
	}
	return adopted
}

// AdoptCharged is Adopt for a charge at now. The newest slice is the slice of now at the latest, if the clock did not
// step back: if each of two limits placed it at the end of the other's slice, it would run away from the clock where
// both charge by turns.
func (s *State) AdoptCharged(from, to *weir.Limit, now int64) *State { return s.adopt(from, to, now) }

// same reports whether two limits have the same slices.
func same(a, b *weir.Limit) bool { return a.Slice() == b.Slice() && a.Slices() == b.Slices() }

func (s *State) adopt(from, to *weir.Limit, now int64) *State {
	if s.slots == 0 || same(from, to) {
		return s
	}
	other, width := new(State), from.Slice()
	newest := floorDiv(min((s.newest+1)*width-1, max(now, s.newest*width)), to.Slice())
	for i := s.oldest(); i <= s.newest; i++ {
		if s.count(i) > 0 {
			slice := newest - max(0, s.newest-1-i)*width/to.Slice()
			other.advance(to, slice)
			other.add(slice, s.count(i))
		}
	}
	if other.Used() {
		other.advance(to, newest)
	}
	return other
}

// Used reports whether the slices have units: without, they are in their initial state.
func (s *State) Used() bool { return s.sumOfAll() > 0 }

// Bytes is about the memory of the counts that the State does not have inside.
func (s *State) Bytes() int64 {
	if s.wide == nil {
		return 0
	}
	return wideBytes(int64(s.slots))
}

func wideBytes(slots int64) int64 { return int64(unsafe.Sizeof(wide{})) + 8*slots }

// Growth is by how many bytes a charge of n units makes the state of a known key larger.
func (s *State) Growth(l *weir.Limit, n, now int64) int64 {
	if s.wide != nil || s.slots == 0 || s.count(s.slice(l, now))+n <= math.MaxUint16 {
		return 0
	}
	return wideBytes(int64(s.slots))
}

// clock is the slice that now lies in and how many ticks of it have passed. A clock
// before the newest slice reads as that slice's start, unless all units were refunded: then
// the state is the initial one.
func (s *State) clock(l *weir.Limit, now int64) (slice, elapsed int64) {
	slice = floorDiv(now, l.Slice())
	if s.Used() && slice < s.newest {
		return s.newest, 0
	}
	return slice, inTicks(l, now-slice*l.Slice())
}

// Newest is the start of the newest slice.
func (s *State) Newest(l *weir.Limit) int64 { return s.newest * l.Slice() }

func (s *State) slice(l *weir.Limit, now int64) int64 {
	slice, _ := s.clock(l, now)
	return slice
}

// inTicks is a time in ticks of the limit, mostly microseconds.
func inTicks(l *weir.Limit, us int64) int64 {
	if l.Tick() == 1 {
		return us
	}
	return us / l.Tick()
}

// sum is the total of the slices that count when slice is the newest.
func (s *State) sum(l *weir.Limit, slice int64) int64 {
	total := s.sumOfAll()
	if slice == s.newest {
		return total
	}
	for i := s.oldest(); i <= s.newest && i < slice-l.Slices(); i++ {
		total -= s.count(i)
	}
	return total
}

// grantable is the first instant at which cost units fit, if no other request comes.
func (s *State) grantable(l *weir.Limit, cost, slice, elapsed int64) int64 {
	full := s.sum(l, slice) // the slices that count in full, and the one that fades
	for {
		oldest := s.count(slice - l.Slices())
		full -= oldest
		if left := l.Capacity() - cost - full; left >= 0 {
			return slice*l.Slice() + fits(l, left, oldest, elapsed)*l.Tick()
		}
		slice, elapsed = s.nextUsed(slice-l.Slices()+1)+l.Slices(), 0
	}
}

// nextUsed is the first slice from i on that has a count; there is one.
func (s *State) nextUsed(i int64) int64 {
	i = max(i, s.oldest())
	place, skipped := s.place(i), int64(0)
	if s.wide != nil {
		skipped = empty(s.wide.counts, place)
	} else {
		skipped = empty(s.few[:s.slots], place)
	}
	return min(i+skipped, s.newest)
}

// empty is how many places of a ring have no count, from a place on.
func empty[T uint16 | int64](counts []T, place int) (n int64) {
	for ; counts[place] == 0 && n < int64(len(counts)); n++ {
		if place++; place == len(counts) {
			place = 0
		}
	}
	return n
}

// lastUsed is the newest slice with a count; there is one.
func (s *State) lastUsed() int64 {
	slice := s.newest
	for s.count(slice) == 0 {
		slice--
	}
	return slice
}

// advance makes slice the newest and drops the ones that no longer count.
func (s *State) advance(l *weir.Limit, slice int64) {
	if s.slots == 0 {
		s.open(l.Slices() + 1)
	}
	if !s.Used() || slice-s.newest >= int64(s.slots) { // idle for longer than all of it
		s.clear()
		s.newest = slice
		return
	}
	for s.newest < slice {
		s.newest++
		if s.head++; s.head == s.slots {
			s.head = 0
		}
		s.add(s.newest, -s.count(s.newest))
	}
}

// open makes a State for so many counts.
func (s *State) open(slots int64) {
	if s.slots = uint8(slots); int(slots) > len(s.few) {
		s.widen()
	}
}

func (s *State) widen() {
	s.wide = &wide{int64(s.total), make([]int64, s.slots)}
	for i, n := range s.few[:min(int(s.slots), len(s.few))] {
		s.wide.counts[i] = int64(n)
	}
}

func (s *State) clear() {
	if s.wide != nil {
		s.wide.total = 0
		clear(s.wide.counts)
		return
	}
	s.total, s.few = 0, [len(s.few)]uint16{}
}

// oldest is the first slice that has a place.
func (s *State) oldest() int64 { return s.newest - int64(s.slots) + 1 }

// sumOfAll is the sum of the counts, whether or not they count still.
func (s *State) sumOfAll() int64 {
	if s.wide != nil {
		return s.wide.total
	}
	return int64(s.total)
}

// count is the count of slice i; 0 if it is not stored.
func (s *State) count(i int64) int64 {
	if uint64(s.newest-i) >= uint64(s.slots) {
		return 0
	}
	return s.stored(s.place(i))
}

// stored is the count at a place.
func (s *State) stored(place int) int64 {
	if s.wide != nil {
		return s.wide.counts[place]
	}
	return int64(s.few[place])
}

// add changes the count of slice i, which must be stored.
func (s *State) add(i, n int64) {
	place := s.place(i)
	if s.wide == nil {
		if after := int64(s.few[place]) + n; after <= math.MaxUint16 {
			s.few[place] = uint16(after)
			s.total += uint32(n)
			return
		}
		s.widen()
	}
	s.wide.counts[place] += n
	s.wide.total += n
}

// place is where slice i is stored.
func (s *State) place(i int64) int {
	place := int(s.head) - int(s.newest-i)
	if place < 0 {
		place += int(s.slots)
	}
	return place
}

// floorDiv is a/b rounded down, for b > 0.
func floorDiv(a, b int64) int64 {
	quotient := a / b
	if quotient*b > a {
		quotient--
	}
	return quotient
}
