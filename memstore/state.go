package memstore

import (
	"math"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/internal/algorithm/slidingcounter"
	"github.com/weirproject/weir/internal/algorithm/window"
)

// state is what a claim is decided on: two numbers (bucket, window), or a large one.
type state struct {
	a, b  int64
	until int64 // of a window that other numbers opened; never stored
	large *large
}

func (s state) window(now moment) window.State {
	return window.State{Start: s.a, Count: s.b, Until: s.until, Grid: now.grid}
}

// ahead reports whether a clock that was wrong wrote the state.
func ahead(l *weir.Limit, s state, now moment) bool {
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return window.Ahead(l, s.window(now), now.at)
	case weir.AlgorithmSlidingLog:
		return s.large.log().Ahead(l, now.at)
	case weir.AlgorithmSlidingCounter:
		return s.large.counter().Ahead(l, now.at)
	}
	return false
}

// back is the state after a clock that was wrong. It changes a large state in place.
func back(l *weir.Limit, s state, now moment) state {
	switch l.Algorithm() {
	case weir.AlgorithmSlidingLog:
		s.large.log().Back(l, now.at)
	case weir.AlgorithmSlidingCounter:
		s.large.counter().Back(l, now.at)
	default:
		w := window.Back(l, s.window(now), now.at)
		return state{a: w.Start, b: w.Count}
	}
	return s
}

// adopt reads a state under the claim's numbers. A large one is copied where it changes:
// only a decision that charges may write it.
func adopt(from, to *weir.Limit, s state, now moment) state {
	if from == to {
		return s
	}
	switch to.Algorithm() {
	case weir.AlgorithmTokenBucket:
		b := bucket.Adopt(from, to, bucket.State{At: s.a, Part: s.b}, now.at)
		return state{a: b.At, b: b.Part}
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		w := window.Adopt(from, to, s.window(now))
		return state{a: w.Start, b: w.Count, until: w.Until}
	case weir.AlgorithmSlidingCounter:
		return adopted(to, s, s.large.counter().Adopt(from, to, now.at))
	}
	return s
}

// adopted is the state of a counter, which is another one if its slices were converted.
func adopted(to *weir.Limit, s state, counter *slidingcounter.State) state {
	if counter == s.large.counter() {
		return s
	}
	converted := newLarge(to)
	*converted.counter() = *counter
	return state{large: converted}
}

// adoptCharged is adopt for a charge.
func adoptCharged(from, to *weir.Limit, s state, now moment) state {
	if from.Algorithm() == weir.AlgorithmSlidingCounter {
		return adopted(to, s, s.large.counter().AdoptCharged(from, to, now.at))
	}
	return adopt(from, to, s, now)
}

// fit is how many of times requests of the claim the state grants.
func fit(c *weir.Claim, s state, times int64, now moment) int64 {
	if c.Limit.Leases() {
		return fitLease(c, s, times, now)
	}
	return algorithm.Fit(available(c, s, now), c.Cost, times)
}

func fitLease(c *weir.Claim, s state, times int64, now moment) int64 {
	held := live(c, s, now)
	if c.Renew && !held {
		return 0
	}
	if held || s.large.leases().Available(c.Limit, now.at) >= c.Cost {
		return times
	}
	return 0
}

// live reports whether a claim's lease is held.
func live(c *weir.Claim, s state, now moment) bool { return s.large.leases().Live(c.Lease, now.at) }

func available(c *weir.Claim, s state, now moment) int64 {
	switch c.Limit.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return bucket.Available(c.Limit, bucket.State{At: s.a, Part: s.b}, now.at)
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return window.Available(c.Limit, s.window(now), now.at)
	case weir.AlgorithmSlidingLog:
		return s.large.log().Available(c.Limit, now.at)
	default:
		return s.large.counter().Available(c.Limit, now.at)
	}
}

// newest is the instant before which a charge does not count: that of the newest one, or of its window or slice. A
// charge at an earlier instant would be told that one and stored at the other, and its refund not find it.
func newest(l *weir.Limit, s state) int64 {
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return s.a
	case weir.AlgorithmSlidingLog:
		return s.large.log().Newest()
	case weir.AlgorithmSlidingCounter:
		return s.large.counter().Newest(l)
	}
	return math.MinInt64
}

