package weir

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

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
// and refuses a request that would overflow it. It is a continuous token bucket whose level
// is counted from the other end.
func LeakyMeter(size, leak int64, period time.Duration) TokenBucket {
	return GCRA(size, leak, period)
}

// LeakyQueue is the leaky bucket as a queue, which shapes: one unit leaves each
// period/leak, up to queue units wait their turn, more are refused. A granted caller
// sleeps Decision.Delay ([Limiter.Wait] does), so that callers leave evenly spaced. One that
// cancels frees its place only if no caller was granted after it.
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
	l.refill = s.Refill
	l.period = period
	l.overdraft = s.Overdraft
	l.step = s.Mode == Step
	ok := false
	l.interval, _ = timesRatio(1, period, s.Refill)
	l.span, ok = timesRatio(s.Capacity+s.Overdraft, period, s.Refill)
	if l.step {
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

// Anchor says where the windows of a [FixedWindow] begin.
type Anchor uint8

const (
	// First opens a window at the first charge: each key has windows of its own.
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
	return l.window(s.Limit, s.Window)
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
	l.algorithm = AlgorithmSlidingLog
	return l.window(s.Limit, s.Window)
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

// defaultSlices are those of a SlidingCounter without a number, also in text.
const defaultSlices = 10

func (s SlidingCounter) compile(l *Limit) error {
	l.algorithm = AlgorithmSlidingCounter
	if err := l.window(s.Limit, s.Window); err != nil {
		return err
	}
	n := s.count()
	if n < 1 || n > MaxSlices || l.period%n != 0 {
		return invalid("slices", n,
			fmt.Sprintf("1 to %d, dividing the window of %s", MaxSlices, duration(s.Window)))
	}
	l.slices, l.slice = n, l.period/n
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

var calendarUnits = [...]string{"none", "minute", "hour", "day", "week", "month", "year"}

// String is the unit's word: "minute" to "year".
func (u CalendarUnit) String() string {
	if int(u) < len(calendarUnits) {
		return calendarUnits[u]
	}
	return "unit(" + strconv.Itoa(int(u)) + ")"
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
	return count("limit", s.Limit, 1)
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
	{7 * 24 * time.Hour, "w"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"},
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
