package weir

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Algorithm names how a limit counts. State lives under (name, algorithm, key).
type Algorithm uint8

// The algorithms. Their texts are the words of ParseLimit and of rule files.
const (
	_ Algorithm = iota // the zero Algorithm is none: the zero Limit is refused
	AlgorithmTokenBucket
	AlgorithmFixedWindow
	AlgorithmCalendar
	AlgorithmSlidingLog
	AlgorithmSlidingCounter
	AlgorithmConcurrency

	// The algorithms of a [Fair] limit, by the limit that is shared.
	AlgorithmFairWindow
	AlgorithmFairCalendar
	AlgorithmFairConcurrency

	algorithms // how many numbers there are
)

// descriptors say of each algorithm how its limits are written and how their units return. Its numbers are methods of
// its Spec. memstore and redisstore have a table of the same length.
var descriptors = [algorithms]descriptor{
	AlgorithmTokenBucket: {units: byTime, example: "100/1m", forms: []form{
		{"token_bucket", "burst N, overdraft N, step", (*limitParser).tokenBucket},
		{"gcra", "burst N, overdraft N, step", (*limitParser).tokenBucket},
		{"leaky_bucket", "burst N, overdraft N, step", (*limitParser).tokenBucket},
		{"leaky_queue", "queue N", (*limitParser).leakyQueue},
	}},
	AlgorithmFixedWindow: {units: byWindow, example: "fixed_window 100/1h", forms: []form{
		{"fixed_window", "first or epoch", (*limitParser).fixedWindow},
	}},
	AlgorithmCalendar: {units: byWindow, example: "calendar 1000/day", forms: []form{
		{"calendar", "in ZONE", (*limitParser).calendar},
	}},
	AlgorithmSlidingLog: {units: byCharge, example: "sliding_log 5/1m", forms: []form{
		{"sliding_log", "", (*limitParser).slidingLog},
	}},
	AlgorithmSlidingCounter: {units: bySlice, example: "sliding_counter 100/1m slices 60", forms: []form{
		{"sliding_counter", "slices N", (*limitParser).slidingCounter},
	}},
	AlgorithmConcurrency: {units: byLease, example: "concurrency 20 ttl 30s", forms: []form{
		{"concurrency", "retry_after DURATION", (*limitParser).concurrency},
	}},
	AlgorithmFairWindow: {units: byWindow, example: "fair_fixed_window 100/1h above 50", forms: []form{
		{"fair_fixed_window", "first or epoch, above N, keys N", fair((*limitParser).fixedWindow)},
	}},
	AlgorithmFairCalendar: {units: byWindow, example: "fair_calendar 1000/day above 50", forms: []form{
		{"fair_calendar", "in ZONE, above N, keys N", fair((*limitParser).calendar)},
	}},
	AlgorithmFairConcurrency: {units: byLease, example: "fair_concurrency 20 ttl 30s above 80", forms: []form{
		{"fair_concurrency", "retry_after DURATION, above N, keys N", fair((*limitParser).concurrency)},
	}},
}

// RefillMode says how a token bucket refills.
type RefillMode uint8

const (
	// Continuous adds units evenly: one each Period/Refill.
	Continuous RefillMode = iota
	// Step adds Refill units at once, a whole Period after the bucket stopped being full.
	Step
)

// A TokenBucket holds up to Capacity units, refilled at Refill a Period; a fresh one is
// full. Each grant takes its cost. With an Overdraft the level may go that far below
// zero: a borrower passes at once, and the callers after it wait.
//
// The most it grants in any time t is Capacity + Overdraft + ⌊(t − 1 µs) × Refill/Period⌋
// (Step: Refill × ⌈(t − 1 µs)/Period⌉ for the last term).
//
// One state serves the whole family: see [GCRA], [LeakyMeter], [LeakyQueue] and [Throttle].
type TokenBucket struct {
	Capacity  int64         // units, 1 to 2^52
	Refill    int64         // units a Period, 1 to 2^52
	Period    time.Duration // 1 µs or more, whole microseconds
	Overdraft int64         // units, 0 or more
	Mode      RefillMode
}

