package telemetry

import (
	"math/bits"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A window is the time in which the use of a rule's first limit is measured, and what the limit grants in it. A
// bucket is measured in the time in which it fills. So use is that of a fixed window of this length, which is an
// approximation for the other algorithms.
type window struct {
	seconds int64   // 0: there is none, as for a concurrency limit
	grant   float64 // units in a window
	base    int64   // units in the limit's period, as in its text
}

func windowOf(rule *rules.Rule) window {
	var units, most int64
	var period time.Duration
	switch spec := rule.Limits()[0].Spec().(type) {
	case weir.TokenBucket:
		units, most, period = spec.Refill, spec.Capacity+spec.Overdraft, spec.Period
	case weir.FixedWindow:
		units, most, period = spec.Limit, spec.Limit, spec.Window
	case weir.SlidingLog:
		units, most, period = spec.Limit, spec.Limit, spec.Window
	case weir.SlidingCounter:
		units, most, period = spec.Limit, spec.Limit, spec.Window
	case weir.Calendar:
		units, most, period = spec.Limit, spec.Limit, calendarPeriods[spec.Unit]
	default:
		return window{}
	}
	rate := float64(units) / period.Seconds()
	seconds := max(1, int64(float64(most)/rate+0.5))
	return window{seconds: seconds, grant: rate * float64(seconds), base: units}
}

var calendarPeriods = map[weir.CalendarUnit]time.Duration{weir.Minute: time.Minute, weir.Hour: time.Hour,
	weir.Day: 24 * time.Hour, weir.Week: 7 * 24 * time.Hour, weir.Month: 30 * 24 * time.Hour,
	weir.Year: 365 * 24 * time.Hour}

// A demand is a histogram of what keys asked for in a window. A bucket is at most an eighth of its lower bound wide,
// and holds the sum of its values, so that a bucket is computed with its mean.
type demand [demandBuckets]struct{ windows, units float64 }

const demandBuckets = 8 * 24 // the last one has 2^25 and more

func demandBucket(units uint64) int {
	if units < 8 {
		return int(units)
	}
	power := bits.Len64(units) - 1
	return min((power-2)*8+int(units>>(power-3)&7), demandBuckets-1)
}

func (d *demand) add(units uint64, weight float64) {
	b := &d[demandBucket(units)]
	b.windows += weight
	b.units += weight * float64(units)
}
