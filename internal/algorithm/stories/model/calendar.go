package model

import (
	"fmt"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// A period is the instants of one name.
type period struct{ start, end int64 }

// walked has the periods of calendars that were walked through lately: a search asks for the same ones thousands of
// times, and walking is what takes the model's time.
var walked = struct {
	sync.Mutex
	periods map[weir.Calendar][]period
}{periods: make(map[weir.Calendar][]period)}

const maxWalked = 16 // periods of a calendar

func calendarPeriod(c weir.Calendar, at int64) (start, end int64) {
	walked.Lock()
	defer walked.Unlock()
	c = weir.Calendar{Unit: c.Unit, Zone: c.Zone}
	known := walked.periods[c]
	for _, p := range known {
		if p.start <= at && at < p.end {
			return p.start, p.end
		}
	}
	start, end = walkPeriod(c, at)
	if len(known) == maxWalked {
		known = known[:0]
	}
	walked.periods[c] = append(known, period{start, end})
	return start, end
}

// walkPeriod walks from an instant in both directions until its name in the zone's calendar changes.
func walkPeriod(c weir.Calendar, at int64) (start, end int64) {
	zone, err := time.LoadLocation(c.Zone)
	if err != nil {
		panic(err) // weir.NewLimit has loaded it
	}
	name := func(at int64) string { return periodName(c.Unit, time.UnixMicro(at).In(zone)) }
	stride := int64(3600e6) // shorter than any period
	switch {
	case c.Unit <= weir.Hour:
		stride = 60e6
	case c.Unit >= weir.Month:
		stride = 20 * 24 * 3600e6
	}
	here := name(at)
	start = at - walk(stride, func(d int64) bool { return name(at-d) == here })
	return start, at + walk(stride, func(d int64) bool { return name(at+d) == here }) + 1
}

// walk is the largest d with same(d): by strides, then by halves of the last one.
func walk(stride int64, same func(d int64) bool) int64 {
	low := int64(0)
	for same(low + stride) {
		low += stride
	}
	return low + First(func(d int64) bool { return !same(low + d + 1) })
}

func periodName(unit weir.CalendarUnit, t time.Time) string {
	switch unit {
	case weir.Minute:
		return t.Format("2006-01-02 15:04 -0700")
	case weir.Hour:
		return t.Format("2006-01-02 15 -0700")
	case weir.Day:
		return t.Format("2006-01-02")
	case weir.Week:
		year, week := t.ISOWeek() // begins on Monday
		return fmt.Sprint(year, "W", week)
	case weir.Month:
		return t.Format("2006-01")
	}
	return t.Format("2006")
}