// PerSecond, PerMinute, PerHour and PerDay are token buckets of n units, refilled
// continuously at n a period.
func PerSecond(n int64) TokenBucket { return TokenBucket{Capacity: n, Refill: n, Period: time.Second} }

// PerMinute is a token bucket of n units, refilled continuously at n a minute.
func PerMinute(n int64) TokenBucket { return TokenBucket{Capacity: n, Refill: n, Period: time.Minute} }

// PerHour is a token bucket of n units, refilled continuously at n an hour.
func PerHour(n int64) TokenBucket { return TokenBucket{Capacity: n, Refill: n, Period: time.Hour} }

// PerDay is a token bucket of n units, refilled continuously at n each 24 hours. For the
// day of a calendar see [Calendar].
func PerDay(n int64) TokenBucket {
	return TokenBucket{Capacity: n, Refill: n, Period: 24 * time.Hour}
}

// GCRA is the generic cell rate algorithm (ITU-T I.371, virtual scheduling): bursts of
// burst units, refill units a period. It is a continuous token bucket.
func GCRA(burst, refill int64, period time.Duration) TokenBucket {
	return TokenBucket{Capacity: burst, Refill: refill, Period: period}
}

// Borrowing is a token bucket with pre-consumption: it may go overdraft units below empty,
// and the Delay of a decision is the time until the borrowed units are refilled.
func Borrowing(capacity, refill int64, period time.Duration, overdraft int64) TokenBucket {
	return TokenBucket{Capacity: capacity, Refill: refill, Period: period, Overdraft: overdraft}
}

// LeakyMeter is the leaky bucket as a meter: it holds size units, leaks leak a period,
// and refuses a request that would overflow it. It is a continuous token bucket with a level
// that is counted from the other end.
func LeakyMeter(size, leak int64, period time.Duration) TokenBucket {
	return GCRA(size, leak, period)
}

// LeakyQueue is the leaky bucket as a queue, which shapes: one unit leaves each
// period/leak, up to queue units wait their turn, more are refused. A granted caller
// sleeps Decision.Delay ([Limiter.Wait] does), so that callers leave evenly spaced. A caller
// that cancels frees its place only if no caller was granted after it.
func LeakyQueue(leak int64, period time.Duration, queue int64) TokenBucket {
	return TokenBucket{Capacity: 1, Refill: leak, Period: period, Overdraft: queue}
}

// Throttle is the limit of redis-cell's CL.THROTTLE key maxBurst count period.
// A maxBurst of 2^52 or more, or below 0, is refused by NewLimit.
func Throttle(maxBurst, count int64, period time.Duration) TokenBucket {
	if maxBurst > MaxUnits { // keep the sum from wrapping; NewLimit refuses it
		maxBurst = MaxUnits
	}
	return TokenBucket{Capacity: maxBurst + 1, Refill: count, Period: period}
}

func (s TokenBucket) compile(l *Limit) error {
	period, err := whole("period", s.Period)
	if err != nil {
		return err
	}
	err = firstError(
		count("capacity", s.Capacity, 1),
		count("refill", s.Refill, 1),
		count("overdraft", s.Overdraft, 0),
		count("capacity + overdraft", s.Capacity+s.Overdraft, 1),
	)
	if err != nil {
		return err
	}
	if s.Mode > Step {
		return invalid("mode", s.Mode, "Continuous or Step")
	}
	l.algorithm = AlgorithmTokenBucket
	l.capacity = s.Capacity
	l.peak = s.Capacity + s.Overdraft
	l.refill = s.Refill
	l.period = period
	l.overdraft = s.Overdraft
	l.step = s.Mode == Step
	ok := false
	l.interval, _ = timesRatio(1, period, s.Refill)
	l.span, ok = timesRatio(s.Capacity+s.Overdraft, period, s.Refill)
	if l.step {
		l.peak += s.Refill // a step comes at once, after a time in which the full bucket gained nothing
		periods := (s.Capacity + s.Overdraft + s.Refill - 1) / s.Refill
		hi, lo := bits.Mul64(uint64(periods), uint64(period))
		ok = hi == 0 && lo <= MaxUnits
	}
	if !ok {
		return invalid("capacity", s.Capacity, fmt.Sprintf("a bucket that refills within 2^52us (about 142 years): "+
			"at %d each %v, capacity + overdraft must be smaller", s.Refill, s.Period))
	}
	return nil
}

