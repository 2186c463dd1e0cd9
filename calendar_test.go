package weir_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// zones have what makes calendars hard: a midnight that does not exist (São Paulo), one
// that happens twice (Havana), offsets of half hours (Kolkata), a change of half an hour
// (Lord Howe), a date that never was (Apia, 30 December 2011).
var zones = []string{
	"", "America/Sao_Paulo", "America/Havana", "America/New_York", "Asia/Kolkata",
	"Australia/Lord_Howe", "Europe/Berlin", "Pacific/Apia",
}

var units = []weir.CalendarUnit{weir.Minute, weir.Hour, weir.Day, weir.Week, weir.Month, weir.Year}

func micros(t time.Time) weir.Instant { return weir.Instant(t.UnixMicro()) }

func calendar(tb testing.TB, unit weir.CalendarUnit, zone string) (*weir.Limit, *time.Location) {
	tb.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		tb.Fatal(err)
	}
	return weir.MustLimit("quota", weir.Calendar{Limit: 1, Unit: unit, Zone: zone}), location
}

// period tells the calendar period that a zone's clock shows at t from every other. An
// hour that happens twice is two.
func period(t time.Time, unit weir.CalendarUnit) [6]int {
	y, m, d := t.Date()
	switch unit {
	case weir.Minute, weir.Hour:
		_, offset := t.Zone()
		minute := t.Minute()
		if unit == weir.Hour {
			minute = 0
		}
		return [6]int{y, int(m), d, t.Hour(), minute, offset}
	case weir.Day:
		return [6]int{y, int(m), d}
	case weir.Week:
		y, week := t.ISOWeek()
		return [6]int{y, week}
	case weir.Month:
		return [6]int{y, int(m)}
	default:
		return [6]int{y}
	}
}

// slowBounds walks from now to where the name of the period changes, a step at a time.
func slowBounds(now time.Time, unit weir.CalendarUnit) (start, end weir.Instant) {
	step := 15 * time.Minute
	if unit == weir.Minute {
		step = time.Minute
	}
	name := period(now, unit)
	first := now.Truncate(step)
	for period(first.Add(-step), unit) == name {
		first = first.Add(-step)
	}
	last := now.Truncate(step).Add(step)
	for period(last, unit) == name {
		last = last.Add(step)
	}
	return micros(first), micros(last)
}

func checkBounds(t *testing.T, limit *weir.Limit, unit weir.CalendarUnit, now time.Time) {
	t.Helper()
	start, end := limit.Bounds(micros(now))
	wantStart, wantEnd := slowBounds(now, unit)
	if start != wantStart || end != wantEnd {
		in := now.Location()
		t.Fatalf("the %v of %v: got [%v, %v), want [%v, %v)", unit, now,
			start.Time().In(in), end.Time().In(in), wantStart.Time().In(in), wantEnd.Time().In(in))
	}
}

func TestBoundsAreThoseOfTheZonesClock(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	from := time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range zones {
		for _, unit := range units {
			limit, location := calendar(t, unit, zone)
			many := 200
			if unit == weir.Year { // a year has many quarter hours
				many = 12
			}
			for range many {
				now := from.Add(time.Duration(random.Int64N(int64(25 * 365 * 24 * time.Hour))))
				checkBounds(t, limit, unit, now.In(location))
			}
		}
	}
}

func TestBoundsWhereTheClockIsChanged(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, zone := range zones {
		for _, unit := range units[:5] {
			limit, location := calendar(t, unit, zone)
			for _, change := range changes(location, 2005, 2030) {
				for range 6 {
					off := time.Duration(random.Int64N(int64(50*time.Hour))) - 25*time.Hour
					checkBounds(t, limit, unit, change.Add(off))
				}
				checkBounds(t, limit, unit, change)
				checkBounds(t, limit, unit, change.Add(-time.Microsecond))
			}
		}
	}
}

// TestBoundsAtTheEndOfYears: beyond a zone's table of changes, which ends in 2037, time.ZoneBounds is wrong on the last
// day of leap years where it is summer. A calendar limit must neither hang nor end its periods early.
func TestBoundsAtTheEndOfYears(t *testing.T) {
	for _, zone := range []string{"Australia/Sydney", "Australia/Adelaide", "America/Santiago", "Europe/Berlin"} {
		for _, unit := range units[:5] {
			limit, location := calendar(t, unit, zone)
			for _, year := range []int{2037, 2038, 2040, 2041} {
				for off := -36 * time.Hour; off < 36*time.Hour; off += 30 * time.Minute {
					checkBounds(t, limit, unit, time.Date(year, 12, 31, 0, 0, 0, 1000, time.UTC).Add(off).In(location))
				}
			}
		}
	}
}

// changes are the instants at which a zone's clock is changed.
func changes(location *time.Location, from, to int) (at []time.Time) {
	t := time.Date(from, 1, 1, 0, 0, 0, 0, location)
	for {
		_, next := t.ZoneBounds()
		if next.IsZero() || next.Year() >= to {
			return at
		}
		at = append(at, next)
		t = next
	}
}

