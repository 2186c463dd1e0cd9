package accesslog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A format reads lines.
type format struct {
	name   string
	timeIs TimeIs
	read   func(line string, d *draft) error
	// prepare, if not nil, is the format for the lines of a sample; false is that they have another one.
	prepare func(sample []string) (format, bool)
}

// request reads a line into r.
func (f *format) request(line string, d *draft, r *Record) error {
	d.begin(r)
	if err := f.read(line, d); err != nil {
		return err
	}
	return d.finish()
}

// Formats are the names that Options.Format may have.
func Formats() (list []string) {
	for i := range rows {
		list = append(list, rows[i].name)
	}
	return list
}

// candidates are the formats that the options allow.
func candidates(o Options) (list []format, err error) {
	found := o.Format == "" || o.Format == "auto"
	switch {
	case o.Map != "" && !found && o.Format != "json":
		return nil, fmt.Errorf("the format is %s; only json has a map of values", o.Format)
	case o.Map != "":
		f, err := mapped(o.Map)
		return []format{f}, err
	case strings.ContainsAny(o.Format, "$%"):
		f, err := compile(strings.TrimSpace(o.Format))
		if err != nil {
			return nil, fmt.Errorf("format %q: %w", o.Format, err)
		}
		return []format{f.format(End)}, nil
	}
	for i := range rows {
		if found || rows[i].name == o.Format {
			list = append(list, rows[i].format())
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the format %q is not known; allowed are auto, %s, and a template of nginx ($) or "+
			"Apache (%%)", o.Format, strings.Join(Formats(), ", "))
	}
	return list, nil
}

// format compiles a row. Its errors are mistakes of the table; each call of Open compiles all rows.
func (r *row) format() format {
	if r.places != "" {
		list, err := parsePlaces(r.places)
		if err != nil {
			panic(err)
		}
		return format{name: r.name, prepare: func(sample []string) (format, bool) {
			return jsonFormat(r.name, list, r.timeIs, sample)
		}}
	}
	t, err := compile(r.template)
	if err != nil {
		panic(err)
	}
	t.open, t.name = r.open, r.name
	return t.format(r.timeIs)
}

func startsKnown(f field) bool { return f == start || f >= took && f <= tookNanos }

// A reading is how well a format reads lines.
type reading struct {
	lines      int // those that have the format, HTTP or not
	earliest   int64
	resolution time.Duration
	why        error  // a line is not read
	line       string // the first such
}

// detect is the format that reads the most lines, and at least half of them.
func detect(formats []format, sample []string, d *draft) (found format, best reading, err error) {
	for _, f := range formats {
		if f.prepare != nil {
			prepared, ok := f.prepare(sample)
			if !ok {
				continue
			}
			f = prepared
		}
		if r := f.try(sample, d); r.lines > best.lines || best.lines == 0 {
			found, best = f, r
		}
	}
	if best.lines*2 >= len(sample) {
		return found, best, nil
	}
	if len(formats) == 1 && best.why != nil {
		return found, best, fmt.Errorf("of the first %d lines, %d have the format %s: %w in %s", len(sample),
			best.lines, formats[0].name, best.why, excerpt(best.line))
	}
	tried := make([]string, len(formats))
	for i, f := range formats {
		tried[i] = f.name
	}
	return found, best, fmt.Errorf("the format of %s is not known; tried were %s", excerpt(sample[0]),
		strings.Join(tried, ", "))
}

// excerpt is the beginning of a line in quotes.
func excerpt(line string) string { return strconv.Quote(line[:min(len(line), maxExample)]) }

// try reads lines.
func (f *format) try(sample []string, d *draft) (r reading) {
	var record Record
	times := []int64{}
	d.clock.unit, d.clock.second = 0, ""
	for _, line := range sample {
		err := f.request(line, d, &record)
		switch {
		case err == nil:
			r.lines++
			times = append(times, record.Time)
		case err == errNotHTTP:
			r.lines++
		case r.why == nil:
			r.why, r.line = err, line
		}
	}
	if len(times) > 0 {
		r.earliest = slices.Min(times)
	}
	r.resolution = cmp.Or(d.clock.unit, time.Second)
	return r
}
