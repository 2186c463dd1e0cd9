// Package concurrency limits the units that are held at the same time, by leases: see README.md.
package concurrency

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// A Lease is units held until an instant.
type Lease struct {
	ID      string
	Units   int64
	Expires int64 // µs: the first instant at which it is gone
}

// State is the leases by expiry, soonest first, and by id, some of them expired. The zero State
// is empty.
type State struct {
	leases []Lease
	units  int64            // of all leases, expired ones too
	byID   map[string]int64 // id → Expires, to find a lease among more than few; nil before there were so many

	gone      int   // so many leases had expired when somebody last asked,
	goneUnits int64 // with so many units
}

// few is how many leases are searched one by one.
const few = 16

// byUnits is how many leases, the soonest to expire, a wait counts with their units. Each further
// one counts as one unit: a store must not read 100,000 leases for a refusal.
const byUnits = 32

// Available is how many units are free, or −1 if more are held than the limit has.
func (s *State) Available(l *weir.Limit, now int64) int64 {
	return max(-1, l.Capacity()-s.Held(now))
}

// Live reports whether the lease is held at now.
func (s *State) Live(id string, now int64) bool {
	_, live := s.Find(id, now)
	return live
}

// Find is the place of a lease that is held at now.
func (s *State) Find(id string, now int64) (place int, live bool) {
	place, ok := s.find(id)
	return place, ok && s.leases[place].Expires > now
}

// Take gives n units to id until now + ttl. A lease that is held already is renewed,
// with the units it has.
func (s *State) Take(l *weir.Limit, id string, n, now int64) {
	if place, ok := s.find(id); ok {
		if lease := s.remove(place); lease.Expires > now {
			n = lease.Units
		}
	}
	s.purge(now)
	s.put(Lease{ID: id, Units: n, Expires: now + l.Period()})
}

// Release ends a lease. It is false if the lease was gone.
func (s *State) Release(id string, now int64) bool {
	place, live := s.Find(id, now)
	if live {
		s.End(place, now)
	}
	return live
}

// End ends the lease at the place that Find has, and returns its units.
func (s *State) End(place int, now int64) int64 {
	lease := s.remove(place)
	s.purge(now)
	return lease.Units
}

// Decision describes the state for a next lease of n units.
func (s *State) Decision(l *weir.Limit, n, now int64) (d weir.Decision) {
	s.Describe(l, n, now, &d)
	return d
}

// Describe fills in the Decision.
func (s *State) Describe(l *weir.Limit, n, now int64, d *weir.Decision) {
	summary := s.Summary(now)
	if excess := summary.Held + n - l.Capacity(); excess > 0 && n <= l.Capacity() {
		summary.Frees = s.Frees(excess, now)
	}
	summary.Describe(l, n, now, d)
}

// Dead are the leases that have expired, and that the next write deletes.
func (s *State) Dead(now int64) []Lease { return s.leases[:s.dead(now)] }

// Summary is the State without Frees.
func (s *State) Summary(now int64) Summary {
	summary := Summary{Held: s.Held(now)}
	if count := len(s.leases); count > 0 {
		summary.Last = s.leases[count-1].Expires
	}
	return summary
}

// Frees is the instant at which leases of so many units have expired, or a later one: see byUnits.
func (s *State) Frees(units, now int64) int64 {
	live := s.leases[s.dead(now):]
	counted := 0
	for counted < min(byUnits, len(live)) && units > 0 {
		units -= live[counted].Units
		counted++
	}
	further := min(max(units, 0), int64(len(live)-counted))
	return live[counted+int(further)-1].Expires
}

// Summary is the part of the leases that a decision depends on.
type Summary struct {
	Held  int64 // units
	Last  int64 // the instant at which the last lease expires; if there is none, any past one
	Frees int64 // if there is no room, the instant at which enough leases have expired
}

// Decision describes the state for a next lease of n units.
func (s Summary) Decision(l *weir.Limit, n, now int64) (d weir.Decision) {
	s.Describe(l, n, now, &d)
	return d
}

