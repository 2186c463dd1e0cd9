package weir

import "time"

// Bounds are the instants [start, end) of the calendar period of l that contains now.
// Where a zone's clock is set back, the hour or minute that happens twice is two
// periods, but a day (week, month, year) that was over does not come back: it stays the
// next one. Where a midnight does not exist, the day begins at the first instant after it.
func (l *Limit) Bounds(now Instant) (start, end Instant) {
	last := l.bounds.Load()
	if last != nil {
		for _, p := range last {
			if p.start <= now && now < p.end {
				return p.start, p.end
			}
		}
	}
	start, end = l.calendarBounds(now)
	periods := &calendarPeriods{{start, end}}
	if last != nil {
		periods[1] = last[0]
	}
	l.bounds.Store(periods)
	return start, end
}

type calendarPeriod struct{ start, end Instant }

// calendarPeriods are the two periods that were used last: when a period ends, each key needs
// the period of its state and the new one.
type calendarPeriods [2]calendarPeriod

func (l *Limit) calendarBounds(now Instant) (start, end Instant) {
	t := time.UnixMicro(int64(now)).In(l.zone)
	if l.unit <= Hour {
		return l.clockBounds(t)
	}
	start, end = l.dateBounds(t)
	if end <= now { // the clock was set back over midnight
		start, end = l.dateBounds(end.Time().In(l.zone))
	}
	return start, end
}

// dateBounds are the bounds of a day or a longer unit.
func (l *Limit) dateBounds(t time.Time) (start, end Instant) {
	y, m, d := t.Date()
	switch l.unit {
	case Day:
		return l.date(y, m, d), l.date(y, m, d+1)
	case Week:
		d -= (int(t.Weekday()) + 6) % 7
		return l.date(y, m, d), l.date(y, m, d+7)
	case Month:
		return l.date(y, m, 1), l.date(y, m+1, 1)
	default:
		return l.date(y, time.January, 1), l.date(y+1, time.January, 1)
	}
}

// shortest is the shortest period of a calendar in its zone. An hour is shorter only where clocks are set forward by a
// part of an hour.
func (l *Limit) shortest() time.Duration {
	switch forward := setForward(l.zone); l.unit {
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour - forward%time.Hour
	case Month:
		return 28*day - forward
	default:
		return l.unit.Length() - forward
	}
}

// setForward is the longest step forward of the zone's clocks from 2000 to 2037, the years that every
// copy of the database has. A change of a whole day skips a date and shortens no other.
func setForward(zone *time.Location) (most time.Duration) {
	end := time.Date(2038, 1, 1, 0, 0, 0, 0, zone)
	for at := time.Date(2000, 1, 1, 0, 0, 0, 0, zone); at.Before(end); {
		_, change := at.ZoneBounds()
		if change.IsZero() {
			break
		}
		_, before := at.Zone()
		_, after := change.Zone()
		if forward := time.Duration(after-before) * time.Second; forward < day {
			most = max(most, forward)
		}
		at = change
	}
	return most
}

// clockBounds are the bounds of a minute or an hour on the zone's own clock: an hour in India
// begins at the half hour of UTC. They end early where the clock is changed.
func (l *Limit) clockBounds(t time.Time) (start, end Instant) {
	length := time.Minute
	if l.unit == Hour {
		length = time.Hour
	}
	_, offset := t.Zone()
	local := t.UnixMicro() + int64(offset)*1e6
	begin := local - mod(local, length.Microseconds()) - int64(offset)*1e6
	first, last := time.UnixMicro(begin).In(l.zone), time.UnixMicro(begin+length.Microseconds()).In(l.zone)
	from, to := t.ZoneBounds() // not used where the offset stays: see date
	if _, before := first.Zone(); before != offset {
		first = from
	}
	if _, after := last.Add(-time.Microsecond).Zone(); after != offset {
		last = to
	}
	return Instant(first.UnixMicro()), Instant(last.UnixMicro())
}

// date is the first instant at which the zone's clock shows a date or a later one.
// time.Date is wrong where midnight happens twice or not at all: it may give 23:00 of the day
// before, or the second midnight.
func (l *Limit) date(y int, m time.Month, d int) Instant {
	midnight := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	t := midnight.Add(-48 * time.Hour).In(l.zone) // no clock is that far from UTC
	for {
		_, offset := t.Zone()
		_, change := t.ZoneBounds()
		if !change.IsZero() && !change.After(t) {
			// ZoneBounds takes the last day of a leap year for the first of the next, in southern zones after 2037.
			change = t.Add(24 * time.Hour)
		}
		first := midnight.Add(-time.Duration(offset) * time.Second)
		if first.Before(t) { // the clock was set forward over it
			first = t
		}
		if change.IsZero() || first.Before(change) {
			return Instant(first.UnixMicro())
		}
		t = change
	}
}

func mod(a, b int64) int64 {
	if r := a % b; r < 0 {
		return r + b
	} else {
		return r
	}
}
