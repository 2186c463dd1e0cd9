// Package model is what limits mean, slow and simple: what the implementations are compared with. It is for tests.
package model

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// A Model is the meaning of one kind of limit for one key. It records charges and answers
// only yes or no; every number of a decision follows from many such answers (see Describe). It
// is slow and simple on purpose.
//
// The limit is an argument, as its numbers may change while the key is in use.
type Model interface {
	// Fits reports whether n units would be granted at now.
	Fits(l *weir.Limit, n, now int64) bool
	// Fresh reports whether the state at now is the initial one.
	Fresh(l *weir.Limit, now int64) bool
	// Charge and refund take and give back n ≥ 1 units.
	Charge(l *weir.Limit, n, now int64)
	Refund(l *weir.Limit, n, taken, now int64)
	// Settle is Charge that corrects an earlier charge: what longer numbers count stays.
	Settle(l *weir.Limit, n, now int64)
	// Back brings back the state of a clock that was ahead, before an operation that may write.
	Back(l *weir.Limit, now int64)
	Clone() Model
	// Text is the same for equal states only.
	Text() string
}

// An Indebted model can go below zero.
type Indebted interface {
	Owes(l *weir.Limit, now int64) bool
	// After is how many units were charged after a grant that acts at due: without them nothing
	// would be owed then.
	After(l *weir.Limit, due int64) int64
}

// A Holder is the model of a limit whose units are held by leases.
type Holder interface {
	Model
	Holds(id string, now int64) bool
	Take(l *weir.Limit, id string, n, now int64)
	Release(id string, now int64) bool
	// Promised is Fits for later instants, as it is told at now.
	Promised(now int64) func(l *weir.Limit, n, at int64) bool
}

func New(l *weir.Limit) Model {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		if l.Step() {
			return &Steps{}
		}
		return &Bucket{new(big.Rat)}
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return &Window{}
	case weir.AlgorithmSlidingLog:
		return &SlidingLog{}
	case weir.AlgorithmSlidingCounter:
		return &SlidingCounter{}
	case weir.AlgorithmConcurrency:
		return &Leases{}
	case weir.AlgorithmFairWindow, weir.AlgorithmFairCalendar:
		return &Fair{shared: &shared{whole: &Window{}, had: map[string]had{}}}
	case weir.AlgorithmFairConcurrency:
		return &FairLeases{sharedLeases: new(sharedLeases)}
	}
	panic("no model of " + l.Algorithm().String())
}

// A Sharer is the model of a limit that members share.
type Sharer interface {
	// Standing is what the member has of the limit.
	Standing(l *weir.Limit, now int64) weir.Standing
}

// Describe finds a decision by the definitions of its fields: the most units that fit besides the floor,
// the first instant at which the cost and the floor fit, the first at which the state is fresh.
func Describe(w Model, l *weir.Limit, cost, floor, now int64) weir.Decision {
	w = w.Clone()
	w.Back(l, now)
	d := weir.Decision{At: weir.Instant(now)}
	if w.Fits(l, floor, now) {
		d.Remaining = First(func(n int64) bool { return !w.Fits(l, n+1+floor, now) })
	}
	d.RetryAfter = weir.Never
	if cost+floor <= l.Most() {
		fits := w.Fits
		if leases, ok := w.(Holder); ok {
			fits = leases.Promised(now)
		}
		d.RetryAfter = wait(func(after int64) bool { return fits(l, cost+floor, now+after) })
	}
	d.ResetAfter = wait(func(after int64) bool { return w.Fresh(l, now+after) })
	if debtor, ok := w.(Indebted); ok {
		d.Delay = wait(func(after int64) bool { return !debtor.Owes(l, now+after) })
	}
	return d
}

// wait is the first wait with ok, or the longest that a Duration has in whole microseconds.
func wait(ok func(int64) bool) time.Duration {
	return time.Duration(min(First(ok), math.MaxInt64/1000)) * time.Microsecond
}

