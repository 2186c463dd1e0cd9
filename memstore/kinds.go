package memstore

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// kinds are how the algorithms are decided, by number.
var kinds = [...]kind{
	weir.AlgorithmTokenBucket:     {&bucketKind{}, &bucketKind{}, nil},
	weir.AlgorithmFixedWindow:     {&windowKind{}, &windowKind{}, nil},
	weir.AlgorithmCalendar:        {&windowKind{}, &windowKind{}, nil},
	weir.AlgorithmSlidingLog:      {&logKind{}, &logKind{}, &logKind{}},
	weir.AlgorithmSlidingCounter:  {&counterKind{}, &counterKind{}, &counterKind{}},
	weir.AlgorithmConcurrency:     {&leaseKind{}, nil, &leaseKind{}},
	weir.AlgorithmFairWindow:      {&fairWindowKind{}, &fairWindowKind{}, &fairWindowKind{}},
	weir.AlgorithmFairCalendar:    {&fairWindowKind{}, &fairWindowKind{}, &fairWindowKind{}},
	weir.AlgorithmFairConcurrency: {&fairLeaseKind{}, nil, &fairLeaseKind{}},
}

// A kind decides the limits of an algorithm.
type kind struct {
	decider
	taker // nil: every request is a transaction
	keeper
}

func kindOf(l *weir.Limit) *kind { return &kinds[l.Algorithm()] }

// state is the state of a claim: two numbers, or a large one.
type state struct {
	a, b  int64
	until int64 // of a window that other numbers opened; never stored
	large *large
}

// A decider has the steps of internal/algorithm. Arguments and results are values: behind an interface, a pointer to
// one would be allocated. Receivers are pointers: a value would cost a call more. A step that returns a state changes a
// large one in place.
type decider interface {
	// available is how many units a request is granted that leaves floor units to others; it is negative if the limit
	// is exceeded.
	available(l *weir.Limit, s state, floor int64, now moment) int64
	// charge takes n units; of a lease, all of them under its id.
	charge(l *weir.Limit, s state, n int64, now moment, lease string) state
	// refund gives units back to a state that other's numbers wrote, and keeps all that they count. It returns the
	// limit whose form the state has. found is false if no units could be given back: a lease was gone, or no
	// window that counts has units of that instant.
	refund(l, other *weir.Limit, s state, r returned, now moment) (after state, in *weir.Limit, found bool)
	// decision describes the state for a next request of the cost and the floor. The floor is still part of Remaining.
	decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision
	// ahead reports whether a clock that was wrong wrote the state; back is the state after such a clock.
	ahead(l *weir.Limit, s state, now moment) bool
	back(l *weir.Limit, s state, now moment) state
	// adopt reads a state under other numbers. A large one is copied where it changes: only a decision that charges
	// may write it. charges says that it does.
	adopt(from, to *weir.Limit, s state, now moment, charges bool) state
	// numbers are the state in a snapshot, and restore is the inverse.
	numbers(s state) (list []int64, ids [][]byte)
	restore(l *weir.Limit, s state, list []int64, ids [][]byte) (restored state, ok bool)
}

// A settler implements the correction of an earlier charge for one algorithm. other is the limit that wrote the state.
// The result is the limit in whose form the state is now.
type settler interface {
	settle(l, other *weir.Limit, s state, n int64, now moment) (after state, in *weir.Limit)
}

// A sharer returns the standing of a member, for one algorithm.
type sharer interface {
	standing(l *weir.Limit, s state, now moment) weir.Standing
}

// returned are the units that a refund gives back.
type returned struct {
	lease           string
	n, takenAt, due int64
}

// A taker decides a request without a transaction, on a state that the limit's own numbers wrote.
type taker interface {
	// newest is the instant before which a charge does not count: the instant of the newest charge, or of its window or
	// slice. A charge at an earlier instant would be told that one and stored at the other, and its refund not find it.
	newest(l *weir.Limit, s state) int64
	// take is available, charge and decision of one request with a floor. a and b are the state after a grant. Of a
	// large state, a is by how many bytes it grew; with peeks it is not written. Of a fair limit, s has the member.
	take(l *weir.Limit, s state, cost, floor int64, now moment, peeks bool) (a, b, remaining int64,
		retryAfter, resetAfter, delay time.Duration, granted bool)
}