// Describe fills in the Decision.
func (s *Summary) Describe(l *weir.Limit, n, now int64, d *weir.Decision) {
	d.Remaining, d.At = max(0, l.Capacity()-s.Held), weir.Instant(now)
	d.RetryAfter, d.ResetAfter, d.Delay = 0, algorithm.Micros(s.Last-now), 0
	switch {
	case n > l.Capacity():
		d.RetryAfter = weir.Never
	case s.Held+n > l.Capacity():
		d.RetryAfter = algorithm.Micros(s.Frees - now)
	}
}

// Leases are the stored leases, soonest to expire first.
func (s *State) Leases() []Lease { return s.leases }

// New is a state of the given leases.
func New(leases []Lease) *State {
	s := &State{}
	for _, lease := range leases {
		if place, twice := s.find(lease.ID); twice {
			s.remove(place)
		}
		s.put(lease)
	}
	return s
}

// LeaseBytes is about the memory of a lease, with an id of the usual length.
const LeaseBytes = 128

// Bytes is about the memory of the leases.
func (s *State) Bytes() int64 { return int64(len(s.leases)) * LeaseBytes }

// Held is the units of the leases that live at now.
func (s *State) Held(now int64) int64 {
	s.dead(now)
	return s.units - s.goneUnits
}

// dead is the number of expired leases. It looks at leases that expired since it was last asked.
func (s *State) dead(now int64) int {
	for s.gone < len(s.leases) && s.leases[s.gone].Expires <= now {
		s.goneUnits += s.leases[s.gone].Units
		s.gone++
	}
	for s.gone > 0 && s.leases[s.gone-1].Expires > now { // the clock has stepped back
		s.gone--
		s.goneUnits -= s.leases[s.gone].Units
	}
	return s.gone
}

func (s *State) purge(now int64) {
	dead := s.dead(now)
	if dead == 0 {
		return
	}
	for _, lease := range s.leases[:dead] {
		delete(s.byID, lease.ID)
	}
	s.leases = slices.Delete(s.leases, 0, dead)
	s.units -= s.goneUnits
	s.gone, s.goneUnits = 0, 0
}

// put adds a lease with a new id.
func (s *State) put(lease Lease) {
	lease.Units = min(lease.Units, weir.MaxUnits-s.units)
	s.units += lease.Units
	if last := len(s.leases) - 1; last < 0 || compare(&s.leases[last], &lease) < 0 {
		s.leases = append(s.leases, lease)
	} else {
		s.insert(lease)
	}
	s.index(lease)
}

func (s *State) insert(lease Lease) {
	place := s.place(lease)
	s.leases = slices.Insert(s.leases, place, lease)
	if place < s.gone {
		s.gone++
		s.goneUnits += lease.Units
	}
}

// index makes a lease found by its id.
func (s *State) index(lease Lease) {
	switch {
	case s.byID != nil:
		s.byID[lease.ID] = lease.Expires
	case len(s.leases) > few:
		s.byID = make(map[string]int64)
		for _, one := range s.leases {
			s.byID[one.ID] = one.Expires
		}
	}
}

// find is the index of the lease with an id.
func (s *State) find(id string) (place int, ok bool) {
	if s.byID != nil {
		expires, ok := s.byID[id]
		if !ok {
			return 0, false
		}
		return s.place(Lease{ID: id, Expires: expires}), true
	}
	for i := range s.leases {
		if s.leases[i].ID == id {
			return i, true
		}
	}
	return 0, false
}

func (s *State) remove(place int) Lease {
	lease := s.leases[place]
	s.leases = slices.Delete(s.leases, place, place+1)
	s.units -= lease.Units
	delete(s.byID, lease.ID)
	if place < s.gone {
		s.gone--
		s.goneUnits -= lease.Units
	}
	return lease
}

// place is the index of a lease, or of the place where it belongs.
func (s *State) place(lease Lease) int {
	i, _ := slices.BinarySearchFunc(s.leases, lease, func(a, b Lease) int { return compare(&a, &b) })
	return i
}

// compare orders leases by expiry, soonest first.
func compare(a, b *Lease) int {
	if a.Expires != b.Expires {
		return cmp.Compare(a.Expires, b.Expires)
	}
	return strings.Compare(a.ID, b.ID)
}