func TestBoundsMeetEachOther(t *testing.T) {
	hard := append([]string{"America/St_Johns", "Pacific/Kwajalein", "Africa/Monrovia"}, zones...)
	for _, zone := range hard {
		for _, unit := range units {
			limit, location := calendar(t, unit, zone)
			for _, change := range changes(location, 1965, 2030) {
				for _, off := range []time.Duration{-26 * time.Hour, -time.Hour, -time.Microsecond, 0,
					59 * time.Minute, 25 * time.Hour} {
					checkChain(t, limit, micros(change.Add(off)))
				}
			}
		}
	}
}

// checkChain: now lies in its period, and its neighbours begin and end where it does.
func checkChain(t *testing.T, limit *weir.Limit, now weir.Instant) {
	t.Helper()
	start, end := limit.Bounds(now)
	if now < start || now >= end {
		t.Fatalf("%v: %v lies outside its bounds [%v, %v)", limit, now.Time(), start.Time(), end.Time())
	}
	if next, _ := limit.Bounds(end); next != end {
		t.Fatalf("%v: after [%v, %v) comes one that begins at %v", limit, start.Time(), end.Time(), next.Time())
	}
	if _, before := limit.Bounds(start - 1); before != start {
		t.Fatalf("%v: before [%v, %v) comes one that ends at %v", limit, start.Time(), end.Time(), before.Time())
	}
}

func TestBoundsOfKnownDays(t *testing.T) {
	for _, test := range []struct {
		zone, now  string
		unit       weir.CalendarUnit
		start, end string
	}{
		{"", "2026-03-02T05:06:07Z", weir.Minute, "2026-03-02T05:06:00Z", "2026-03-02T05:07:00Z"},
		{"", "2026-03-08T05:00:00Z", weir.Week, "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"},
		{"", "2024-02-10T05:00:00Z", weir.Month, "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"", "1969-12-31T23:59:59.999999Z", weir.Year, "1969-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
		// 23 and 25 hours
		{"Europe/Berlin", "2026-03-29T12:00:00+02:00", weir.Day, "2026-03-29T00:00:00+01:00",
			"2026-03-30T00:00:00+02:00"},
		{"Europe/Berlin", "2026-10-25T12:00:00+01:00", weir.Day, "2026-10-25T00:00:00+02:00",
			"2026-10-26T00:00:00+01:00"},
		// The clock was changed on another 31st, or 1st, some months before.
		{"Europe/Berlin", "2024-05-31T12:00:00+02:00", weir.Day, "2024-05-31T00:00:00+02:00",
			"2024-06-01T00:00:00+02:00"},
		{"America/New_York", "2026-12-24T12:00:00-05:00", weir.Month, "2026-12-01T00:00:00-05:00",
			"2027-01-01T00:00:00-05:00"},
		// no midnight; two midnights
		{"America/Sao_Paulo", "2018-11-04T12:00:00-02:00", weir.Day, "2018-11-04T01:00:00-02:00",
			"2018-11-05T00:00:00-02:00"},
		{"America/Havana", "2026-11-01T12:00:00-05:00", weir.Day, "2026-11-01T00:00:00-04:00",
			"2026-11-02T00:00:00-05:00"},
		// The hour that happens twice is two.
		{"Europe/Berlin", "2026-10-25T02:30:00+02:00", weir.Hour, "2026-10-25T02:00:00+02:00",
			"2026-10-25T02:00:00+01:00"},
		{"Asia/Kolkata", "2026-10-25T02:40:00+05:30", weir.Hour, "2026-10-25T02:00:00+05:30",
			"2026-10-25T03:00:00+05:30"},
		// 30 December 2011 never was.
		{"Pacific/Apia", "2011-12-29T23:59:59-10:00", weir.Day, "2011-12-29T00:00:00-10:00",
			"2011-12-31T00:00:00+14:00"},
		// At 00:01 the clock was set back to 23:01 of a day that was over: it does not come back.
		{"America/St_Johns", "2010-11-06T23:30:00-03:30", weir.Day, "2010-11-07T00:00:00-02:30",
			"2010-11-08T00:00:00-03:30"},
	} {
		limit, location := calendar(t, test.unit, test.zone)
		start, end := limit.Bounds(micros(instant(t, test.now)))
		if start != micros(instant(t, test.start)) || end != micros(instant(t, test.end)) {
			t.Errorf("the %v of %v in %q: got [%v, %v), want [%v, %v)", test.unit, test.now, test.zone,
				start.Time().In(location), end.Time().In(location), test.start, test.end)
		}
	}
}

func instant(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

func TestBoundsDoNotDependOnEarlierCalls(t *testing.T) {
	limit, _ := calendar(t, weir.Day, "Europe/Berlin")
	now := micros(instant(t, "2026-05-01T12:00:00+02:00"))
	start, end := limit.Bounds(now)
	limit.Bounds(end)
	limit.Bounds(start - 1)
	if again, until := limit.Bounds(now); again != start || until != end {
		t.Errorf("got [%v, %v), at first [%v, %v)", again.Time(), until.Time(), start.Time(), end.Time())
	}
}
