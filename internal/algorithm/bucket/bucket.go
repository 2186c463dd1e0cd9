// Package bucket is the token bucket, and with it GCRA and the leaky bucket: see README.md.
package bucket

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// State is a bucket. The zero State is a full one.
//
// Continuous: the bucket will be full at At + Part/Den microseconds, Den being the denominator of
// the limit's Interval (the theoretical arrival time of GCRA).
// Step: Part units are missing at the mark At, and each whole period since adds Refill.
type State struct{ At, Part int64 }

// Available is ⌊level + overdraft⌋, or −1 where that is below zero.
func Available(l *weir.Limit, s State, now int64) int64 {
	if l.Step() {
		return max(-1, l.Most()-settle(l, s, now).Part)
	}
	if s.At < now || s.At == now && s.Part == 0 {
		return l.Most()
	}
	interval, span := l.Interval(), l.Span()
	left, part := minus(span.Whole, span.Num, s.At-now, s.Part, interval.Den)
	if left < 0 {
		return -1
	}
	if interval.Num == 0 { // then Den is 1 and nothing has a part
		return left / interval.Whole
	}
	// left ÷ (T/R) = (left × Den + part) ÷ (T/g), at most C + D: the quotient fits.
	hi, lo := bits.Mul64(uint64(left), uint64(interval.Den))
	lo, carry := bits.Add64(lo, uint64(part), 0)
	units, _ := bits.Div64(hi+carry, lo, uint64(interval.Whole*interval.Den+interval.Num))
	return int64(units)
}

// Charge takes n units at any level. The debt stops at 2^52 µs.
func Charge(l *weir.Limit, s State, n, now int64) State {
	if n == 0 {
		return s
	}
	if l.Step() {
		s = settle(l, s, now)
		if s.Part == 0 {
			s.At = now // the clock of a bucket starts when it stops being full
		}
		s.Part = max(s.Part, min(s.Part+n, MostMissing(l)))
		return s
	}
	if s.At < now {
		s = State{At: now}
	}
	if s.At >= now+weir.MaxUnits {
		return s
	}
	wait, part := l.Interval().Times(n)
	s.At, s.Part = s.At+wait, s.Part+part
	if s.Part >= l.Interval().Den {
		s.At, s.Part = s.At+1, s.Part-l.Interval().Den
	}
	if s.At >= now+weir.MaxUnits {
		return State{At: now + weir.MaxUnits}
	}
	return s
}

// Refund gives n units back, up to a full bucket.
func Refund(l *weir.Limit, s State, n, now int64) State {
	if n == 0 {
		return s
	}
	if l.Step() {
		s = settle(l, s, now)
		s.Part = max(0, s.Part-n)
		return s
	}
	wait, part := l.Interval().Times(n)
	s.At, s.Part = minus(s.At, s.Part, wait, part, l.Interval().Den)
	if s.At < now {
		return State{}
	}
	return s
}

// Cancel is Refund of a grant that was to act at due. Before that instant, units charged
// later wait behind it: giving back their cost would grant their instants twice.
func Cancel(l *weir.Limit, s State, n, due, now int64) State {
	if due > now {
		n -= min(n, after(l, s, due))
	}
	return Refund(l, s, n, now)
}

// after is how many units were charged after a grant that is to act at due, in the future. Due
// is rounded up to a microsecond. A bucket that steps repays a whole step at one instant: of
// such a bucket it is the units still owed at due.
func after(l *weir.Limit, s State, due int64) int64 {
	if l.Step() {
		return max(0, settle(l, s, due).Part-l.Capacity())
	}
	whole, part := l.Interval().Times(l.Capacity())
	whole, part = minus(s.At-due, s.Part, whole, part, l.Interval().Den)
	if whole < 0 {
		return 0
	}
	return unitsIn(l.Interval(), whole, part)
}

// unitsIn is how many units refill in whole + part/Den µs, rounded up.
func unitsIn(interval *weir.Ratio, whole, part int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(interval.Den))
	lo, carry := bits.Add64(lo, uint64(part), 0)
	unit := uint64(interval.Whole*interval.Den + interval.Num)
	if hi += carry; hi >= unit {
		return math.MaxInt64
	}
	units, rest := bits.Div64(hi, lo, unit)
	return int64(min(units, math.MaxInt64-1) + min(rest, 1))
}

