package rules

import (
	"fmt"
	"math/big"
	"time"

	"github.com/weirproject/weir"
)

// MostIn is how many units a limit grants at most in any time so long, however the requests fall:
// docs/limits.md has the table. It is 0 of a concurrency limit, which grants none in a time.
func MostIn(limit *weir.Limit, t time.Duration) int64 {
	units := t.Microseconds()
	switch spec := limit.Spec().(type) {
	case weir.TokenBucket:
		held, period := spec.Capacity+spec.Overdraft, spec.Period.Microseconds()
		if spec.Mode == weir.Step {
			return held + scaled(spec.Refill, above(units-1, period), 1)
		}
		return held + scaled(spec.Refill, units-1, period)
	case weir.FixedWindow:
		most := windows(spec.Limit, units, spec.Window.Microseconds())
		if spec.Anchor == weir.First && (units-1)%spec.Window.Microseconds() != 0 {
			most-- // a window that is open when the time begins was opened by a unit before it
		}
		return most
	case weir.Calendar:
		return windows(spec.Limit, units, shortestPeriod(spec).Microseconds())
	case weir.SlidingLog:
		return scaled(spec.Limit, above(units, spec.Window.Microseconds()), 1)
	case weir.SlidingCounter:
		return mostOfCounter(spec, units)
	}
	return 0
}

// scaled is ⌊n × a / b⌋, or the most that there may be.
func scaled(n, a, b int64) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(a))
	if product.Quo(product, big.NewInt(b)); product.IsInt64() {
		return min(product.Int64(), weir.MaxUnits)
	}
	return weir.MaxUnits
}

// above is ⌈a / b⌉.
func above(a, b int64) int64 { return (a + b - 1) / b }

// windows is what windows grant that follow each other: in a time there are parts of one more than
// fit it.
func windows(limit, units, window int64) int64 { return scaled(limit, above(units-1, window)+1, 1) }

// mostOfCounter is the lesser of two bounds: any N slices that follow each other hold at most the
// limit when the last of them is charged; and of the slice before them as much weighs less as has
// passed of the last.
func mostOfCounter(spec weir.SlidingCounter, units int64) int64 {
	slice := spec.Window.Microseconds() / spec.Slices
	most := scaled(spec.Limit, above(above(units-1, slice)+1, spec.Slices), 1)
	if whole := spec.Window.Microseconds() - slice; units <= spec.Window.Microseconds() {
		most = min(most, spec.Limit+scaled(spec.Limit, max(0, units-whole-1), slice))
	}
	return most
}

// shortestPeriod is the shortest period that a calendar has: clocks are set forward, by an hour at most.
func shortestPeriod(spec weir.Calendar) time.Duration {
	forward := time.Hour
	if spec.Zone == "" || spec.Zone == "UTC" {
		forward = 0
	}
	switch spec.Unit {
	case weir.Minute:
		return time.Minute
	case weir.Hour:
		return time.Hour - forward/2 // some zones move by half an hour
	case weir.Day:
		return oneDay - forward
	case weir.Week:
		return 7*oneDay - forward
	case weir.Month:
		return 28*oneDay - forward
	}
	return 365*oneDay - forward
}

// PeriodOf is the time that a limit is about, such as a day for 10/1d; 0 of one that is about no
// length of time: a calendar's periods differ.
func PeriodOf(limit *weir.Limit) time.Duration {
	switch spec := limit.Spec().(type) {
	case weir.TokenBucket:
		return spec.Period
	case weir.FixedWindow:
		return spec.Window
	case weir.SlidingLog:
		return spec.Window
	case weir.SlidingCounter:
		return spec.Window
	}
	return 0
}

// LengthOf is a time in words: 24 h, 7 days, 90 s.
func LengthOf(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		word   string
		from   int64
	}{{oneDay, "days", 2}, {time.Hour, "h", 1}, {time.Minute, "min", 1}, {time.Second, "s", 1}} {
		if n := int64(d / unit.length); n >= unit.from && d%unit.length == 0 {
			return fmt.Sprint(n, " ", unit.word)
		}
	}
	return d.String()
}

const oneDay = 24 * time.Hour