// String is "COUNT/PERIOD [burst N] [overdraft N] [step]".
func (s TokenBucket) String() string {
	text := rate(s.Refill, s.Period)
	if s.Capacity != s.Refill {
		text += " burst " + strconv.FormatInt(s.Capacity, 10)
	}
	if s.Overdraft != 0 {
		text += " overdraft " + strconv.FormatInt(s.Overdraft, 10)
	}
	if s.Mode == Step {
		text += " step"
	}
	return text
}

func (s TokenBucket) most(l *Limit, us int64) int64 {
	held := l.capacity + l.overdraft
	if l.step {
		return held + scaled(l.refill, above(us-1, l.period), 1)
	}
	return held + scaled(l.refill, us-1, l.period)
}

func (s TokenBucket) with(units int64) Spec {
	proportional := func(n int64) int64 { return int64(math.Round(float64(n) * float64(units) / float64(s.Refill))) }
	if s.Capacity > 1 {
		s.Capacity = max(1, proportional(s.Capacity))
	}
	s.Overdraft = proportional(s.Overdraft)
	s.Refill = units
	return s
}

func (s TokenBucket) rated(units int64, period time.Duration) Spec {
	return TokenBucket{Capacity: units, Refill: units, Period: period, Mode: s.Mode}
}

// shares divide the rate by a longer period, which is exact. The last one keeps the period, for buckets that would take
// longer than 142 years to fill: their refill hardly matters.
func (s TokenBucket) shares(nodes int64) []Spec {
	s.Capacity, s.Overdraft = part(s.Capacity, nodes), part(s.Overdraft, nodes)
	slower := s
	slower.Period = longer(s.Period, nodes, 1)
	if s.Mode == Step {
		// A whole step at once would be more than the share holds, and be lost.
		refill := s.Refill
		s.Refill = part(refill, nodes)
		slower.Refill, slower.Period = s.Refill, longer(s.Period, nodes*s.Refill, refill)
	}
	return []Spec{slower, s}
}

// longer is d × times/by, rounded up to a microsecond; 0, which is no valid period, if that is too long.
func longer(d time.Duration, times, by int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d.Microseconds()), uint64(times))
	if hi >= uint64(by) {
		return 0
	}
	quotient, rest := bits.Div64(hi, lo, uint64(by))
	if quotient >= MaxUnits {
		return 0
	}
	return time.Duration(int64(quotient)+min(int64(rest), 1)) * time.Microsecond
}

// Buckets that gain in steps do so at times that depend on when they were full last, so they are not comparable.
func (s TokenBucket) within(other Spec) bool {
	b, ok := other.(TokenBucket)
	if !ok || s.Capacity > b.Capacity || s.Overdraft > b.Overdraft || s.Mode == Step || b.Mode == Step {
		return false
	}
	hi1, lo1 := bits.Mul64(uint64(s.Refill), uint64(b.Period))
	hi2, lo2 := bits.Mul64(uint64(b.Refill), uint64(s.Period))
	return hi1 < hi2 || hi1 == hi2 && lo1 <= lo2
}

// Anchor says where the windows of a [FixedWindow] begin.
type Anchor uint8

const (
	// First opens a window at the first charge: each key has its own windows.
	First Anchor = iota
	// Epoch opens windows at multiples of their length since the Unix epoch: the windows of
	// all keys begin together.
	Epoch
)

// A FixedWindow grants Limit units in each window [start, start + Window). Any other
// interval of that length may see up to 2 × Limit − 1 (First) or 2 × Limit (Epoch).
type FixedWindow struct {
	Limit  int64         // units, 1 to 2^52
	Window time.Duration // 1 µs or more, whole microseconds
	Anchor Anchor
}

