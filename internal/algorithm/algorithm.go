// Package algorithm is the arithmetic of limits: its folders hold, for each algorithm,
// a pure Go twin and a Lua twin with the same answers. This package has the shared parts.
//
// A twin has no clock, no lock and no I/O: now is an argument, in microseconds. Each
// has the same five steps, so that a store can join several claims into one decision:
//
//	Available   how many units one request would be granted now; −1 if the limit is exceeded
//	Charge      take units, whether or not they are available
//	Refund      give units back
//	Decision    the answer to the caller
//	Adopt       read state that was written under other numbers
//
// A claim's floor is no part of a state. The floor is taken off the available units, and the Decision of a claim is the
// Decision of its cost and floor together (see Needs and LessFloor). Only the steps of package fair take a floor: it
// must fit the shared limit, but not the share of a member.
package algorithm

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
)

// Fit is how many of times requests of cost units fit into the available ones. A cost of 0
// asks whether the limit is exceeded.
func Fit(available, cost, times int64) int64 {
	switch {
	case available < 0:
		return 0
	case cost == 0:
		return times
	case cost == 1:
		return min(available, times)
	}
	return min(available/cost, times)
}

// Needs is the units that must fit for a request of the claim to be granted: at most 2^53.
func Needs(c *weir.Claim) int64 { return c.Cost + c.Floor }

// LessFloor is how many of remaining units a claim with a floor would be granted.
func LessFloor(remaining, floor int64) int64 { return max(0, remaining-floor) }

// Before is the decision of a request after which n more units were granted, at the same
// instant and the same cost; d is the decision of the last of them. It holds for all
// algorithms but buckets: their waits depend on the level: see bucket.Before.
func Before(d weir.Decision, n int64) weir.Decision {
	d.Remaining += n
	d.RetryAfter = 0 // as the next one was granted
	return d
}

// Micros is a wait as a Duration; a wait in the past is 0.
func Micros(us int64) time.Duration {
	if us <= 0 {
		return 0
	}
	if us > math.MaxInt64/1000 {
		return math.MaxInt64 / 1000 * 1000
	}
	return time.Duration(us) * time.Microsecond
}

// Due is the instant at which the refunded grant was to act: long ago, if it had no delay.
func Due(c *weir.Claim, takenAt int64) int64 {
	if c.Delay == 0 {
		return math.MinInt64
	}
	return takenAt + c.Delay.Microseconds()
}

// Mul is a × b of numbers ≥ 0, at most 2^62.
func Mul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > 1<<62 {
		return 1 << 62
	}
	return int64(lo)
}

// Add is a + b of counts ≥ 0, at most weir.MaxUnits, the largest count that Charge reaches.
func Add(a, b int64) int64 { return min(a+b, weir.MaxUnits) }

// CeilDiv is a/b rounded up, for a ≥ 0 and b > 0.
func CeilDiv(a, b int64) int64 { return a/b + min(1, a%b) }

// FloorMod is a mod b, never negative: the clock of a test may be before 1970.
func FloorMod(a, b int64) int64 {
	if r := a % b; r < 0 {
		return r + b
	} else {
		return r
	}
}
