package storetest

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// A keyModel is the meaning of one kind of limit for one key. It records charges and answers
// only yes or no; every number of a decision follows from many such answers (see describe). It
// is slow and simple on purpose.
//
// The limit is an argument, as its numbers may change while the key is in use.
type keyModel interface {
	// fits reports whether n units would be granted at now.
	fits(l *weir.Limit, n, now int64) bool
	// fresh reports whether the state at now is as if never used.
	fresh(l *weir.Limit, now int64) bool
	// charge and refund take and give back n ≥ 1 units.
	charge(l *weir.Limit, n, now int64)
	refund(l *weir.Limit, n, taken, now int64)
	clone() keyModel
	// text is the same for equal states only.
	text() string
}

// An indebted model can go below zero.
type indebted interface {
	owes(l *weir.Limit, now int64) bool
	// after is how many units were charged after a grant that acts at due: without them nothing
	// would be owed then.
	after(l *weir.Limit, due int64) int64
}

func newKeyModel(l *weir.Limit) keyModel {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		if l.Step() {
			return &steps{}
		}
		return &bucket{full: new(big.Rat)}
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return &window{}
	case weir.AlgorithmSlidingLog:
		return &slidingLog{}
	case weir.AlgorithmSlidingCounter:
		return &slidingCounter{}
	default:
		return &leases{}
	}
}

// describe finds a decision by the definitions of its fields: the most units that fit,
// the first instant at which the cost fits, the first at which the state is fresh.
func describe(w keyModel, l *weir.Limit, cost, now int64) weir.Decision {
	d := weir.Decision{At: weir.Instant(now)}
	if w.fits(l, 0, now) {
		d.Remaining = first(func(n int64) bool { return !w.fits(l, n+1, now) })
	}
	d.RetryAfter = weir.Never
	if cost <= l.Most() {
		d.RetryAfter = wait(func(after int64) bool { return w.fits(l, cost, now+after) })
	}
	d.ResetAfter = wait(func(after int64) bool { return w.fresh(l, now+after) })
	if debtor, ok := w.(indebted); ok {
		d.Delay = wait(func(after int64) bool { return !debtor.owes(l, now+after) })
	}
	return d
}

func wait(ok func(int64) bool) time.Duration { return time.Duration(first(ok)) * time.Microsecond }