// First is the smallest n ≥ 0 with ok(n), where ok is false up to some n and true from there.
func First(ok func(int64) bool) int64 {
	if ok(0) {
		return 0
	}
	low, high := int64(0), int64(1) // not ok(low)
	for high < 1<<62 && !ok(high) {
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
type Bucket struct{ Full *big.Rat }

func Whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// Over is n × T/R.
func Over(l *weir.Limit, n int64) *big.Rat {
	t := new(big.Rat).SetFrac64(l.Period(), l.Refill())
	return t.Mul(t, Whole(n))
}

// late reports whether the bucket is more than n units from full: (full − now) × R/T > n,
// multiplied out, because this is called most often.
func (b *Bucket) late(l *weir.Limit, n, now int64) bool {
	left := new(big.Int).Mul(big.NewInt(now), b.Full.Denom())
	left.Sub(b.Full.Num(), left)
	if left.Sign() <= 0 {
		return n < 0
	}
	left.Mul(left, big.NewInt(l.Refill()))
	right := new(big.Int).Mul(big.NewInt(n), big.NewInt(l.Period()))
	return left.Cmp(right.Mul(right, b.Full.Denom())) > 0
}

func (b *Bucket) Fits(l *weir.Limit, n, now int64) bool { return !b.late(l, l.Most()-n, now) }
func (b *Bucket) Fresh(l *weir.Limit, now int64) bool   { return !b.late(l, 0, now) }
func (b *Bucket) Owes(l *weir.Limit, now int64) bool    { return b.late(l, l.Capacity(), now) }
func (b *Bucket) Text() string                          { return b.Full.String() }
func (b *Bucket) Clone() Model                          { return &Bucket{new(big.Rat).Set(b.Full)} }

func (b *Bucket) After(l *weir.Limit, due int64) int64 {
	return First(func(n int64) bool { return !b.late(l, l.Capacity()+n, due) })
}

func (b *Bucket) Charge(l *weir.Limit, n, now int64) {
	ceiling := Whole(now + weir.MaxUnits) // debt stops there
	if b.Full.Cmp(ceiling) > 0 {
		ceiling = b.Full
	}
	if b.Full.Cmp(Whole(now)) < 0 {
		b.Full = Whole(now)
	}
	b.Full = new(big.Rat).Add(b.Full, Over(l, n))
	if b.Full.Cmp(ceiling) > 0 {
		b.Full = ceiling
	}
}

func (b *Bucket) Refund(l *weir.Limit, n, _, now int64) {
	b.Full.Sub(b.Full, Over(l, n))
	if b.Full.Cmp(Whole(now)) < 0 {
		b.Full = new(big.Rat)
	}
}

func (b *Bucket) Back(*weir.Limit, int64) {}
func (s *Steps) Back(*weir.Limit, int64)  {}
func (s *Leases) Back(*weir.Limit, int64) {}

func (b *Bucket) Settle(l *weir.Limit, n, now int64) { b.Charge(l, n, now) }
func (s *Steps) Settle(l *weir.Limit, n, now int64)  { s.Charge(l, n, now) }
func (s *Leases) Settle(*weir.Limit, int64, int64)   {}

// Stepped is the bucket that steps with as much missing, rounded up.
func (b *Bucket) Stepped(l *weir.Limit, now int64) Model {
	return &Steps{Mark: now, Missing: First(func(n int64) bool { return !b.late(l, n, now) })}
}

// steps is the token bucket that refills by whole periods.
type Steps struct{ Missing, Mark int64 }

// At is the bucket after its periods up to now, one by one, but for all but the last of very many.
func (s *Steps) At(l *weir.Limit, now int64) Steps {
	settled := *s
	if periods := (now - s.Mark) / l.Period(); periods > 1000 {
		skip := max(0, min(periods, s.Missing/l.Refill())-1)
		settled = Steps{s.Missing - skip*l.Refill(), s.Mark + skip*l.Period()}
	}
	for settled.Missing > 0 && settled.Mark+l.Period() <= now {
		settled.Mark += l.Period()
		settled.Missing = max(0, settled.Missing-l.Refill())
	}
	return settled
}

func (s *Steps) Fits(l *weir.Limit, n, now int64) bool { return s.At(l, now).Missing+n <= l.Most() }
func (s *Steps) Fresh(l *weir.Limit, now int64) bool   { return s.At(l, now).Missing == 0 }
func (s *Steps) Owes(l *weir.Limit, now int64) bool    { return s.At(l, now).Missing > l.Capacity() }
func (s *Steps) Clone() Model                          { return &Steps{s.Missing, s.Mark} }
func (s *Steps) Text() string                          { return texts(s.Missing, s.Mark) }

func (s *Steps) After(l *weir.Limit, due int64) int64 {
	return max(0, s.At(l, due).Missing-l.Capacity())
}

func (s *Steps) Charge(l *weir.Limit, n, now int64) {
	*s = s.At(l, now)
	if s.Missing == 0 {
		s.Mark = now
	}
	most := int64(weir.MaxUnits) // debt stops at what is refilled in 2^52 µs
	if periods := weir.MaxUnits / l.Period(); periods < weir.MaxUnits/l.Refill() {
		most = periods * l.Refill()
	}
	s.Missing = max(s.Missing, min(s.Missing+n, most))
}

func (s *Steps) Refund(l *weir.Limit, n, _, now int64) {
	*s = s.At(l, now)
	s.Missing = max(0, s.Missing-n)
}

// Continuous is the bucket that refills evenly with as much missing.
func (s *Steps) Continuous(l *weir.Limit, now int64) Model {
	return &Bucket{new(big.Rat).Add(Whole(now), Over(l, s.At(l, now).Missing))}
}

// window is the fixed window and the calendar. It ends when the numbers that it was opened
// by say, or, of a window of the key's own, when those that it is read by do.
type Window struct{ Start, End, count int64 }

func (w *Window) Used(l *weir.Limit, now int64) int64 {
	if _, end := w.read(l); now >= end {
		return 0
	}
	return w.count
}

// read is the window by a limit's numbers: on a grid its units count until both windows are over.
func (w *Window) read(l *weir.Limit) (start, end int64) {
	start, end = Period(l, w.Start)
	if !Own(l) {
		end = max(end, w.End)
	}
	return start, end
}

func (w *Window) Fits(l *weir.Limit, n, now int64) bool { return w.Used(l, now)+n <= l.Capacity() }
func (w *Window) Fresh(l *weir.Limit, now int64) bool   { return w.Used(l, now) == 0 }
func (w *Window) Clone() Model                          { return &Window{w.Start, w.End, w.count} }
func (w *Window) Text() string                          { return texts(w.Start, w.End, w.count) }

func (w *Window) Charge(l *weir.Limit, n, now int64) {
	used := w.Used(l, now)
	start, end := Period(l, w.Start)
	switch {
	case used == 0:
		start, end = Period(l, now)
	case !Own(l) && end < w.End: // opened by other numbers
		start, end = Period(l, max(now, w.Start))
	}
	*w = Window{start, end, min(used+n, weir.MaxUnits)}
}

// Settle leaves a window of other numbers as it is where its count would end sooner.
func (w *Window) Settle(l *weir.Limit, n, now int64) {
	own := *w
	own.Charge(l, n, now)
	if w.count > 0 && now < w.End && (w.Used(l, now) == 0 || w.End >= own.End) {
		w.count = min(w.count+n, weir.MaxUnits)
		return
	}
	*w = own
}

func (w *Window) Refund(l *weir.Limit, n, taken, now int64) {
	start, end := w.read(l)
	if w.Used(l, now) > 0 && start <= taken && taken < end {
		w.count = max(0, w.count-n)
	}
}

func (w *Window) Back(l *weir.Limit, now int64) {
	latest := now + l.Period()
	if l.Algorithm() == weir.AlgorithmCalendar {
		_, end := Period(l, now)
		_, latest = Period(l, end)
	}
	if w.count > 0 && w.Start > latest {
		w.Start, w.End = Period(l, now)
	}
}

// Own reports whether each key has windows of its own.
func Own(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmFixedWindow && l.Anchor() == weir.First
}

// Period is the window that opens at an instant, or on a grid contains it.
func Period(l *weir.Limit, at int64) (start, end int64) {
	switch {
	case l.Algorithm() == weir.AlgorithmCalendar:
		return calendarPeriod(l.Spec().(weir.Calendar), at)
	case l.Anchor() == weir.Epoch:
		start = FloorDiv(at, l.Period()) * l.Period()
		return start, start + l.Period()
	}
	return at, at + l.Period()
}

func FloorDiv(a, b int64) int64 {
	quotient := a / b
	if a%b < 0 {
		quotient--
	}
	return quotient
}

// units is a charge at an instant.
type Units struct{ At, N int64 }

// slidingLog keeps all charges, and the window of the last one.
type SlidingLog struct {
	charges []Units
	window  int64
}

// clock reads a clock before the newest charge as that instant.
func (s *SlidingLog) clock(now int64) int64 {
	for _, c := range s.charges {
		now = max(now, c.At)
	}
	return now
}

func (s *SlidingLog) used(l *weir.Limit, now int64) (n int64) {
	now = s.clock(now)
	for _, c := range s.charges {
		if now-l.Period() < c.At {
			n += c.N
		}
	}
	return n
}

func (s *SlidingLog) Fits(l *weir.Limit, n, now int64) bool { return s.used(l, now)+n <= l.Capacity() }
func (s *SlidingLog) Fresh(l *weir.Limit, now int64) bool   { return s.used(l, now) == 0 }
func (s *SlidingLog) Clone() Model                          { return &SlidingLog{slices.Clone(s.charges), s.window} }
func (s *SlidingLog) Text() string                          { return unitsText(s.charges) + texts(s.window) }

// Charge keeps only the window of now: after it a clock that steps back does not see earlier charges.
func (s *SlidingLog) Charge(l *weir.Limit, n, now int64) {
	s.window = 0
	s.Settle(l, n, now)
}

// Settle keeps the longer of its own window and that of the last charge.
func (s *SlidingLog) Settle(l *weir.Limit, n, now int64) {
	s.window = max(s.window, l.Period())
	s.keep(s.window, now)
	n = min(n, weir.MaxUnits-sum(s.charges))
	s.charges = append(s.charges, Units{s.clock(now), n})
}

func (s *SlidingLog) keep(window, now int64) {
	horizon := s.clock(now) - window
	s.charges = slices.DeleteFunc(s.charges, func(c Units) bool { return c.At <= horizon })
}

func (s *SlidingLog) Back(l *weir.Limit, now int64) {
	moveBack(s.charges, s.clock(now)-now, l.Period())
}

// moveBack moves charges of which the newest is ahead by more than a window.
func moveBack(charges []Units, ahead, window int64) {
	for i := range charges {
		if ahead > window {
			charges[i].At -= ahead
		}
	}
}

// Refund keeps the longer of its own window and that of the last charge: after it a clock that steps back does not see
// earlier charges (trace-040 of the vectors).
func (s *SlidingLog) Refund(l *weir.Limit, n, taken, now int64) {
	s.keep(max(l.Period(), s.window), now)
	takeBack(s.charges, n, func(at int64) bool { return at == taken })
	s.charges = slices.DeleteFunc(s.charges, func(c Units) bool { return c.N == 0 })
}

func sum(charges []Units) (n int64) {
	for _, c := range charges {
		n += c.N
	}
	return n
}

// takeBack takes up to n units from those charged at an instant that the test names.
func takeBack(charges []Units, n int64, from func(at int64) bool) {
	for i := range charges {
		if c := &charges[i]; from(c.At) {
			back := min(n, c.N)
			n, c.N = n-back, c.N-back
		}
	}
}

// slidingCounter keeps all charges, and counts them by slices.
type SlidingCounter struct {
	Charges []Units
	by      *weir.Limit // of the last charge; other slices are converted, unless it is nil
}

// in is the counter in the slices of a limit, for a charge at now, or for a reading, which has no now: the newest slice
// is placed by its end, or in that of now, and the others behind it by their least age.
func (s *SlidingCounter) in(l *weir.Limit, now int64) *SlidingCounter {
	if s.by == nil || s.by.Slice() == l.Slice() && s.by.Slices() == l.Slices() {
		return s
	}
	newest, _ := s.clock(s.by, math.MinInt64/2)
	width, converted := s.by.Slice(), &SlidingCounter{by: l}
	last := FloorDiv(min((newest+1)*width-1, max(now, newest*width)), l.Slice())
	for _, c := range s.Charges {
		age := newest - FloorDiv(c.At, width)
		into := last - max(0, age-1)*width/l.Slice()
		if age <= s.by.Slices() && into >= last-l.Slices() {
			converted.Charges = append(converted.Charges, Units{into * l.Slice(), c.N})
		}
	}
	if sum(converted.Charges) == 0 {
		converted.Charges = nil
	}
	return converted
}

const reading = math.MaxInt64

// clock is the slice that now lies in and the ticks of it that have passed.
func (s *SlidingCounter) clock(l *weir.Limit, now int64) (slice, elapsed int64) {
	slice = FloorDiv(now, l.Slice())
	for _, c := range s.Charges {
		if newest := FloorDiv(c.At, l.Slice()); newest > slice {
			slice, now = newest, newest*l.Slice()
		}
	}
	return slice, (now - slice*l.Slice()) / l.Tick()
}

func (s *SlidingCounter) sum(l *weir.Limit, from, to int64) (n int64) {
	for _, c := range s.Charges {
		if slice := FloorDiv(c.At, l.Slice()); from <= slice && slice <= to {
			n += c.N
		}
	}
	return n
}

// Fits: full + fading × (S − e)/S + n ≤ L, multiplied by S in ticks.
func (s *SlidingCounter) Fits(l *weir.Limit, n, now int64) bool {
	s = s.in(l, reading)
	slice, elapsed := s.clock(l, now)
	ticks := l.Slice() / l.Tick()
	full, fading := s.sum(l, slice-l.Slices()+1, slice), s.sum(l, slice-l.Slices(), slice-l.Slices())
	left := new(big.Int).Mul(big.NewInt(fading), big.NewInt(ticks-elapsed))
	return left.Cmp(new(big.Int).Mul(big.NewInt(l.Capacity()-n-full), big.NewInt(ticks))) <= 0
}

func (s *SlidingCounter) Fresh(l *weir.Limit, now int64) bool {
	s = s.in(l, reading)
	slice, _ := s.clock(l, now)
	return s.sum(l, slice-l.Slices(), slice) == 0
}

func (s *SlidingCounter) Clone() Model { return &SlidingCounter{slices.Clone(s.Charges), s.by} }
func (s *SlidingCounter) Text() string { return unitsText(s.Charges) }

func (s *SlidingCounter) Charge(l *weir.Limit, n, now int64) {
	*s = *s.in(l, now)
	s.by = l
	slice, _ := s.clock(l, now)
	s.Charges = append(s.Charges, Units{max(now, slice*l.Slice()), n})
}

// Settle charges under the numbers of the last charge if their window is longer.
func (s *SlidingCounter) Settle(l *weir.Limit, n, now int64) {
	if s.by != nil && len(s.Charges) > 0 && s.by.Period() > l.Period() {
		l = s.by
	}
	s.Charge(l, n, now)
}

// Back moves the slices by whole ones, if the newest starts more than a window after now, floored to its tick.
func (s *SlidingCounter) Back(l *weir.Limit, now int64) {
	by := l
	if s.by != nil {
		by = s.by
	}
	if newest, _ := s.clock(by, math.MinInt64/2); newest*by.Slice() > FloorDiv(now, l.Tick())*l.Tick()+l.Period() {
		*s = *s.in(l, reading)
		newest, _ := s.clock(l, math.MinInt64/2)
		current := FloorDiv(now, l.Slice())
		moveBack(s.Charges, (newest-current)*l.Slice(), 0)
	}
}

// Refund leaves a slice that is empty after it the newest, as counters do, unless all are empty: then the key is in its
// initial state, also for a clock that steps back.
func (s *SlidingCounter) Refund(l *weir.Limit, n, taken, now int64) {
	slice, _ := s.clock(l, now)
	if s.in(l, reading) != s { // other slices, all that are kept
		l = s.by
		slice, _ = s.clock(l, math.MinInt64/2)
	}
	takeBack(s.Charges, n, func(at int64) bool {
		from := FloorDiv(at, l.Slice())
		return from == FloorDiv(taken, l.Slice()) && from >= slice-l.Slices()
	})
	if newest, _ := s.clock(l, math.MinInt64/2); s.sum(l, newest-l.Slices(), newest) == 0 {
		s.Charges = nil
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
type Leases struct{ held []lease }

func (s *Leases) Find(id string, now int64) *lease {
	for i := range s.held {
		if s.held[i].id == id && now < s.held[i].expires {
			return &s.held[i]
		}
	}
	return nil
}

func (s *Leases) used(now int64) (n int64) {
	for _, lease := range s.held {
		if now < lease.expires {
			n += lease.n
		}
	}
	return n
}

func (s *Leases) Fits(l *weir.Limit, n, now int64) bool { return s.used(now)+n <= l.Capacity() }

// Promised is Fits for later instants, as it is told at now.
func (s *Leases) Promised(now int64) func(l *weir.Limit, n, at int64) bool {
	used := s.promised(now)
	return func(l *weir.Limit, n, at int64) bool { return used(at)+n <= l.Capacity() }
}

// promised is the units that are held at later instants: of the leases that expire first 32 count with their units and
// each further one as one unit, until all have expired.
func (s *Leases) promised(now int64) func(at int64) int64 {
	live := slices.DeleteFunc(slices.Clone(s.held), func(l lease) bool { return l.expires <= now })
	slices.SortFunc(live, func(a, b lease) int {
		return cmp.Or(cmp.Compare(a.expires, b.expires), cmp.Compare(a.id, b.id))
	})
	return func(at int64) int64 {
		used := s.used(now)
		for i, lease := range live {
			switch {
			case at < lease.expires:
				return used
			case i < 32:
				used -= lease.n
			default:
				used--
			}
		}
		return 0
	}
}

// Holds reports whether a lease lives.
func (s *Leases) Holds(id string, now int64) bool { return s.Find(id, now) != nil }

func (s *Leases) Clone() Model { return &Leases{slices.Clone(s.held)} }

func (s *Leases) Fresh(_ *weir.Limit, now int64) bool {
	return !slices.ContainsFunc(s.held, func(l lease) bool { return now < l.expires })
}

func (s *Leases) Text() string {
	var text strings.Builder
	for _, lease := range s.held {
		text.WriteString(lease.id + texts(lease.n, lease.expires))
	}
	return text.String()
}

func (s *Leases) Take(l *weir.Limit, id string, n, now int64) {
	if held := s.Find(id, now); held != nil {
		n = held.n
	}
	s.keep(now, id)
	n = min(n, weir.MaxUnits-s.used(now))
	s.held = append(s.held, lease{id, n, now + l.Period()})
}

func (s *Leases) Release(id string, now int64) bool {
	if s.Find(id, now) == nil {
		return false
	}
	s.keep(now, id)
	return true
}

// keep drops the leases that ended, and one more.
func (s *Leases) keep(now int64, but string) {
	s.held = slices.DeleteFunc(s.held, func(l lease) bool { return l.expires <= now || l.id == but })
}

// Charge and refund are not used: leases are taken and released by id.
func (s *Leases) Charge(*weir.Limit, int64, int64)        {}
func (s *Leases) Refund(*weir.Limit, int64, int64, int64) {}

func texts(numbers ...int64) string {
	var text strings.Builder
	for _, n := range numbers {
		text.WriteString(strconv.FormatInt(n, 10) + " ")
	}
	return text.String()
}

func unitsText(charges []Units) string {
	var text strings.Builder
	for _, c := range charges {
		text.WriteString(texts(c.At, c.N))
	}
	return text.String()
}