// Decision describes the state for a next request of cost units.
func Decision(l *weir.Limit, s State, cost, now int64) weir.Decision {
	available := Available(l, s, now)
	d := weir.Decision{Remaining: max(0, available), At: weir.Instant(now)}
	if l.Step() {
		s = settle(l, s, now)
		d.ResetAfter = algorithm.Micros(until(l, s, 0, now))
		d.RetryAfter = algorithm.Micros(until(l, s, l.Most()-cost, now))
		d.Delay = algorithm.Micros(until(l, s, l.Capacity(), now))
		if cost > l.Most() {
			d.RetryAfter = weir.Never
		}
		return d
	}
	d.RetryAfter, d.ResetAfter = waits(l, s, available, cost, now)
	if s.At >= now && (l.Overdraft() > 0 || available < 0) {
		d.Delay = algorithm.Micros(ahead(l, s, l.Capacity(), now))
	}
	return d
}

// Before is the Decision of a request after which n more units were granted, at the same
// instant; s is the state after the last of them.
func Before(l *weir.Limit, s State, n, cost, now int64) weir.Decision {
	return Decision(l, Refund(l, s, n, now), cost, now)
}

// waits are the waits of a continuous bucket's Decision. available is an argument because
// dividing again would cost as much as all the rest.
func waits(l *weir.Limit, s State, available, cost, now int64) (retryAfter, resetAfter time.Duration) {
	if s.At >= now {
		resetAfter = algorithm.Micros(ceil(s.At-now, s.Part))
		if available < cost || available < 0 {
			retryAfter = algorithm.Micros(ahead(l, s, l.Most()-cost, now))
		}
	}
	if cost > l.Most() {
		retryAfter = weir.Never
	}
	return retryAfter, resetAfter
}

// Take is one request of cost units, with a floor, to a bucket that is Short: Available, Charge and Decision
// in one step, for speed. It counts in ticks of 1/Den µs. ok is false for a bucket in debt
// beyond its overdraft.
func Take(l *weir.Limit, s State, cost, floor, now int64) (
	after State, remaining int64, retryAfter, resetAfter, delay time.Duration, granted, ok bool,
) {
	need := cost + floor
	interval, span := l.Interval(), l.Span()
	den := interval.Den
	unit, left := interval.Whole*den+interval.Num, span.Whole*den+span.Num
	ahead := s.At - now
	if ahead > span.Whole {
		return s, 0, 0, 0, 0, false, false
	}
	if ahead >= 0 {
		left -= ahead*den + s.Part
	}
	if left < 0 {
		return s, 0, 0, 0, 0, false, false
	}
	remaining = left / unit
	after = s
	if granted = need <= remaining; granted && cost > 0 {
		remaining -= cost
		left -= cost * unit
		after = later(interval, s, cost, now)
		ahead = after.At - now
	}
	if ahead >= 0 {
		resetAfter = algorithm.Micros(ceil(ahead, after.Part))
	}
	if need > remaining {
		retryAfter = weir.Never
		if need <= l.Most() {
			retryAfter = algorithm.Micros(algorithm.CeilDiv(need*unit-left, den))
		}
	}
	if owed := l.Overdraft()*unit - left; owed > 0 && l.Overdraft() > 0 {
		delay = algorithm.Micros(algorithm.CeilDiv(owed, den))
	}
	return after, algorithm.LessFloor(remaining, floor), retryAfter, resetAfter, delay, granted, true
}

// TakeStep is Take for a bucket that steps.
func TakeStep(l *weir.Limit, s State, cost, floor, now int64) (
	after State, remaining int64, retryAfter, resetAfter, delay time.Duration, granted bool,
) {
	after = s
	need := cost + floor
	s = settle(l, s, now)
	left := l.Most() - s.Part
	if granted = need <= left; granted && cost > 0 {
		if s.Part == 0 {
			s.At = now
		}
		s.Part, left = s.Part+cost, left-cost
		after = s
	}
	resetAfter = algorithm.Micros(until(l, s, 0, now))
	retryAfter = algorithm.Micros(until(l, s, l.Most()-need, now))
	delay = algorithm.Micros(until(l, s, l.Capacity(), now))
	if need > l.Most() {
		retryAfter = weir.Never
	}
	return after, algorithm.LessFloor(left, floor), retryAfter, resetAfter, delay, granted
}

