package fair

import (
	"encoding/binary"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
)

// Leases is the state of a concurrency limit that members share. The id of a lease begins with 8 bytes for the part
// that has its units.
type Leases struct {
	Whole concurrency.State
	parts Parts
}

// MemberBytes is the length of a member in the id of a lease. At most two stand before the id that the holder knows.
const MemberBytes = 8

// mostDead is how many expired leases are taken from their members before they are deleted: a store must not read
// 100,000 leases for a refusal.
const mostDead = 32

// NewLeases makes a state of leases and the parts of their members. Leases without a member are dropped.
func NewLeases(leases []concurrency.Lease, parts Parts) *Leases {
	leases = slices.DeleteFunc(leases, func(l concurrency.Lease) bool { return len(l.ID) < MemberBytes })
	return &Leases{*concurrency.New(leases), parts}
}

// Parts are the parts of the members. Leases that expired and are not deleted yet count in them.
func (s *Leases) Parts() *Parts { return &s.parts }

// name is the id of a member's lease in a part: the member's own part, or part 0, which has leases of several members.
// An id is a member's own: the same id of another member is another lease.
func name(part int64, m Member, id string) string {
	var space [2 * MemberBytes]byte
	head := binary.BigEndian.AppendUint64(space[:0], uint64(part))
	if part != m.ID {
		head = binary.BigEndian.AppendUint64(head, uint64(m.ID))
	}
	return string(head) + id
}

func partOf(lease string) int64 {
	return int64(binary.BigEndian.Uint64([]byte(lease[:MemberBytes])))
}

// find is the name of a member's lease, and its place among all leases if it is live. The units of a lease that is not
// live may be counted under another name: see counted.
func (s *Leases) find(m Member, id string, now int64) (lease string, place int, live bool) {
	if s.parts.others > 0 {
		lease = name(0, m, id)
		if place, live = s.Whole.Find(lease, now); live {
			return lease, place, true
		}
	}
	lease = name(m.ID, m, id)
	place, live = s.Whole.Find(lease, now)
	return lease, place, live
}

// Standing is the standing of the member.
func (s *Leases) Standing(l *weir.Limit, m Member, now int64) (standing weir.Standing) {
	standing.Used, standing.Open = s.Whole.Held(now), l.Above()
	sums, part := s.living(m, now)
	sums.stand(l, m, part, &standing)
	return standing
}

// living returns the sums and the part of the member without leases that have expired.
func (s *Leases) living(m Member, now int64) (sums, Part) {
	sums, part := s.parts.sums(), s.parts.part(m.ID)
	dead := s.Whole.Dead(now)
	if len(dead) == 0 {
		return sums, part
	}
	gone := make(map[int64]int64) // units by the ID of a member; the others have ID 0
	for _, lease := range dead[:min(mostDead, len(dead))] {
		gone[partOf(lease.ID)] += lease.Units
	}
	for id, units := range gone {
		if p := s.parts.part(id); p.Units > 0 && p.Units <= units {
			sums.weights -= p.Weight
			sums.members--
		}
	}
	part.Units = max(0, part.Units-gone[m.ID])
	sums.others -= gone[0]
	return sums, part
}

// Live reports whether a member's lease is held at now.
func (s *Leases) Live(m Member, id string, now int64) bool {
	_, _, live := s.find(m, id, now)
	return live
}

// Available is the number of units that a member is granted above a floor, or −1 if a request of no units is refused
// too.
func (s *Leases) Available(l *weir.Limit, m Member, floor, now int64) int64 {
	standing := s.Standing(l, m, now)
	return left(l, &standing, floor)
}

// Request is one request of a member for a lease, or its renewal: Live, Available and Take in one step.
func (s *Leases) Request(l *weir.Limit, m Member, id string, n, floor, now int64, renew bool) (granted bool) {
	lease, _, live := s.find(m, id, now)
	switch {
	case live:
	case renew || s.Available(l, m, floor, now) < n:
		return false
	}
	s.take(l, m, lease, live, n, now)
	return true
}

// Take gives n units to a member's lease, or renews it.
func (s *Leases) Take(l *weir.Limit, m Member, id string, n, now int64) {
	lease, _, live := s.find(m, id, now)
	s.take(l, m, lease, live, n, now)
}

func (s *Leases) take(l *weir.Limit, m Member, lease string, live bool, n, now int64) {
	s.forget(now)
	if !live {
		if s.parts.counted(l, m) != m.ID {
			lease = name(0, m, lease[MemberBytes:])
		}
		s.parts.add(l, m, n)
	}
	s.Whole.Take(l.Whole(), lease, n, now)
}

// forget takes the leases that expired from their members, before the whole deletes them.
func (s *Leases) forget(now int64) {
	for _, lease := range s.Whole.Dead(now) {
		s.parts.remove(partOf(lease.ID), lease.Units)
	}
}

// Release ends a lease. It is false if the lease was gone.
func (s *Leases) Release(m Member, id string, now int64) bool {
	lease, place, live := s.find(m, id, now)
	if live {
		s.forget(now)
		s.parts.remove(partOf(lease), s.Whole.End(place, now))
	}
	return live
}

// Describe fills in the Decision of the state for a member's next lease of n units above a floor, which is part of
// Remaining.
func (s *Leases) Describe(l *weir.Limit, m Member, n, floor, now int64, d *weir.Decision) {
	standing, summary := s.Standing(l, m, now), s.Whole.Summary(now)
	most := l.Capacity() - floor
	if max(standing.Open-standing.Used, standing.Share-standing.Own) < n {
		most = min(most, max(l.Above(), n))
	}
	if excess := summary.Held + n - most; excess > 0 && n <= most {
		summary.Frees = s.Whole.Frees(excess, now)
	}
	describe(l, &summary, &standing, n, floor, now, d)
}

// DecisionOfLeases is the Decision of a member with a standing, with the floor in Remaining. Frees is the instant at
// which enough leases have expired for a grant to any member.
func DecisionOfLeases(
	l *weir.Limit, held concurrency.Summary, s *weir.Standing, n, floor, now int64,
) (d weir.Decision) {
	describe(l, &held, s, n, floor, now, &d)
	return d
}

func describe(l *weir.Limit, held *concurrency.Summary, s *weir.Standing, n, floor, now int64, d *weir.Decision) {
	held.Describe(l, n+floor, now, d)
	free := left(l, s, floor)
	d.Remaining = max(0, free) + floor
	if d.RetryAfter == 0 && (free < n || free < 0) {
		d.RetryAfter = algorithm.Micros(held.Frees - now)
	}
}