func (s FixedWindow) compile(l *Limit) error {
	if s.Anchor > Epoch {
		return invalid("anchor", s.Anchor, "First or Epoch")
	}
	l.algorithm, l.anchor = AlgorithmFixedWindow, s.Anchor
	l.peak = 2 * s.Limit // all units of a window at its end, and all of the next one
	return l.window(s.Limit, s.Window)
}

func (s FixedWindow) most(l *Limit, us int64) int64 {
	most := inPeriods(l.capacity, us, l.period)
	if l.anchor == First && (us-1)%l.period != 0 {
		most-- // a window that is open at the start was opened by an earlier unit
	}
	return most
}

func (s FixedWindow) with(units int64) Spec { return s.rated(units, s.Window) }

func (s FixedWindow) rated(units int64, period time.Duration) Spec {
	return FixedWindow{Limit: units, Window: period, Anchor: s.Anchor}
}

func (s FixedWindow) shares(nodes int64) []Spec { return []Spec{s.with(part(s.Limit, nodes))} }

func (s FixedWindow) within(other Spec) bool {
	b, ok := other.(FixedWindow)
	return ok && s.Window == b.Window && s.Anchor == b.Anchor && s.Limit <= b.Limit
}

func (l *Limit) window(limit int64, window time.Duration) error {
	period, err := whole("window", window)
	if err != nil {
		return err
	}
	l.capacity, l.period = limit, period
	return count("limit", limit, 1)
}

// String is "fixed_window COUNT/WINDOW [epoch]".
func (s FixedWindow) String() string {
	text := "fixed_window " + rate(s.Limit, s.Window)
	if s.Anchor == Epoch {
		text += " epoch"
	}
	return text
}

// A SlidingLog grants at most Limit units in every half-open window (t − Window, t]:
// exact, at the price of remembering each grant of the last Window.
type SlidingLog struct {
	Limit  int64         // units, 1 to 2^52
	Window time.Duration // 1 µs or more, whole microseconds
}

func (s SlidingLog) compile(l *Limit) error {
	l.algorithm, l.peak = AlgorithmSlidingLog, s.Limit
	err := l.window(s.Limit, s.Window)
	l.counts = l.period
	return err
}

func (s SlidingLog) most(l *Limit, us int64) int64 { return scaled(l.capacity, above(us, l.period), 1) }

func (s SlidingLog) with(units int64) Spec { return s.rated(units, s.Window) }

func (s SlidingLog) rated(units int64, period time.Duration) Spec {
	return SlidingLog{Limit: units, Window: period}
}

func (s SlidingLog) shares(nodes int64) []Spec { return []Spec{s.with(part(s.Limit, nodes))} }

func (s SlidingLog) within(other Spec) bool {
	b, ok := other.(SlidingLog)
	return ok && s.Window >= b.Window && s.Limit <= b.Limit
}

// String is "sliding_log COUNT/WINDOW".
func (s SlidingLog) String() string { return "sliding_log " + rate(s.Limit, s.Window) }

// A SlidingCounter counts in Slices slices of the window and one before them, which
// fades out evenly. Slices = 1 is the two-counter approximation of CDNs; 10 or 60 come, on
// average, ever closer to a SlidingLog at constant memory. No window of W − W/Slices sees
// more than Limit; one of W may see nearly twice that, if callers time their requests for it.
type SlidingCounter struct {
	Limit  int64         // units, 1 to 2^52
	Window time.Duration // 1 µs or more, whole microseconds, a multiple of Slices
	Slices int64         // 1 to MaxSlices; 0 is 10
}

// MaxSlices is the largest number of slices of a SlidingCounter.
const MaxSlices = 100

// defaultSlices are the slices of a SlidingCounter without a number, also in text.
const defaultSlices = 10

