// Package slidingcounter is the sliding window counter: see README.md.
package slidingcounter

import (
	"math"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// State is the counts of the newest slices, one more than the limit has. The zero State
// is empty.
type State struct {
	newest int64   // the index of the newest slice: it covers [newest × S, (newest + 1) × S)
	counts []int64 // a ring, of which the newest slice is at head
	head   int
	total  int64 // the sum of counts
	read   reading
}

// reading says how a state was converted that is read under other numbers.
type reading uint8

const (
	asWritten reading = iota
	converted
	convertedAhead // of a state that was Ahead
)

// New is a state of the given counts, that of slice newest last.
func New(newest int64, counts []int64) *State {
	if len(counts) == 0 {
		return &State{}
	}
	s := &State{newest: newest, counts: make([]int64, len(counts))}
	for back := range int64(len(counts)) {
		s.total += counts[int64(len(counts))-1-back]
		*s.at(newest - back) = counts[int64(len(counts))-1-back]
	}
	return s
}

// Counts are the newest slice's index and the counts, that of slice newest last.
func (s *State) Counts() (newest int64, counts []int64) {
	for i := s.newest - int64(len(s.counts)) + 1; i <= s.newest; i++ {
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
	oldest := s.count(slice - l.Slices())
	return left(l, s.sum(l, slice)-oldest, oldest, elapsed)
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
	return s.total > 0 && start > now && start > floorDiv(now, l.Tick())*l.Tick()+l.Period()
}

// Back moves the slices by as much as takes the newest to that of now, if it is Ahead.
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
	s.advance(l, slice)
	n = min(n, weir.MaxUnits-s.total)
	*s.at(slice) += n
	s.total += n
}

// Refund takes up to n units from the slice that holds takenAt, if it still counts. It changes nothing else: counts
// under the numbers of another limit stay in its slices.
func (s *State) Refund(l, other *weir.Limit, n, takenAt, now int64) {
	taken := floorDiv(takenAt, other.Slice())
	if s.count(taken) == 0 || same(l, other) && taken < s.slice(l, now)-l.Slices() {
		return
	}
	back := min(n, s.count(taken))
	*s.at(taken) -= back
	s.total -= back
}

// Decision describes the state for a next request of cost units.
func (s *State) Decision(l *weir.Limit, cost, now int64) weir.Decision {
	var d weir.Decision
	s.Describe(l, s.Available(l, now), cost, now, &d)
	return d
}

// Describe is Decision for a known number of available units: a charge of n leaves n less.
func (s *State) Describe(l *weir.Limit, available, cost, now int64, d *weir.Decision) {
	if s.Ahead(l, now) {
		s.broughtBack(l, now).Describe(l, available, cost, now, d)
		return
	}
	d.Remaining, d.At = max(0, available), weir.Instant(now)
	d.RetryAfter, d.ResetAfter, d.Delay = 0, 0, 0
	if last, used := s.lastUsed(); used {
		d.ResetAfter = algorithm.Micros((last+l.Slices()+1)*l.Slice() - now)
	}
	switch {
	case cost > l.Capacity():
		d.RetryAfter = weir.Never
	case available < cost || available < 0:
		d.RetryAfter = algorithm.Micros(s.grantable(l, cost, now) - now)
	}
}

// Adopt is the state, which was written under the numbers of another limit, under those of to. A reading does not
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

// AdoptCharged is Adopt for a charge at now. The newest slice is that of now at the latest, if the clock did not step
// back: if each of two limits placed it at the end of the other's slice, it would run away from the clock where both
// charge by turns.
func (s *State) AdoptCharged(from, to *weir.Limit, now int64) *State { return s.adopt(from, to, now) }

// same reports whether two limits have the same slices.
func same(a, b *weir.Limit) bool { return a.Slice() == b.Slice() && a.Slices() == b.Slices() }

func (s *State) adopt(from, to *weir.Limit, now int64) *State {
	if s.counts == nil || same(from, to) {
		return s
	}
	other, width := new(State), from.Slice()
	newest := floorDiv(min((s.newest+1)*width-1, max(now, s.newest*width)), to.Slice())
	for i := s.newest - int64(len(s.counts)) + 1; i <= s.newest; i++ {
		if s.count(i) > 0 {
			slice := newest - max(0, s.newest-1-i)*width/to.Slice()
			other.advance(to, slice)
			*other.at(slice) += s.count(i)
			other.total += s.count(i)
		}
	}
	if other.total > 0 {
		other.advance(to, newest)
	}
	return other
}

// Used reports whether the slices have units: without, they are as if never used.
func (s *State) Used() bool { return s.total > 0 }

// Bytes is about the memory of the counts.
func (s *State) Bytes() int64 { return int64(len(s.counts)) * 8 }

// clock is the slice that now lies in and how many ticks of it have passed. A clock
// before the newest slice reads as that slice's start, unless all units were refunded: then
// the state is as if never used.
func (s *State) clock(l *weir.Limit, now int64) (slice, elapsed int64) {
	slice = floorDiv(now, l.Slice())
	if s.total > 0 && slice < s.newest {
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
	total := s.total
	for i := s.newest - int64(len(s.counts)) + 1; i <= s.newest && i < slice-l.Slices(); i++ {
		total -= s.count(i)
	}
	return total
}

// grantable is the first instant at which cost units fit, if no other request comes.
func (s *State) grantable(l *weir.Limit, cost, now int64) int64 {
	slice, elapsed := s.clock(l, now)
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
	i = max(i, s.newest-int64(len(s.counts))+1)
	place := s.head - int(s.newest-i)
	if place < 0 {
		place += len(s.counts)
	}
	for ; s.counts[place] == 0 && i < s.newest; i++ {
		if place++; place == len(s.counts) {
			place = 0
		}
	}
	return i
}

// lastUsed is the newest slice with a count.
func (s *State) lastUsed() (slice int64, ok bool) {
	for i := s.newest; s.total > 0 && i > s.newest-int64(len(s.counts)); i-- {
		if s.count(i) > 0 {
			return i, true
		}
	}
	return 0, false
}

// advance makes slice the newest and drops the ones that no longer count.
func (s *State) advance(l *weir.Limit, slice int64) {
	if s.counts == nil {
		s.counts = make([]int64, l.Slices()+1)
	}
	if s.total == 0 || slice-s.newest >= int64(len(s.counts)) { // idle for longer than all of it
		clear(s.counts)
		s.newest, s.total = slice, 0
		return
	}
	for s.newest < slice {
		s.newest++
		if s.head++; s.head == len(s.counts) {
			s.head = 0
		}
		s.total -= *s.at(s.newest)
		*s.at(s.newest) = 0
	}
}

// count is that of slice i; 0 if it is not stored.
func (s *State) count(i int64) int64 {
	if i > s.newest || i <= s.newest-int64(len(s.counts)) {
		return 0
	}
	return *s.at(i)
}

// at is the place of slice i, which must be stored.
func (s *State) at(i int64) *int64 {
	place := s.head - int(s.newest-i)
	if place < 0 {
		place += len(s.counts)
	}
	return &s.counts[place]
}

// floorDiv is a/b rounded down, for b > 0.
func floorDiv(a, b int64) int64 {
	quotient := a / b
	if quotient*b > a {
		quotient--
	}
	return quotient
}
