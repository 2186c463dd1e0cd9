package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/bounds"
)

// A window is a checked Window. Minutes are minutes of the wall clock, also on days when the clock is changed.
type window struct {
	days       [7]bool // by time.Weekday: days on which it begins
	start, end int     // minutes of the day; end ≤ start is on the next day
	zone       *time.Location
}

const day = 24 * 60 // minutes

// Scheduled reports whether the rule has a schedule: only then does Active look at the time.
func (r *Rule) Scheduled() bool { return len(r.schedule) > 0 }

// Active reports whether the rule's schedule includes this time.
func (r *Rule) Active(t time.Time) bool {
	for i := range r.schedule {
		if r.schedule[i].holds(t) {
			return true
		}
	}
	return len(r.schedule) == 0
}

func (w *window) holds(t time.Time) bool {
	t = t.In(w.zone)
	today := t.Weekday()
	minute := t.Hour()*60 + t.Minute()
	if w.start < w.end {
		return w.days[today] && w.start <= minute && minute < w.end
	}
	yesterday := (today + 6) % 7
	return w.days[today] && minute >= w.start || w.days[yesterday] && minute < w.end
}

func (b *builder) schedule(i int, given []Window) (list []window) {
	if !b.count(at(i, "schedule"), len(given), bounds.Windows) {
		return nil
	}
	for j := range given {
		list = append(list, b.window(i, fmt.Sprintf("schedule[%d].", j), &given[j]))
	}
	return list
}

func (b *builder) window(i int, field string, s *Window) window {
	w := window{end: day, zone: time.UTC}
	if len(s.Days) == 0 && s.Hours == "" && !b.has(at(i, field+"days")) && !b.has(at(i, field+"hours")) {
		b.add(at(i, strings.TrimSuffix(field, ".")), "%s has neither days nor hours; for always leave the schedule "+
			"out", strings.TrimSuffix(field, "."))
	}
	b.days(at(i, field+"days"), s.Days, &w)
	if s.Hours != "" {
		complaint := ""
		if w.start, w.end, complaint = parseHours(s.Hours); complaint != "" {
			b.add(at(i, field+"hours"), "hours is %.80q; allowed: %s", s.Hours, complaint)
		}
	}
	if s.Zone != "" {
		w.zone = b.zone(at(i, field+"zone"), s.Zone)
	}
	return w
}

// zone loads a time zone once for all rules, because it is in a file.
func (b *builder) zone(p place, name string) *time.Location {
	if zone, ok := b.zones[name]; ok {
		return zone
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		b.add(p, "zone is %.80q; allowed: an IANA time zone known to this machine, such as Europe/Berlin or UTC", name)
		return time.UTC
	}
	b.zones[name] = zone
	return zone
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (b *builder) days(p place, given []string, w *window) {
	b.count(p, len(given), bounds.Values)
	if len(given) == 0 {
		w.days = [7]bool{true, true, true, true, true, true, true}
	}
	for j, text := range given {
		if text == "" && b.has(place{p.rule, p.field, j}) {
			continue
		}
		if complaint := w.addDays(text); complaint != "" {
			b.add(place{p.rule, p.field, j}, "days has %.80q; %s", text, complaint)
		}
	}
}

// addDays reads mon, or mon-fri; sat-mon includes Sunday.
func (w *window) addDays(text string) (complaint string) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	from, to := slices.Index(weekdays, first), slices.Index(weekdays, last)
	if from < 0 || to < 0 {
		return oneOf(text, []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}) + ", " +
			"or from one to another: mon-fri"
	}
	for d := from; ; d = (d + 1) % 7 {
		if w.days[d] {
			return weekdays[d] + " occurs twice"
		}
		w.days[d] = true
		if d == to {
			return ""
		}
	}
}

// parseHours reads 09:00-18:00, 22:00-06:00 or 18:00-24:00.
func parseHours(text string) (start, end int, allowed string) {
	from, to, ok := strings.Cut(text, "-")
	start, ok1 := parseMinute(strings.TrimSpace(from))
	end, ok2 := parseMinute(strings.TrimSpace(to))
	switch {
	case !ok || !ok1 || !ok2 || start == day:
		return 0, day, "from 00:00 to 24:00, such as 09:00-18:00, or 22:00-06:00 into the next day"
	case start == end:
		return 0, day, "an end that is not its beginning; 00:00-24:00 is all day"
	}
	return start, end, ""
}

func parseMinute(text string) (minute int, ok bool) {
	if len(text) != 5 || text[2] != ':' || strings.ContainsAny(text, "+-") {
		return 0, false
	}
	h, err := strconv.Atoi(text[:2])
	m, err2 := strconv.Atoi(text[3:])
	minute = h*60 + m
	return minute, err == nil && err2 == nil && m < 60 && minute <= day
}
