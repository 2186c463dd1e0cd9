package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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

// errNoRequest is a line that is part of the format and no request.
var errNoRequest = errors.New("no request")

// request reads a line into r.
func (f *format) request(line string, d *draft, r *Record) error {
	d.begin(r)
	if err := f.read(line, d); err != nil {
		return err
	}
	return d.finish()
}

// Formats are the names that Options.Format may have, without nginx: and apache:.
func Formats() (names []string) {
	for _, f := range allFormats() {
		names = append(names, f.name)
	}
	return names
}

// candidates are the formats that the options allow.
func candidates(o Options) ([]format, error) {
	if len(o.Map) > 0 {
		if o.Format != "" && o.Format != "auto" && o.Format != "json" {
			return nil, fmt.Errorf("the format is %s; only json has a map of values", o.Format)
		}
		f, err := mappedJSON(o.Map)
		return []format{f}, err
	}
	server, text, found := strings.Cut(o.Format, ":")
	if compile := serverFormats[server]; found && compile != nil {
		t, err := compile(text)
		if err != nil {
			return nil, fmt.Errorf("format %q: %w", o.Format, err)
		}
		return []format{{name: server, timeIs: t.timeIs(End), read: t.read}}, nil
	}
	list := allFormats()
	if o.Format == "" || o.Format == "auto" {
		return list, nil
	}
	list = slices.DeleteFunc(list, func(f format) bool { return f.name != o.Format })
	if len(list) == 0 {
		return nil, fmt.Errorf("the format %q is not known; allowed are auto, %s, nginx:FORMAT, apache:FORMAT",
			o.Format, strings.Join(Formats(), ", "))
	}
	return list, nil
}

// serverFormats are the servers whose formats are given as their configuration has them.
var serverFormats = map[string]func(text string) (*template, error){"nginx": nginxFormat, "apache": apacheFormat}

func allFormats() (list []format) {
	for _, f := range textFormats {
		list = append(list, f.format())
	}
	list = append(list, format{name: "cloudfront", prepare: cloudFront})
	for _, f := range jsonFormats {
		list = append(list, format{name: f.name, prepare: f.format})
	}
	return list
}

// timeIs is Start if the pattern has it, or the duration.
func (t *template) timeIs(otherwise TimeIs) TimeIs {
	if slices.ContainsFunc(t.tokens, func(k token) bool { return startsKnown(k.field) }) {
		return Start
	}
	return otherwise
}

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
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return found, best, fmt.Errorf("the format of %s is not known; tried were %s", excerpt(sample[0]),
		strings.Join(names, ", "))
}

// excerpt is the beginning of a line in quotes.
func excerpt(line string) string { return strconv.Quote(line[:min(len(line), longestExample)]) }

// try reads lines.
func (f *format) try(sample []string, d *draft) (r reading) {
	var record Record
	r.earliest = math.MaxInt64
	d.clock.unit, d.clock.previous, d.clock.second = 0, 0, ""
	for _, line := range sample {
		err := f.request(line, d, &record)
		switch {
		case err == nil:
			r.lines++
			r.earliest = min(r.earliest, record.Time)
		case err == errNotHTTP || err == errNoRequest:
			r.lines++
		case r.why == nil:
			r.why, r.line = err, line
		}
	}
	if r.earliest == math.MaxInt64 {
		r.earliest = 0
	}
	r.resolution = cmp.Or(d.clock.unit, time.Second)
	return r
}
