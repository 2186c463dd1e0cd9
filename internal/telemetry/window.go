package telemetry

import (
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
	return window{seconds: seconds, grant: rate * float64(seconds)}
}

var calendarPeriods = map[weir.CalendarUnit]time.Duration{weir.Minute: time.Minute, weir.Hour: time.Hour,
	weir.Day: 24 * time.Hour, weir.Week: 7 * 24 * time.Hour, weir.Month: 30 * 24 * time.Hour,
	weir.Year: 365 * 24 * time.Hour}