func (s SlidingCounter) compile(l *Limit) error {
	l.algorithm, l.peak = AlgorithmSlidingCounter, 2*s.Limit
	if err := l.window(s.Limit, s.Window); err != nil {
		return err
	}
	n := s.count()
	if n < 1 || n > MaxSlices || l.period%n != 0 {
		return invalid("slices", n,
			fmt.Sprintf("1 to %d, dividing the window of %s", MaxSlices, duration(s.Window)))
	}
	l.slices, l.slice = n, l.period/n
	l.counts = l.period + l.slice
	slice := l.slice
	for _, tick := range []int64{1, 1_000, 1_000_000} {
		hi, lo := bits.Mul64(uint64(s.Limit), uint64(slice/tick))
		if slice%tick == 0 && hi == 0 && lo <= MaxUnits {
			l.tick = tick
			return nil
		}
	}
	return invalid("limit", s.Limit, fmt.Sprintf("limit × slice at most 2^52: with slices of %s use a smaller limit, "+
		"more slices, or slices of whole seconds", duration(s.Window/time.Duration(n))))
}

// String is "sliding_counter COUNT/WINDOW slices N".
func (s SlidingCounter) String() string {
	return "sliding_counter " + rate(s.Limit, s.Window) + " slices " + strconv.FormatInt(s.count(), 10)
}

// most is for the most slices that the time touches, and for one less, which may be longer in the last.
func (s SlidingCounter) most(l *Limit, us int64) int64 {
	touched := above(us-1, l.slice) + 1
	elapsed := max(0, us-2-(touched-2)*l.slice) // of the last slice, if the first is touched at its end
	return max(mostInSlices(l, touched, elapsed), mostInSlices(l, touched-1, l.slice-1))
}

// mostInSlices is the most in consecutive slices. Any N of them hold at most the limit when the last one is charged,
// and the weight of the slice before these has fallen by the part of the last one that has elapsed.
func mostInSlices(l *Limit, touched, elapsed int64) int64 {
	if touched <= l.slices {
		return l.capacity
	}
	last := l.capacity + scaled(l.capacity, elapsed, l.slice) // of N slices and the one before
	return min(MaxUnits, last+scaled(l.capacity, above(touched-1-l.slices, l.slices), 1))
}

func (s SlidingCounter) with(units int64) Spec { return s.rated(units, s.Window) }

func (s SlidingCounter) rated(units int64, period time.Duration) Spec {
	return SlidingCounter{Limit: units, Window: period, Slices: s.Slices}
}

func (s SlidingCounter) shares(nodes int64) []Spec { return []Spec{s.with(part(s.Limit, nodes))} }

func (s SlidingCounter) within(other Spec) bool {
	b, ok := other.(SlidingCounter)
	return ok && s.Window == b.Window && s.Slices == b.Slices && s.Limit <= b.Limit
}

func (s SlidingCounter) count() int64 {
	if s.Slices == 0 {
		return defaultSlices
	}
	return s.Slices
}

// Concurrency grants Limit units held at once. Each holder has a lease that ends when it is
// released, or TTL after it was taken or last renewed: the units of a dead holder come back.
type Concurrency struct {
	Limit      int64         // units, 1 to 2^52
	TTL        time.Duration // 1 µs or more, whole microseconds
	RetryAfter time.Duration // what refused clients are told, at most TTL; 0: the usual time held, see [Limit.Advice]
}

func (s Concurrency) compile(l *Limit) error {
	ttl, err := whole("ttl", s.TTL)
	if err != nil {
		return err
	}
	if s.RetryAfter < 0 || s.RetryAfter > s.TTL || s.RetryAfter%time.Microsecond != 0 {
		return invalid("retry_after", s.RetryAfter, "whole microseconds up to the ttl, "+duration(s.TTL))
	}
	l.algorithm, l.capacity, l.period = AlgorithmConcurrency, s.Limit, ttl
	return count("limit", s.Limit, 1)
}

// String is "concurrency COUNT ttl DURATION", and "retry_after DURATION" if it is set.
func (s Concurrency) String() string {
	text := "concurrency " + strconv.FormatInt(s.Limit, 10) + " ttl " + duration(s.TTL)
	if s.RetryAfter != 0 {
		text += " retry_after " + duration(s.RetryAfter)
	}
	return text
}

func (s Concurrency) most(*Limit, int64) int64 { return 0 }

func (s Concurrency) with(units int64) Spec {
	s.Limit = units
	return s
}