// first is the smallest n ≥ 0 with ok(n), where ok is false up to some n and true from there.
func first(ok func(int64) bool) int64 {
	if ok(0) {
		return 0
	}
	low, high := int64(0), int64(1) // not ok(low)
	for !ok(high) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; ok(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// bucket is the continuous token bucket: the instant at which it is full, as a fraction.
type bucket struct{ full *big.Rat }

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// over is n × T/R.
func over(l *weir.Limit, n int64) *big.Rat {
	t := new(big.Rat).SetFrac64(l.Period(), l.Refill())
	return t.Mul(t, whole(n))
}

// late reports whether the bucket is more than n units from full: (full − now) × R/T > n,
// multiplied out, because this is called most often.
func (b *bucket) late(l *weir.Limit, n, now int64) bool {
	left := new(big.Int).Mul(big.NewInt(now), b.full.Denom())
	left.Sub(b.full.Num(), left)
	if left.Sign() <= 0 {
		return n < 0
	}
	left.Mul(left, big.NewInt(l.Refill()))
	right := new(big.Int).Mul(big.NewInt(n), big.NewInt(l.Period()))
	return left.Cmp(right.Mul(right, b.full.Denom())) > 0
}

func (b *bucket) fits(l *weir.Limit, n, now int64) bool { return !b.late(l, l.Most()-n, now) }
func (b *bucket) fresh(l *weir.Limit, now int64) bool   { return !b.late(l, 0, now) }
func (b *bucket) owes(l *weir.Limit, now int64) bool    { return b.late(l, l.Capacity(), now) }
func (b *bucket) text() string                          { return b.full.String() }
func (b *bucket) clone() keyModel                       { return &bucket{new(big.Rat).Set(b.full)} }

func (b *bucket) after(l *weir.Limit, due int64) int64 {
	return first(func(n int64) bool { return !b.late(l, l.Capacity()+n, due) })
}

func (b *bucket) charge(l *weir.Limit, n, now int64) {
	if b.full.Cmp(whole(now)) < 0 {
		b.full = whole(now)
	}
	b.full.Add(b.full, over(l, n))
}

func (b *bucket) refund(l *weir.Limit, n, _, now int64) {
	b.full.Sub(b.full, over(l, n))
	if b.full.Cmp(whole(now)) < 0 {
		b.full = new(big.Rat)
	}
}

// stepped is the bucket that steps with as much missing, rounded up.
func (b *bucket) stepped(l *weir.Limit, now int64) keyModel {
	return &steps{mark: now, missing: first(func(n int64) bool { return !b.late(l, n, now) })}
}

// steps is the token bucket that refills by whole periods.
type steps struct{ missing, mark int64 }

// at is the bucket after its periods up to now, one by one.
func (s *steps) at(l *weir.Limit, now int64) steps {
	settled := *s
	for settled.missing > 0 && settled.mark+l.Period() <= now {
		settled.mark += l.Period()
		settled.missing = max(0, settled.missing-l.Refill())
	}
	return settled
}

func (s *steps) fits(l *weir.Limit, n, now int64) bool { return s.at(l, now).missing+n <= l.Most() }
func (s *steps) fresh(l *weir.Limit, now int64) bool   { return s.at(l, now).missing == 0 }
func (s *steps) owes(l *weir.Limit, now int64) bool    { return s.at(l, now).missing > l.Capacity() }
func (s *steps) clone() keyModel                       { return &steps{s.missing, s.mark} }
func (s *steps) text() string                          { return texts(s.missing, s.mark) }

func (s *steps) after(l *weir.Limit, due int64) int64 {
	return max(0, s.at(l, due).missing-l.Capacity())
}

func (s *steps) charge(l *weir.Limit, n, now int64) {
	*s = s.at(l, now)
	if s.missing == 0 {
		s.mark = now
	}
	s.missing += n
}

func (s *steps) refund(l *weir.Limit, n, _, now int64) {
	*s = s.at(l, now)
	s.missing = max(0, s.missing-n)
}

// continuous is the bucket that refills evenly with as much missing.
func (s *steps) continuous(l *weir.Limit, now int64) keyModel {
	return &bucket{new(big.Rat).Add(whole(now), over(l, s.at(l, now).missing))}
}

// window is the fixed window and the calendar. It ends when the numbers that it was opened
// by say, or, of a window of the key's own, when those that it is read by do.
type window struct{ start, end, count int64 }

func (w *window) used(l *weir.Limit, now int64) int64 {
	end := w.end
	if own(l) {
		end = w.start + l.Period()
	}
	if now >= end {
		return 0
	}
	return w.count
}

func (w *window) fits(l *weir.Limit, n, now int64) bool { return w.used(l, now)+n <= l.Capacity() }
func (w *window) fresh(l *weir.Limit, now int64) bool   { return w.used(l, now) == 0 }
func (w *window) clone() keyModel                       { return &window{w.start, w.end, w.count} }
func (w *window) text() string                          { return texts(w.start, w.end, w.count) }

func (w *window) charge(l *weir.Limit, n, now int64) {
	used := w.used(l, now)
	start, end := period(l, w.start)
	switch {
	case used == 0:
		start, end = period(l, now)
	case !own(l) && (start != w.start || end != w.end): // opened by other numbers
		start, end = period(l, max(now, w.start))
	}
	*w = window{start, end, used + n}
}

func (w *window) refund(l *weir.Limit, n, taken, now int64) {
	if w.used(l, now) > 0 && w.start <= taken && taken < w.end {
		w.count = max(0, w.count-n)
	}
}

// own reports whether each key has windows of its own.
func own(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmFixedWindow && l.Anchor() == weir.First
}

// period is the window that opens at an instant, or on a grid contains it.
func period(l *weir.Limit, at int64) (start, end int64) {
	switch {
	case l.Algorithm() == weir.AlgorithmCalendar:
		return calendarPeriod(l.Spec().(weir.Calendar), at)
	case l.Anchor() == weir.Epoch:
		start = floorDiv(at, l.Period()) * l.Period()
		return start, start + l.Period()
	}
	return at, at + l.Period()
}

func floorDiv(a, b int64) int64 {
	quotient := a / b
	if a%b < 0 {
		quotient--
	}
	return quotient
}

// units is a charge at an instant.
type units struct{ at, n int64 }

// slidingLog keeps all charges.
type slidingLog struct{ charges []units }

// clock reads a clock before the newest charge as that instant.
func (s *slidingLog) clock(now int64) int64 {
	for _, c := range s.charges {
		now = max(now, c.at)
	}
	return now
}

func (s *slidingLog) used(l *weir.Limit, now int64) (n int64) {
	now = s.clock(now)
	for _, c := range s.charges {
		if now-l.Period() < c.at {
			n += c.n
		}
	}
	return n
}

func (s *slidingLog) fits(l *weir.Limit, n, now int64) bool { return s.used(l, now)+n <= l.Capacity() }
func (s *slidingLog) fresh(l *weir.Limit, now int64) bool   { return s.used(l, now) == 0 }
func (s *slidingLog) clone() keyModel                       { return &slidingLog{slices.Clone(s.charges)} }
func (s *slidingLog) text() string                          { return unitsText(s.charges) }

func (s *slidingLog) charge(_ *weir.Limit, n, now int64) {
	s.charges = append(s.charges, units{s.clock(now), n})
}

// refund writes the state, and a write keeps only the window of now: after it a clock that steps
// back does not see earlier charges (trace-040 of the vectors).
func (s *slidingLog) refund(l *weir.Limit, n, taken, now int64) {
	horizon := s.clock(now) - l.Period()
	s.charges = slices.DeleteFunc(s.charges, func(c units) bool { return c.at <= horizon })
	takeBack(s.charges, n, func(at int64) bool { return at == taken })
	s.charges = slices.DeleteFunc(s.charges, func(c units) bool { return c.n == 0 })
}

// takeBack takes up to n units from those charged at an instant that the test names.
func takeBack(charges []units, n int64, from func(at int64) bool) {
	for i := range charges {
		if c := &charges[i]; from(c.at) {
			back := min(n, c.n)
			n, c.n = n-back, c.n-back
		}
	}
}

// slidingCounter keeps all charges, and counts them by slices.
type slidingCounter struct{ charges []units }

// clock is the slice that now lies in and the ticks of it that have passed.
func (s *slidingCounter) clock(l *weir.Limit, now int64) (slice, elapsed int64) {
	slice = floorDiv(now, l.Slice())
	for _, c := range s.charges {
		if newest := floorDiv(c.at, l.Slice()); newest > slice {
			slice, now = newest, newest*l.Slice()
		}
	}
	return slice, (now - slice*l.Slice()) / l.Tick()
}

func (s *slidingCounter) sum(l *weir.Limit, from, to int64) (n int64) {
	for _, c := range s.charges {
		if slice := floorDiv(c.at, l.Slice()); from <= slice && slice <= to {
			n += c.n
		}
	}
	return n
}

// fits: full + fading × (S − e)/S + n ≤ L, multiplied by S in ticks.
func (s *slidingCounter) fits(l *weir.Limit, n, now int64) bool {
	slice, elapsed := s.clock(l, now)
	ticks := l.Slice() / l.Tick()
	full, fading := s.sum(l, slice-l.Slices()+1, slice), s.sum(l, slice-l.Slices(), slice-l.Slices())
	left := new(big.Int).Mul(big.NewInt(fading), big.NewInt(ticks-elapsed))
	return left.Cmp(new(big.Int).Mul(big.NewInt(l.Capacity()-n-full), big.NewInt(ticks))) <= 0
}

func (s *slidingCounter) fresh(l *weir.Limit, now int64) bool {
	slice, _ := s.clock(l, now)
	return s.sum(l, slice-l.Slices(), slice) == 0
}

func (s *slidingCounter) clone() keyModel { return &slidingCounter{slices.Clone(s.charges)} }
func (s *slidingCounter) text() string    { return unitsText(s.charges) }

func (s *slidingCounter) charge(l *weir.Limit, n, now int64) {
	slice, _ := s.clock(l, now)
	s.charges = append(s.charges, units{max(now, slice*l.Slice()), n})
}

// refund leaves a slice that is empty after it the newest, as counters do, unless all are
// empty: then the key is as if never used, and so is a clock that steps back to it.
func (s *slidingCounter) refund(l *weir.Limit, n, taken, now int64) {
	slice, _ := s.clock(l, now)
	takeBack(s.charges, n, func(at int64) bool {
		from := floorDiv(at, l.Slice())
		return from == floorDiv(taken, l.Slice()) && from >= slice-l.Slices()
	})
	if newest, _ := s.clock(l, math.MinInt64/2); s.sum(l, newest-l.Slices(), newest) == 0 {
		s.charges = nil
	}
}

// lease is units held in [taken, expires).
type lease struct {
	id      string
	n       int64
	expires int64
}

// leases is the concurrency limit. A lease that ended has ended, even for a clock that
// steps back: later writes no longer contain it.
type leases struct{ held []lease }

func (s *leases) find(id string, now int64) *lease {
	for i := range s.held {
		if s.held[i].id == id && now < s.held[i].expires {
			return &s.held[i]
		}
	}
	return nil
}

func (s *leases) used(now int64) (n int64) {
	for _, lease := range s.held {
		if now < lease.expires {
			n += lease.n
		}
	}
	return n
}

func (s *leases) fits(l *weir.Limit, n, now int64) bool { return s.used(now)+n <= l.Capacity() }
func (s *leases) fresh(_ *weir.Limit, now int64) bool   { return s.used(now) == 0 }
func (s *leases) clone() keyModel                       { return &leases{slices.Clone(s.held)} }

func (s *leases) text() string {
	var text strings.Builder
	for _, lease := range s.held {
		text.WriteString(lease.id + texts(lease.n, lease.expires))
	}
	return text.String()
}

func (s *leases) take(l *weir.Limit, id string, n, now int64) {
	if held := s.find(id, now); held != nil {
		n = held.n
	}
	s.keep(now, id)
	s.held = append(s.held, lease{id, n, now + l.Period()})
}

func (s *leases) release(id string, now int64) bool {
	if s.find(id, now) == nil {
		return false
	}
	s.keep(now, id)
	return true
}

// keep drops the leases that ended, and one more.
func (s *leases) keep(now int64, but string) {
	s.held = slices.DeleteFunc(s.held, func(l lease) bool { return l.expires <= now || l.id == but })
}

// charge and refund are not used: leases are taken and released by id.
func (s *leases) charge(*weir.Limit, int64, int64)        {}
func (s *leases) refund(*weir.Limit, int64, int64, int64) {}

func texts(numbers ...int64) string {
	var text strings.Builder
	for _, n := range numbers {
		text.WriteString(strconv.FormatInt(n, 10) + " ")
	}
	return text.String()
}

func unitsText(charges []units) string {
	var text strings.Builder
	for _, c := range charges {
		text.WriteString(texts(c.at, c.n))
	}
	return text.String()
}