// later is a full instant moved on by cost units, from now if it has passed.
func later(interval *weir.Ratio, s State, cost, now int64) State {
	if s.At < now {
		s = State{At: now}
	}
	if cost == 1 {
		s.At, s.Part = s.At+interval.Whole, s.Part+interval.Num
	} else {
		wait, part := interval.Times(cost)
		s.At, s.Part = s.At+wait, s.Part+part
	}
	if s.Part >= interval.Den {
		s.At, s.Part = s.At+1, s.Part-interval.Den
	}
	return s
}

// Short reports whether Take can decide for a limit: a continuous bucket of small numbers, so
// that a full instant and its part fit one word, and ticks of 1/Den µs do not overflow.
func Short(l *weir.Limit) bool {
	if l.Algorithm() != weir.AlgorithmTokenBucket || l.Step() {
		return false
	}
	den, span := l.Interval().Den, l.Span().Whole
	return den <= MaxDen && span < 1<<50 && span*den < 1<<60
}

// MaxDen is the largest denominator of a unit's time in a bucket that is Short.
const MaxDen = 1 << 12

// Adopt reads a state that was written under the numbers of another limit. A continuous bucket
// that becomes a stepping one is full at the same instant, in whole periods until then: each
// reading gives the same, and the caller loses at most one step.
func Adopt(from, to *weir.Limit, s State, now int64) State {
	switch {
	case from.Step() && to.Step():
		return s
	case from.Step():
		if s.Part == 0 {
			return State{}
		}
		return State{At: s.At + min(ceil(to.Interval().Times(s.Part)), weir.MaxUnits)}
	case to.Step():
		full := ceil(s.At, s.Part)
		if full <= now {
			return State{}
		}
		periods := min(algorithm.CeilDiv(full-now, to.Period()), MostMissing(to)/to.Refill())
		return State{At: full - periods*to.Period(), Part: periods * to.Refill()}
	case from.Interval().Den != to.Interval().Den:
		return State{At: ceil(s.At, s.Part)}
	}
	return s
}

// MostMissing is the largest number of missing units that Charge reaches in a bucket that steps:
// the units that refill in 2^52 µs.
func MostMissing(l *weir.Limit) int64 {
	return algorithm.Add(algorithm.Mul(weir.MaxUnits/l.Period(), l.Refill()), 0)
}

// settle adds the whole periods since the mark.
func settle(l *weir.Limit, s State, now int64) State {
	if s.Part == 0 || now <= s.At {
		return s
	}
	periods := (now - s.At) / l.Period()
	s.At += periods * l.Period()
	s.Part = max(0, s.Part-algorithm.Mul(periods, l.Refill()))
	return s
}

// until is the time until at most missing units are missing in a settled bucket that steps.
func until(l *weir.Limit, s State, missing, now int64) int64 {
	if s.Part <= missing || missing < 0 {
		return 0
	}
	return s.At - now + algorithm.Mul(algorithm.CeilDiv(s.Part-missing, l.Refill()), l.Period())
}

// ahead is the time until a continuous bucket is full but for n units: its full instant may
// then lie n × T/R ahead.
func ahead(l *weir.Limit, s State, n, now int64) int64 {
	if n < 0 {
		return 0
	}
	wait, part := l.Interval().Times(n)
	return ceil(minus(s.At-now, s.Part, wait, part, l.Interval().Den))
}

func ceil(whole, part int64) int64 { return whole + min(part, 1) }

// minus is (aw + ap/den) − (bw + bp/den).
func minus(aw, ap, bw, bp, den int64) (whole, part int64) {
	whole, part = aw-bw, ap-bp
	if part < 0 {
		return whole - 1, part + den
	}
	return whole, part
}
