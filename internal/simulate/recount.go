package simulate

import (
	"math/bits"
	"time"

	"github.com/weirproject/weir"
)

// A counter recounts one key of a limit, in time order, by the definition of docs/limits.md and nothing of weir's
// arithmetic.
type counter interface {
	// over is by how many units n more would exceed the limit now; 0: they fit.
	over(now, n int64) int64
	// charge charges units, whether they fit or not.
	charge(now, n int64)
}

// newCounter makes a counter of an unused key; nil for limits that are not recounted.
func newCounter(l *weir.Limit) counter {
	switch spec := l.Spec().(type) {
	case weir.TokenBucket:
		return newBucket(spec)
	case weir.FixedWindow:
		return &window{limit: spec.Limit, period: spec.Window.Microseconds(), epoch: spec.Anchor == weir.Epoch}
	case weir.Calendar:
		return &window{limit: spec.Limit, calendar: l}
	case weir.SlidingLog:
		return &slidingLog{limit: spec.Limit, period: spec.Window.Microseconds()}
	case weir.SlidingCounter:
		return newSlices(spec)
	}
	return nil
}

// A bucket counts level × period, so that each microsecond adds a whole number.
type bucket struct {
	capacity, overdraft, level int64 // times period
	refill, period             int64
	step                       bool
	at                         int64 // of level; of a bucket that steps, the mark
}

func newBucket(spec weir.TokenBucket) *bucket {
	b := &bucket{refill: spec.Refill, period: spec.Period.Microseconds(), step: spec.Mode == weir.Step}
	if b.step {
		b.capacity, b.overdraft = spec.Capacity, spec.Overdraft
	} else {
		common := gcd(b.refill, b.period)
		b.refill, b.period = b.refill/common, b.period/common
		b.capacity, b.overdraft = spec.Capacity*b.period, spec.Overdraft*b.period
	}
	b.level = b.capacity
	return b
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// unit is one unit in the numbers of level.
func (b *bucket) unit() int64 {
	if b.step {
		return 1
	}
	return b.period
}

func (b *bucket) advance(now int64) {
	passed := now - b.at
	if b.step {
		passed /= b.period
		b.at += passed * b.period
	} else {
		b.at = now
	}
	if hi, lo := bits.Mul64(uint64(passed), uint64(b.refill)); hi == 0 && lo < uint64(b.capacity-b.level) {
		b.level += int64(lo)
		return
	}
	b.level = b.capacity
}

func (b *bucket) over(now, n int64) int64 {
	b.advance(now)
	missing := n*b.unit() - b.level - b.overdraft
	return max(0, (missing+b.unit()-1)/b.unit())
}

func (b *bucket) charge(now, n int64) {
	b.advance(now)
	if b.level == b.capacity {
		b.at = now // the clock of a full bucket starts at the charge
	}
	b.level -= n * b.unit()
}

// A window is a fixed one, or one of a calendar.
type window struct {
	limit, period int64
	epoch         bool
	calendar      *weir.Limit
	end, used     int64
}

func (w *window) over(now, n int64) int64 {
	if now >= w.end {
		w.used = 0
	}
	return max(0, w.used+n-w.limit)
}

func (w *window) charge(now, n int64) {
	if n == 0 {
		return
	}
	if now >= w.end || w.used == 0 {
		w.used = 0
		switch {
		case w.calendar != nil:
			_, end := w.calendar.Bounds(weir.Instant(now))
			w.end = int64(end)
		case w.epoch:
			w.end = now - now%w.period + w.period
		default:
			w.end = now + w.period
		}
	}
	w.used += n
}

// A slidingLog has all charges of the last period.
type slidingLog struct {
	limit, period int64
	charges       []struct{ at, n int64 }
	used          int64
}

func (l *slidingLog) over(now, n int64) int64 {
	gone := 0
	for gone < len(l.charges) && l.charges[gone].at <= now-l.period {
		l.used -= l.charges[gone].n
		gone++
	}
	l.charges = l.charges[gone:]
	return max(0, l.used+n-l.limit)
}

func (l *slidingLog) charge(now, n int64) {
	l.charges = append(l.charges, struct{ at, n int64 }{now, n})
	l.used += n
}

// A slidingCounter counts in slices.
type slidingCounter struct {
	limit, size, tick int64 // of a slice, in ticks of so many µs
	counts            map[int64]int64
	n                 int64 // slices in the window
}

func newSlices(spec weir.SlidingCounter) *slidingCounter {
	n := max(spec.Slices, 1)
	size := spec.Window.Microseconds() / n
	s := &slidingCounter{limit: spec.Limit, n: n, counts: make(map[int64]int64)}
	for _, tick := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		s.tick = tick.Microseconds()
		s.size = size / s.tick
		if hi, lo := bits.Mul64(uint64(spec.Limit), uint64(s.size)); size%s.tick == 0 && hi == 0 && lo <= 1<<52 {
			break
		}
	}
	return s
}

func (s *slidingCounter) over(now, n int64) int64 {
	ticks := now / s.tick
	i, into := ticks/s.size, ticks%s.size
	full := int64(0)
	for at, count := range s.counts {
		if at < i-s.n {
			delete(s.counts, at)
		} else if at > i-s.n {
			full += count
		}
	}
	hi, lo := bits.Mul64(uint64(s.counts[i-s.n]), uint64(s.size-into))
	part, rest := bits.Div64(hi, lo, uint64(s.size))
	return max(0, full+int64(part)+int64(min(rest, 1))+n-s.limit)
}

func (s *slidingCounter) charge(now, n int64) { s.counts[now/s.tick/s.size] += n }

// tooFine reports whether the numbers of a bucket might overflow.
func tooFine(spec weir.TokenBucket) bool {
	period := spec.Period.Microseconds()
	hi, lo := bits.Mul64(uint64(spec.Capacity+spec.Overdraft), uint64(period/gcd(spec.Refill, period)))
	return spec.Mode != weir.Step && (hi > 0 || lo > 1<<60)
}
