package weir

import (
	"math/bits"
	"strconv"
	"time"
)

// A Spec is the numbers of a limit, as plain data: [TokenBucket], [FixedWindow],
// [Calendar], [SlidingLog], [SlidingCounter] or [Concurrency]. ParseLimit reads its String.
type Spec interface {
	String() string
	// compile checks the numbers and fills l with them.
	compile(l *Limit) error
	// most is the largest number of units that l, which has the spec, grants within any us microseconds; 0 if there is
	// no bound.
	most(l *Limit, us int64) int64
	// with is the spec with other units a period; a burst and an overdraft change in proportion.
	with(units int64) Spec
	// rated is a spec of the algorithm, or the one nearest to it, with this rate and no burst.
	rated(units int64, period time.Duration) Spec
	// shares are specs of 1/nodes of the limit, the best first. Counts are rounded up. NewLimit may refuse one.
	shares(nodes int64) []Spec
	// within reports whether the spec refuses every request that the other one refuses, if both are charged alike.
	within(other Spec) bool
}

// A descriptor has the properties of an algorithm, whatever its numbers.
type descriptor struct {
	units   returning
	example string // of the limit's text
	forms   []form // the first one is the algorithm's name
}

// A form is a first word of limits, the options after the numbers, and the function that reads these.
type form struct {
	word, options string
	parse         func(*limitParser) Spec
}

// returning says how the units of a limit return.
type returning uint8

const (
	_        returning = iota
	byTime             // with time, whichever were charged: a unit that is given back may have returned already
	byWindow           // all at the end of a window
	byCharge           // each a fixed time after its charge, of which the state has the instant
	bySlice            // the same, but the state has sums of charges
	byLease            // when their lease is released or expires
)

// String is the algorithm's word: "token_bucket", "fixed_window", ….
func (a Algorithm) String() string {
	switch words := a.Words(); {
	case a == 0:
		return "none"
	case words == nil:
		return "algorithm(" + strconv.Itoa(int(a)) + ")"
	default:
		return words[0]
	}
}

// Words are the first words of limits of the algorithm for ParseLimit, its name first. They are nil for a
// number that no algorithm has: the algorithms have the numbers from 1 without a gap.
func (a Algorithm) Words() (words []string) {
	if int(a) < len(descriptors) {
		for _, f := range descriptors[a].forms {
			words = append(words, f.word)
		}
	}
	return words
}

// Example is the text of a limit of the algorithm.
func (a Algorithm) Example() string {
	if int(a) < len(descriptors) {
		return descriptors[a].example
	}
	return ""
}

// Leases reports whether the algorithm's limits have leases.
func (a Algorithm) Leases() bool { return int(a) < len(descriptors) && descriptors[a].units == byLease }

// Leases reports whether units are held under leases until these are released or expire, as of a [Concurrency].
func (l *Limit) Leases() bool { return l.units == byLease }

// Refills reports whether units return with time, whichever were charged, as of a [TokenBucket].
func (l *Limit) Refills() bool { return l.units == byTime }

// Windowed reports whether all units return together, at the end of a window.
func (l *Limit) Windowed() bool { return l.units == byWindow }

// Itemized reports whether a state has each charge and its instant: a repeated refund has no effect.
func (l *Limit) Itemized() bool { return l.units == byCharge }

// CountsFor is how long a unit counts after its charge at most, in microseconds, where units return one by one; else 0.
func (l *Limit) CountsFor() int64 { return l.counts }

// Units is the first number of the limit's text: units a period, or units held at once.
func (l *Limit) Units() int64 {
	if l.units == byTime {
		return l.refill
	}
	return l.capacity
}

// Length is the period, in microseconds; of a calendar the usual length of its unit.
func (l *Limit) Length() int64 {
	if l.unit != 0 {
		return l.unit.Length().Microseconds()
	}
	return l.period
}

// MostIn is the largest number of units that the limit grants within any time of this length. It is 0 for a
// [Concurrency], which no time bounds.
func (l *Limit) MostIn(t time.Duration) int64 { return l.spec.most(l, max(1, t.Microseconds())) }

// Envelope bounds the units that the limit grants within any time t: most + units × t/period, whatever the instants.
// All are 0 for a [Concurrency].
func (l *Limit) Envelope() (most, units int64, period time.Duration) {
	switch {
	case l.units == byLease:
		return 0, 0, 0
	case l.unit != 0:
		period = l.shortest()
	default:
		period = time.Duration(l.period) * time.Microsecond
	}
	return l.peak, l.Units(), period
}

// WithUnits is the limit's spec with other units a period. A burst and an overdraft change in proportion.
func (l *Limit) WithUnits(units int64) Spec { return l.spec.with(units) }

// WithRate is a spec that counts as the limit does, at another rate and without a burst. Instead of a calendar it is a
// [FixedWindow] since the epoch, as a calendar has no such period.
func (l *Limit) WithRate(units int64, period time.Duration) Spec { return l.spec.rated(units, period) }

// Share is one node's part of the limit where nodes share it, under the same name. It is rounded up, so that a node
// grants at least one unit. Where no share is a valid limit, it is the limit.
func (l *Limit) Share(nodes int64) *Limit {
	for _, spec := range l.spec.shares(nodes) {
		if share, err := NewLimit(l.name, spec); err == nil {
			return share
		}
	}
	return l
}

// Within reports whether the limit surely refuses every request that the other one refuses, if both are charged alike:
// it starts with no more units, and gains no more over time.
func (l *Limit) Within(other *Limit) bool { return l.spec == other.spec || l.spec.within(other.spec) }

// part is n divided by nodes, rounded up.
func part(n, nodes int64) int64 { return n/nodes + min(n%nodes, 1) }

// above is ⌈a / b⌉.
func above(a, b int64) int64 { return (a + b - 1) / b }

// scaled is ⌊n × a / b⌋ of numbers ≥ 0, at most MaxUnits.
func scaled(n, a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	if hi >= uint64(b) {
		return MaxUnits
	}
	quotient, _ := bits.Div64(hi, lo, uint64(b))
	return int64(min(quotient, MaxUnits))
}

// inPeriods bounds the units of consecutive windows: a time overlaps one more than fit into it.
func inPeriods(limit, us, window int64) int64 { return scaled(limit, above(us-1, window)+1, 1) }
