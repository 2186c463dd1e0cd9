package fair

import (
	"encoding/binary"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
)

// Leases is the state of a concurrency limit that members share. The id of a lease begins with 8 bytes for the member.
type Leases struct {
	Whole concurrency.State
	parts Parts
}

// MemberBytes is the length of the member in the id of a lease; the rest is the id that the holder knows.
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

// name is the id of a lease of a member's part.
func name(part int64, id string) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(part))) + id
}

func partOf(lease string) int64 {
	return int64(binary.BigEndian.Uint64([]byte(lease[:MemberBytes])))
}

// find is the name of a member's live lease; "" if there is none.
func (s *Leases) find(m Member, id string, now int64) string {
	for _, part := range []int64{0, m.ID} {
		if lease := name(part, id); s.Whole.Live(lease, now) {
			return lease
		}
	}
	return ""
}

// living are the parts without the leases that have expired.
func (s *Leases) living(now int64) totals {
	dead := s.Whole.Dead(now)
	if len(dead) == 0 {
		return s.parts.without(nil)
	}
	gone := make(tally)
	for _, lease := range dead[:min(mostDead, len(dead))] {
		gone[partOf(lease.ID)] += lease.Units
	}
	return s.parts.without(gone)
}

// Standing is the standing of the member.
func (s *Leases) Standing(l *weir.Limit, m Member, now int64) weir.Standing {
	standing := s.living(now).of(l, m)
	standing.Used, standing.Open = s.Whole.Held(now), l.Above()
	return standing
}

// Live reports whether a member's lease is held at now.
func (s *Leases) Live(m Member, id string, now int64) bool { return s.find(m, id, now) != "" }

// Available is the number of units that a member is granted above a floor, or −1 if a request of no units is refused
// too.
func (s *Leases) Available(l *weir.Limit, m Member, floor, now int64) int64 {
	standing := s.Standing(l, m, now)
	return left(l, &standing, floor)
}

// Take gives n units to a member's lease, or renews it.
func (s *Leases) Take(l *weir.Limit, m Member, id string, n, now int64) {
	lease := s.find(m, id, now)
	s.forget(now)
	if lease == "" {
		t := s.parts.without(nil)
		lease = name(t.part(l, m), id)
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
	lease := s.find(m, id, now)
	if lease == "" {
		return false
	}
	s.forget(now)
	held := s.Whole.Held(now)
	s.Whole.Release(lease, now)
	s.parts.remove(partOf(lease), held-s.Whole.Held(now))
	return true
}

// Decision describes the state for a member's next lease of n units above a floor, which is part of Remaining.
func (s *Leases) Decision(l *weir.Limit, m Member, n, floor, now int64) weir.Decision {
	standing, summary := s.Standing(l, m, now), s.Whole.Summary(now)
	most := l.Capacity() - floor
	if max(standing.Open-standing.Used, standing.Share-standing.Own) < n {
		most = min(most, max(l.Above(), n))
	}
	if excess := summary.Held + n - most; excess > 0 && n <= most {
		summary.Frees = s.Whole.Frees(excess, now)
	}
	return DecisionOfLeases(l, summary, &standing, n, floor, now)
}

// DecisionOfLeases is the Decision of a member with a standing, with the floor in Remaining. Frees is the instant at
// which enough leases have expired for a grant to any member.
func DecisionOfLeases(l *weir.Limit, held concurrency.Summary, s *weir.Standing, n, floor, now int64) weir.Decision {
	d := held.Decision(l, n+floor, now)
	free := left(l, s, floor)
	d.Remaining = max(0, free) + floor
	if d.RetryAfter == 0 && (free < n || free < 0) {
		d.RetryAfter = algorithm.Micros(held.Frees - now)
	}
	return d
}
