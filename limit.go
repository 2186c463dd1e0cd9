package weir

import (
	"hash/fnv"
	"math"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"
)

// A Limit is a Spec that was checked and given a name. It is immutable.
//
// State lives under the limit's name, its algorithm and the key. The numbers may therefore
// change between deploys, or differ between nodes for a while, and the units used so far stay
// counted. Two limits of one store with the same name and algorithm share their state.
//
// The methods besides Name, Spec and String serve stores: the numbers as whole microseconds and
// units.
type Limit struct {
	name      string
	hash      uint64
	spec      Spec
	algorithm Algorithm
	units     returning
	step      bool
	anchor    Anchor

	capacity  int64 // bucket: most units held; otherwise: units allowed
	period    int64 // µs: refill period, window, or time-to-live
	refill    int64
	overdraft int64
	interval  Ratio // bucket: µs a unit
	span      Ratio // bucket: (capacity + overdraft) × interval
	slices    int64
	slice     int64 // period / slices
	tick      int64
	unit      CalendarUnit
	zone      *time.Location
	bounds    atomic.Pointer[calendarPeriods] // the calendar periods that were used last
	hold      meanHold

	whole   *Limit // of a Fair limit: what its members share
	above   int64  // units that any member is granted
	maxKeys int64

	peak   int64 // most units that are granted between any two neighboring instants
	counts int64 // µs for which a unit counts after its charge; 0 where units do not return one by one
}

// A Ratio is an exact number of microseconds: Whole + Num/Den, 0 ≤ Num < Den.
type Ratio struct{ Whole, Num, Den int64 }

// MaxName is the longest name of a limit, in bytes.
const MaxName = 128

// NewLimit checks a spec and names it. The name is 1 to MaxName letters, digits and
// "._-": it also serves as a metric label and in a key of Redis.
func NewLimit(name string, spec Spec) (*Limit, error) {
	if !validName(name) {
		return nil, invalid("name", name, "1 to 128 of a-z A-Z 0-9 and . _ -")
	}
	if spec == nil {
		return nil, invalid("spec", "nil", "a spec, such as PerMinute(100) or a SlidingLog")
	}
	limit := &Limit{name: name, spec: spec}
	if err := spec.compile(limit); err != nil {
		return nil, err
	}
	limit.finish()
	return limit, nil
}

// finish fills in what follows from the name and the algorithm.
func (l *Limit) finish() {
	l.units = descriptors[l.algorithm].units
	name64 := fnv.New64a()
	name64.Write([]byte(l.name))
	l.hash = name64.Sum64() + uint64(l.algorithm)*0x9e3779b97f4a7c15
}

// MustLimit is NewLimit for limits written in the program: it panics where NewLimit
// would return an error.
func MustLimit(name string, spec Spec) *Limit {
	limit, err := NewLimit(name, spec)
	if err != nil {
		panic(err)
	}
	return limit
}

func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return false
		}
	}
	return len(name) > 0 && len(name) <= MaxName
}

// Name is the limit's name.
func (l *Limit) Name() string { return l.name }

// Spec is the spec that the limit was made of.
func (l *Limit) Spec() Spec { return l.spec }

// String is the spec's text, as ParseLimit reads it.
func (l *Limit) String() string { return l.spec.String() }

// Algorithm says how the limit counts.
func (l *Limit) Algorithm() Algorithm { return l.algorithm }

// Hash is a hash of the name and the algorithm: equal for limits that share their state, and
// the same in every process.
func (l *Limit) Hash() uint64 { return l.hash }

// SameState reports whether two limits share their state: one name, one algorithm.
func (l *Limit) SameState(other *Limit) bool {
	return l == other || l.hash == other.hash && l.algorithm == other.algorithm && l.name == other.name
}

// Capacity is C of a bucket, L of a window, and the number of units of a concurrency limit.
func (l *Limit) Capacity() int64 { return l.capacity }

// Most is the largest cost that can ever be granted: C + D of a bucket, else Capacity.
func (l *Limit) Most() int64 { return l.capacity + l.overdraft }

// Overdraft is D of a bucket, 0 elsewhere.
func (l *Limit) Overdraft() int64 { return l.overdraft }

// Refill is R of a bucket: units a period.
func (l *Limit) Refill() int64 { return l.refill }

// Period is a bucket's refill period, a window's length or a lease's time-to-live, in
// microseconds. It is 0 for a calendar: see Bounds.
func (l *Limit) Period() int64 { return l.period }

// Step reports whether a bucket refills by whole periods.
func (l *Limit) Step() bool { return l.step }

// Interval is T/R of a continuous bucket: how long one unit takes to refill.
func (l *Limit) Interval() *Ratio { return &l.interval }

// Span is (C + D) × T/R of a continuous bucket: how far its full instant may lie ahead.
func (l *Limit) Span() *Ratio { return &l.span }

// Anchor says where a fixed window begins.
func (l *Limit) Anchor() Anchor { return l.anchor }

// Slices is N of a sliding counter.
func (l *Limit) Slices() int64 { return l.slices }

// Slice is S = W/N of a sliding counter, in microseconds.
func (l *Limit) Slice() int64 { return l.slice }

// Tick is the grain, in microseconds, of a sliding counter's clock, which is floored to it.
func (l *Limit) Tick() int64 { return l.tick }

// whole turns a period into microseconds.
func whole(field string, d time.Duration) (int64, error) {
	if d < time.Microsecond || d%time.Microsecond != 0 || d.Microseconds() > MaxUnits {
		return 0, invalid(field, d, "a whole number of microseconds, from 1us to 2^52us (about 142 years)")
	}
	return d.Microseconds(), nil
}

func count(field string, n, least int64) error {
	if n < least || n > MaxUnits {
		return invalid(field, n, strconv.FormatInt(least, 10)+" to 4503599627370496 (2^52)")
	}
	return nil
}

// timesRatio is n × a/b in lowest terms; ok is false where it exceeds MaxUnits.
func timesRatio(n, a, b int64) (r Ratio, ok bool) {
	g := gcd(a, b)
	a, b = a/g, b/g
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	if hi >= uint64(b) {
		return Ratio{}, false
	}
	quotient, rest := bits.Div64(hi, lo, uint64(b))
	if quotient > MaxUnits || quotient == MaxUnits && rest > 0 {
		return Ratio{}, false
	}
	return Ratio{Whole: int64(quotient), Num: int64(rest), Den: b}, true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Times is n × r, saturated at the largest whole number of microseconds that keeps
// arithmetic in int64 (2^61): more than any limit spans.
func (r *Ratio) Times(n int64) (wholes, num int64) {
	if r.Num == 0 {
		hi, lo := bits.Mul64(uint64(n), uint64(r.Whole))
		if hi != 0 || lo > math.MaxInt64/4 {
			return math.MaxInt64 / 4, 0
		}
		return int64(lo), 0
	}
	// (Whole × Den + Num) × n / Den, with Whole × n and Num × n / Den computed separately: the
	// second is below n.
	hi, lo := bits.Mul64(uint64(n), uint64(r.Whole))
	fraction, rest := bits.Div64(mulDiv(n, r.Num, r.Den))
	if hi != 0 || lo > math.MaxInt64/4 || fraction > math.MaxInt64/4 {
		return math.MaxInt64 / 4, 0
	}
	return int64(lo) + int64(fraction), int64(rest)
}

// mulDiv is a × b over c, as bits.Div64 takes it. b < c keeps it from overflowing.
func mulDiv(a, b, c int64) (hi, lo, y uint64) {
	hi, lo = bits.Mul64(uint64(a), uint64(b))
	return hi, lo, uint64(c)
}