func (s Concurrency) rated(units int64, _ time.Duration) Spec { return s.with(units) }

func (s Concurrency) shares(nodes int64) []Spec { return []Spec{s.with(part(s.Limit, nodes))} }

func (s Concurrency) within(other Spec) bool {
	b, ok := other.(Concurrency)
	return ok && s.TTL == b.TTL && s.Limit <= b.Limit
}

// CalendarUnit is the period of a [Calendar].
type CalendarUnit uint8

// The periods of a calendar. Weeks begin on Monday.
const (
	Minute CalendarUnit = iota + 1
	Hour
	Day
	Week
	Month
	Year
)

const day = 24 * time.Hour

var calendarUnits = [...]struct {
	word   string
	length time.Duration
}{{"none", 0}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", day}, {"week", 7 * day}, {"month", 30 * day},
	{"year", 365 * day}}

// String is the unit's word: "minute" to "year".
func (u CalendarUnit) String() string {
	if int(u) < len(calendarUnits) {
		return calendarUnits[u].word
	}
	return "unit(" + strconv.Itoa(int(u)) + ")"
}

// Length is the usual length of the unit: of a month 30 days, of a year 365. It is 0 for other numbers.
func (u CalendarUnit) Length() time.Duration {
	if int(u) < len(calendarUnits) {
		return calendarUnits[u].length
	}
	return 0
}

// A Calendar grants Limit units in each minute, hour, day, week, month or year of a time
// zone: a day has 23, 24 or 25 hours there, a month 28 to 31 days. The store's clock
// chooses the period.
type Calendar struct {
	Limit int64 // units, 1 to 2^52
	Unit  CalendarUnit
	Zone  string // an IANA name such as "Europe/Berlin"; "" is UTC
}

func (s Calendar) compile(l *Limit) error {
	if s.Unit < Minute || s.Unit > Year {
		return invalid("unit", s.Unit, "Minute, Hour, Day, Week, Month or Year")
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil || s.Zone == "Local" {
		return invalid("zone", s.Zone, `an IANA time zone known to this machine, such as "Europe/Berlin"; "" is UTC`)
	}
	l.algorithm, l.capacity, l.unit, l.zone = AlgorithmCalendar, s.Limit, s.Unit, zone
	l.anchor, l.peak = Epoch, 2*s.Limit
	return count("limit", s.Limit, 1)
}

func (s Calendar) most(l *Limit, us int64) int64 {
	return inPeriods(l.capacity, us, l.shortest().Microseconds())
}

func (s Calendar) with(units int64) Spec {
	s.Limit = units
	return s
}

func (s Calendar) rated(units int64, period time.Duration) Spec {
	return FixedWindow{Limit: units, Window: period, Anchor: Epoch}
}

func (s Calendar) shares(nodes int64) []Spec { return []Spec{s.with(part(s.Limit, nodes))} }

func (s Calendar) within(other Spec) bool {
	b, ok := other.(Calendar)
	return ok && s.Unit == b.Unit && s.Zone == b.Zone && s.Limit <= b.Limit
}

// String is "calendar COUNT/UNIT [in ZONE]".
func (s Calendar) String() string {
	text := "calendar " + strconv.FormatInt(s.Limit, 10) + "/" + s.Unit.String()
	if s.Zone != "" {
		text += " in " + s.Zone
	}
	return text
}

// rate is "COUNT/PERIOD".
func rate(n int64, period time.Duration) string {
	return strconv.FormatInt(n, 10) + "/" + duration(period)
}

var durationUnits = []struct {
	unit time.Duration
	word string
}{
	{7 * day, "w"}, {day, "d"}, {time.Hour, "h"}, {time.Minute, "m"},
	{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}, {time.Nanosecond, "ns"},
}

// duration is one number and one unit, the largest that divides: "90s", "1d".
func duration(d time.Duration) string {
	for _, u := range durationUnits {
		if d != 0 && d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.word
		}
	}
	return "0s"
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// words splits a limit's text; commas are spaces.
func words(text string) []string { return strings.Fields(strings.ReplaceAll(text, ",", " ")) }