// charge takes n units. It changes a large state in place.
func charge(c *weir.Claim, s state, n int64, now moment) state {
	switch c.Limit.Algorithm() {
	case weir.AlgorithmTokenBucket:
		b := bucket.Charge(c.Limit, bucket.State{At: s.a, Part: s.b}, n, now.at)
		return state{a: b.At, b: b.Part}
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		w := window.Charge(c.Limit, s.window(now), n, now.at)
		return state{a: w.Start, b: w.Count}
	case weir.AlgorithmSlidingLog:
		s.large.log().Charge(c.Limit, n, now.at)
	case weir.AlgorithmSlidingCounter:
		s.large.counter().Charge(c.Limit, n, now.at)
	case weir.AlgorithmConcurrency:
		s.large.leases().Take(c.Limit, c.Lease, c.Cost, now.at)
	}
	return s
}

// settle is charge for units that correct an earlier charge. It returns the limit in whose form the state is: other,
// whose numbers wrote it, if they count longer and units are left of what they count.
func settle(c *weir.Claim, other *weir.Limit, s state, now moment) (state, *weir.Limit) {
	l := c.Limit
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		w, others := window.Settle(l, other, s.window(now), c.Cost, now.at)
		if others {
			l = other
		}
		return state{a: w.Start, b: w.Count}, l
	case weir.AlgorithmSlidingLog:
		if other.Period() > l.Period() && s.large.log().Used() {
			l = other
		}
	case weir.AlgorithmSlidingCounter:
		if other.Period() > l.Period() && s.large.counter().Used() {
			l = other
		}
	}
	return charge(&weir.Claim{Limit: l, Lease: c.Lease, Cost: c.Cost}, adoptCharged(other, l, s, now), c.Cost, now), l
}

// refund gives the claim's cost back to a state that other's numbers wrote, and returns the limit in whose form the
// state is. It drops nothing that they count. found is false if there was nothing to give back: a lease was gone, or no
// window that counts has units of that instant.
func refund(c *weir.Claim, other *weir.Limit, s state, takenAt int64, now moment) (
	after state, l *weir.Limit, found bool,
) {
	l = c.Limit
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		s = adopt(other, l, s, now)
		b := bucket.Cancel(l, bucket.State{At: s.a, Part: s.b}, c.Cost, algorithm.Due(c, takenAt), now.at)
		return state{a: b.At, b: b.Part}, l, true
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		before := window.Adopt(other, l, s.window(now))
		s.b = window.Refund(l, before, c.Cost, takenAt, now.at).Count
		found = s.b < before.Count
	case weir.AlgorithmSlidingLog:
		found = s.large.log().Refund(l, other, c.Cost, takenAt, now.at) > 0
	case weir.AlgorithmSlidingCounter:
		found = s.large.counter().Refund(l, other, c.Cost, takenAt, now.at) > 0
	case weir.AlgorithmConcurrency:
		return s, l, s.large.leases().Release(c.Lease, now.at)
	}
	return s, other, found
}

// decide fills in the Decision of the state for a next request of the claim's cost.
func decide(c *weir.Claim, s state, now moment, into *weir.Decision) {
	if c.Limit.Leases() {
		s.large.leases().Describe(c.Limit, c.Cost, now.at, into)
		return
	}
	fill(into, decision(c, s, now))
}

// fill copies field by field: copying a whole Decision that was written a moment ago, field by field, stalls the
// processor for longer than writing it takes.
func fill(into *weir.Decision, d weir.Decision) {
	into.Remaining = d.Remaining
	into.RetryAfter = d.RetryAfter
	into.ResetAfter = d.ResetAfter
	into.Delay = d.Delay
	into.At = d.At
}

// decision describes the state for a next request of the claim's cost.
func decision(c *weir.Claim, s state, now moment) weir.Decision {
	switch c.Limit.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return bucket.Decision(c.Limit, bucket.State{At: s.a, Part: s.b}, c.Cost, now.at)
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return window.Decision(c.Limit, s.window(now), c.Cost, now.at)
	case weir.AlgorithmSlidingLog:
		return s.large.log().Decision(c.Limit, c.Cost, now.at)
	case weir.AlgorithmSlidingCounter:
		return s.large.counter().Decision(c.Limit, c.Cost, now.at)
	default:
		return s.large.leases().Decision(c.Limit, c.Cost, now.at)
	}
}
