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

// mostOfCounter is for the most slices that the time touches, and for one less, which may be longer in the last.
func mostOfCounter(spec weir.SlidingCounter, units int64) int64 {
	slice := spec.Window.Microseconds() / spec.Slices
	touched := above(units-1, slice) + 1
	elapsed := max(0, units-2-(touched-2)*slice) // of the last slice, if the first is touched at its end
	return max(mostInSlices(spec, touched, elapsed, slice), mostInSlices(spec, touched-1, slice-1, slice))
}

// mostInSlices is the most in consecutive slices. Any N of them hold at most the limit when the last one is charged,
// and the weight of the slice before these has fallen by the part of the last one that has elapsed.
func mostInSlices(spec weir.SlidingCounter, touched, elapsed, slice int64) int64 {
	if touched <= spec.Slices {
		return spec.Limit
	}
	last := spec.Limit + scaled(spec.Limit, elapsed, slice) // of N slices and the one before
	return min(weir.MaxUnits, last+scaled(spec.Limit, above(touched-1-spec.Slices, spec.Slices), 1))
}

// shortestPeriod is the shortest period of a calendar in its zone. An hour is shorter only where clocks are set
// forward by a part of one.
func shortestPeriod(spec weir.Calendar) time.Duration {
	forward := setForward(spec.Zone)
	switch spec.Unit {
	case weir.Minute:
		return time.Minute
	case weir.Hour:
		return time.Hour - forward%time.Hour
	case weir.Day:
		return oneDay - forward
	case weir.Week:
		return 7*oneDay - forward
	case weir.Month:
		return 28*oneDay - forward
	}
	return 365*oneDay - forward
}

// setForward is the longest time by which clocks of the zone are set forward from 2000 to 2037, the years that every
// copy of the database has. A change of a whole day skips a date and shortens no other.
func setForward(name string) (most time.Duration) {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.Hour // the limit would not have been made
	}
	end := time.Date(2038, 1, 1, 0, 0, 0, 0, zone)
	for at := time.Date(2000, 1, 1, 0, 0, 0, 0, zone); at.Before(end); {
		_, change := at.ZoneBounds()
		if change.IsZero() {
			break
		}
		_, before := at.Zone()
		_, after := change.Zone()
		if forward := time.Duration(after-before) * time.Second; forward < oneDay {
			most = max(most, forward)
		}
		at = change
	}
	return most
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
