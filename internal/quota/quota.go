// Package quota says how much a limit grants, for warnings and explanations.
package quota

import (
	"fmt"
	"math/big"
	"time"

	"github.com/weirproject/weir"
)

// Most is the largest number of units that a limit grants within any time of this length: docs/limits.md has
// the table. It is 0 for a concurrency limit.
func Most(limit *weir.Limit, t time.Duration) int64 {
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
			most-- // a window that is open at the start was opened by an earlier unit
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

// scaled is ⌊n × a / b⌋, or the largest int64.
func scaled(n, a, b int64) int64 {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(a))
	if product.Quo(product, big.NewInt(b)); product.IsInt64() {
		return min(product.Int64(), weir.MaxUnits)
	}
	return weir.MaxUnits
}

// above is ⌈a / b⌉.
func above(a, b int64) int64 { return (a + b - 1) / b }

// windows bounds the units of consecutive windows: a time overlaps one more than fit into it.
func windows(limit, units, window int64) int64 { return scaled(limit, above(units-1, window)+1, 1) }

// mostOfCounter is the lesser of two bounds. N consecutive slices hold at most the limit when the last one is
// charged, and the weight of the slice before them has fallen by the part of the last one that has passed.
func mostOfCounter(spec weir.SlidingCounter, units int64) int64 {
	slice := spec.Window.Microseconds() / spec.Slices
	most := scaled(spec.Limit, above(above(units-1, slice)+1, spec.Slices), 1)
	if whole := spec.Window.Microseconds() - slice; units <= spec.Window.Microseconds() {
		most = min(most, spec.Limit+scaled(spec.Limit, max(0, units-whole-1), slice))
	}
	return most
}

// shortestPeriod is the shortest period of a calendar: clocks are set forward by at most an hour.
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

// Period is the period of a limit, such as a day for 10/1d; 0 if it has no fixed period, as a calendar.
func Period(limit *weir.Limit) time.Duration {
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

// Words is a duration in words: 24 h, 7 days, 90 s.
func Words(d time.Duration) string {
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