// A keeper has the large states of an algorithm; nil: two numbers are enough.
type keeper interface {
	// empty is a state never used; copied is another one with the content of b.
	empty() *large
	copied(b *large) *large
	// used reports whether units count.
	used(b *large) bool
	// size is about the memory of the state.
	size(b *large) int64
	// growth is by how many bytes a charge of n units under the limit makes the state larger.
	growth(b *large, l *weir.Limit, n, now int64) int64
}

// plain has the steps of an algorithm with states that mean the same under all numbers and at all times.
type plain struct{}

func (plain) ahead(*weir.Limit, state, moment) bool                   { return false }
func (plain) back(_ *weir.Limit, s state, _ moment) state             { return s }
func (plain) adopt(_, _ *weir.Limit, s state, _ moment, _ bool) state { return s }
func (plain) numbers(s state) (list []int64, ids [][]byte)            { return []int64{s.a, s.b}, nil }
func (plain) restore(_ *weir.Limit, s state, n []int64, _ [][]byte) (state, bool) {
	if len(n) != 2 || n[1] < 0 {
		return s, false
	}
	s.a, s.b = n[0], n[1]
	return s, true
}

// adopt reads a state under other numbers.
func adopt(from, to *weir.Limit, s state, now moment, charges bool) state {
	if from == to {
		return s
	}
	return kindOf(to).adopt(from, to, s, now, charges)
}

// fit is how many of times requests of the claim the state grants.
func fit(c *weir.Claim, s state, times int64, now moment) int64 {
	if c.Limit.Leases() {
		return fitLease(c, s, times, now)
	}
	return fitUnits(c, s, times, now)
}

func fitUnits(c *weir.Claim, s state, times int64, now moment) int64 {
	return algorithm.Fit(kindOf(c.Limit).available(c.Limit, s, c.Floor, now), c.Cost, times)
}

func fitLease(c *weir.Claim, s state, times int64, now moment) int64 {
	held := live(c, s, now)
	switch {
	case held:
		return times
	case c.Renew:
		return 0
	}
	return fitUnits(c, s, times, now)
}

// live reports whether a claim's lease is held.
func live(c *weir.Claim, s state, now moment) bool {
	if c.Limit.Whole() != nil {
		return s.large.fairLeases().Live(memberOf(s), c.Lease, now.at)
	}
	return s.large.leases().Live(c.Lease, now.at)
}

// settle charges units that correct an earlier charge. It returns the limit whose form the state has: other, the
// limit that wrote it, if it counts longer and still has units.
func settle(c *weir.Claim, other *weir.Limit, s state, now moment) (state, *weir.Limit) {
	l, k := c.Limit, kindOf(c.Limit)
	if special, ok := k.decider.(settler); ok {
		return special.settle(l, other, s, c.Cost, now)
	}
	if k.keeper != nil && other.Period() > l.Period() && k.used(s.large) {
		l = other
	}
	return k.charge(l, adopt(other, l, s, now, true), c.Cost, now, c.Lease), l
}

// refund gives the claim's cost back to a state that other's numbers wrote.
func refund(c *weir.Claim, other *weir.Limit, s state, takenAt int64, now moment) (
	after state, in *weir.Limit, found bool,
) {
	r := returned{lease: c.Lease, n: c.Cost, takenAt: takenAt, due: algorithm.Due(c, takenAt)}
	return kindOf(c.Limit).refund(c.Limit, other, s, r, now)
}

// decide fills in the Decision of the state for a next request of the claim's cost and floor. It copies field by field:
// copying a whole Decision that was written a moment ago, field by field, stalls the processor for longer than writing
// it takes.
func decide(c *weir.Claim, s state, now moment, into *weir.Decision) {
	d := kindOf(c.Limit).decision(c.Limit, s, c.Cost, c.Floor, now)
	into.Remaining = algorithm.LessFloor(d.Remaining, c.Floor)
	into.RetryAfter = d.RetryAfter
	into.ResetAfter = d.ResetAfter
	into.Delay = d.Delay
	into.At = d.At
	into.Standing = nil
}
