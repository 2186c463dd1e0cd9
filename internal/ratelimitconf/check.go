package ratelimitconf

import (
	"fmt"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// A report collects the mistakes of configurations.
type report struct {
	config   *Config // that is read
	problems []rules.Problem
	omitted  int
}

func newReport(c *Config) *report { return &report{config: c} }

// add adds a mistake. The field is its place in a configuration that is no file.
func (r *report) add(m Mark, field, format string, args ...any) {
	if len(r.problems) == bounds.Problems {
		r.omitted++
		return
	}
	r.problems = append(r.problems, r.problem(m, field, fmt.Sprintf(format, args...)))
}

func (r *report) problem(m Mark, field, message string) rules.Problem {
	p := rules.Problem{File: r.config.Name, Line: m.Line, Column: m.Column, Field: field, Message: message}
	if 0 < m.Line && m.Line <= len(r.config.lines) {
		p.Source = strings.TrimRight(r.config.lines[m.Line-1], "\r")
	}
	return p
}

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &rules.Error{Problems: r.problems, Omitted: r.omitted}
}

// start is the place of a mistake of a whole configuration.
func (c *Config) start() Mark {
	if len(c.lines) > 0 {
		return Mark{1, 1}
	}
	return Mark{}
}

// check checks the data of a configuration. taken has the texts of descriptors at the first level of its domain.
func (r *report) check(c *Config, taken map[string]bool) {
	r.config = c
	switch {
	case c.Domain == "":
		r.add(c.start(), "domain", "domain is missing; a configuration has a domain and descriptors")
	case c.Domain == "*":
		r.add(c.start(), "domain", `domain is "*", which in a rule is any domain; allowed: a name`)
	}
	r.checkLevel("descriptors", c.Descriptors, taken)
}

// checkLevel checks the descriptors of a level. taken has their texts.
func (r *report) checkLevel(field string, list []Descriptor, taken map[string]bool) {
	for i := range list {
		d, at := &list[i], fmt.Sprintf("%s[%d]", field, i)
		switch text := d.Text(); {
		case d.Key == "":
			r.add(d.Mark, at+".key", "key is missing; each descriptor has one")
		case taken[text]:
			r.add(d.Mark, at, "a descriptor with key %.80q and value %.80q occurs twice, or another has the same "+
				"text %.80q", d.Key, d.Value, text)
		case d.ShareThreshold && !strings.Contains(text, "*"):
			r.add(d.Mark, at+".share_threshold", "share_threshold is for a value with a wildcard; value is %.80q; "+
				"allowed: a value with *", d.Value)
		}
		taken[d.Text()] = true
		if d.Limit != nil {
			r.checkLimit(at+".rate_limit", d.Limit)
		}
		r.checkLevel(at+".descriptors", d.Descriptors, make(map[string]bool))
	}
}

// Text is the text by which the service finds the descriptor at its level.
func (d *Descriptor) Text() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

func (r *report) checkLimit(field string, l *Limit) {
	unit := strings.ToLower(l.Unit)
	_, known := seconds[unit]
	switch {
	case l.Unlimited && unit != "" && unit != "unknown":
		r.add(l.Mark, field+".unit", "unit is %.80q beside unlimited; allowed: one of the two", l.Unit)
	case !l.Unlimited && !known:
		r.add(l.Mark, field+".unit", "unit is %.80q; allowed: %s", l.Unit, strings.Join(Units, ", "))
	}
	for i, name := range l.Replaces {
		at := fmt.Sprintf("%s.replaces[%d].name", field, i)
		switch name {
		case "":
			r.add(l.Mark, at, "replaces has an element without a name; allowed: the name of another limit")
		case l.Name:
			r.add(l.Mark, at, "replaces has %.80q, the name of the limit itself; allowed: the name of another limit",
				name)
		}
	}
}

// Units are the units of limits, the shortest first.
var Units = []string{"second", "minute", "hour", "day", "week", "month", "year"}

// seconds are the lengths of units.
var seconds = map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400,
	"month": 30 * 86400, "year": 365 * 86400}
