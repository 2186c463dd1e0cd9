package rules

import (
	"maps"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// A cost is a checked Cost.
type cost struct {
	units       int64 // fixed, or the default
	fixed       bool
	fromRequest bool
	source      source // of the attribute
	name        string
	most        int64
	settle      string

	by    *component // nil: the cost is the same for all values
	table map[string]int64
}

// Cost is the number of units of a request that does not state its cost.
func (r *Rule) Cost() int64 { return r.cost.units }

// FixedCost reports whether the rule's cost is a number: then neither a caller nor Settle changes it.
func (r *Rule) FixedCost() bool { return r.cost.fixed }

// ChargesFull reports whether the rule grants while anything is left, and charges the whole cost.
func (r *Rule) ChargesFull() bool { return r.full }

// Described reports whether the rule's match or key names a descriptor.
func (r *Rule) Described() bool { return r.described }

// Settle names the part of a response that states the actual cost: the canonical name of a header or trailer, "bytes"
// for the length of its body, or "" if no part does.
func (r *Rule) Settle() string { return r.cost.settle }

// CostOf is the number of units of a request. The error is a *weir.InputError: the stated cost is invalid or
// over the rule's maximum. It is not reduced to the maximum: that would be a way around the limit.
func (r *Rule) CostOf(request *Request) (int64, error) {
	c := &r.cost
	if c.by != nil {
		return c.ofValue(request), nil
	}
	if !c.fromRequest {
		return c.units, nil
	}
	text := request.attribute(c.source, c.name)
	if text == "" {
		return c.units, nil
	}
	units, ok := decimal(text)
	if !ok || units < 1 || units > c.most {
		return 0, &weir.InputError{Field: c.source.String() + " " + c.name,
			Given:   strings.Clone(text[:min(len(text), bounds.Text)]),
			Allowed: "a whole number from 1 to " + strconv.FormatInt(c.most, 10) + ", in decimal digits"}
	}
	return units, nil
}

// ofValue is the cost that the table has for the request.
func (c *cost) ofValue(request *Request) int64 {
	var buffer [bounds.Text]byte
	if units, ok := c.table[c.by.text(buffer[:0], request)]; ok {
		return units
	}
	return c.units
}

// decimal reads digits only. strconv would accept signs and leading zeros, which other readers of the same
// header may not.
func decimal(text string) (n int64, ok bool) {
	if text == "" || len(text) > 16 || text[0] == '0' {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(text[i]-'0')
	}
	return n, true
}

// needs is the largest number of units that must be left for a request to pass.
func (r *Rule) needs() int64 {
	if r.full {
		return 1
	}
	return max(r.cost.units, r.cost.most)
}

func (b *builder) cost(i int, rule *Spec) cost {
	s := &rule.Cost
	c := cost{units: max(1, s.Units, s.Default), fixed: s.Units != 0, settle: b.settle(at(i, "cost.settle"), s.Settle)}
	b.units(at(i, "cost"), s.Units)
	b.units(at(i, "cost.default"), s.Default)
	b.units(at(i, "cost.max"), s.Max)
	b.costBy(i, rule, &c)
	if c.fixed && (s.From != "" || s.Default != 0 || s.Max != 0 || s.Settle != "" || s.By != "") {
		b.add(at(i, "cost"), "cost is a number, or says where it comes from; it cannot be both")
	}
	maximum := at(i, "cost.max")
	if s.From == "" {
		if s.Max != 0 && !b.has(at(i, "cost.from")) {
			b.add(maximum, "cost.max bounds the value of cost.from, which is missing")
		}
		return c
	}
	b.from(at(i, "cost.from"), s.From, &c)
	c.most = s.Max
	switch {
	case s.Max == 0 && !b.has(maximum):
		b.add(at(i, "cost.from"), "cost.max is missing: the most that a request may say of itself, such as max: 1000")
	case s.Max > 0 && s.Default > s.Max:
		b.add(at(i, "cost.default"), "cost.default is %d, over cost.max, which is %d", s.Default, s.Max)
	}
	return c
}

// costBy reads the cost of each value of a component.
func (b *builder) costBy(i int, rule *Spec, c *cost) {
	s := &rule.Cost
	switch by := at(i, "cost.by"); {
	case s.By == "" && len(s.Each) > 0 && !b.has(by):
		b.add(at(i, "cost.each"), "cost.each has the cost of each value of cost.by, which is missing")
		return
	case s.By == "":
		return
	case s.From != "":
		b.add(by, "cost.by does not go with cost.from: the cost has one origin")
	case len(s.Each) == 0 && !b.has(at(i, "cost.each")):
		b.add(by, "cost.each is missing: the values of %s with their cost, such as each: {search: 5}", s.By)
	}
	b.count(at(i, "cost.each"), len(s.Each), bounds.Values)
	if list := b.key(at(i, "cost.by"), []string{s.By}, rule.Match.Path); len(list) == 1 {
		c.by, c.table = &list[0], maps.Clone(s.Each)
	}
	for value, units := range s.Each {
		b.units(at(i, "cost.each."+value), units)
		c.most = max(c.most, units)
	}
}

func (b *builder) units(p place, n int64) {
	if n < 0 || n > weir.MaxUnits {
		b.add(p, "%s is %d; allowed: 1 to 4503599627370496 (2^52)", p.field, n)
	}
}

// from reads the name of the attribute where requests state their cost.
func (b *builder) from(p place, text string, c *cost) {
	kind, name, _ := strings.Cut(text, ".")
	source, _ := sourceOf(kind, true)
	if source != sourceHeader && source != sourceQuery && source != sourceDescriptor || !validAttribute(name) {
		b.add(p, "cost.from is %.80q; allowed: header.NAME, query.NAME or descriptor.NAME", text)
		return
	}
	c.fromRequest, c.source, c.name = true, source, name
	if source == sourceHeader {
		c.name = canonical(name)
	}
}

func (b *builder) settle(p place, text string) string {
	if text == "" || text == "bytes" {
		return text
	}
	name, ok := strings.CutPrefix(text, "header.")
	if !ok || !validAttribute(name) {
		b.add(p, "cost.settle is %.80q; allowed: header.NAME for a field of the response, or bytes for the length of "+
			"its body", text)
	}
	return canonical(name)
}
