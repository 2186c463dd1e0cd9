package rules

import (
	"maps"
	"math/big"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// A cost is a checked Cost.
type cost struct {
	units      int64 // fixed, or the default
	fixed      bool
	from       sum // nil: the request does not state it
	most       int64
	deny       bool // of a request without it
	settle     sum  // nil: the response does not state it
	settleText string

	by    *component // nil: the cost is the same for all values
	table map[string]int64

	learn *learned // nil: the estimate is as stated
}

// Cost is the number of units of a request that does not state its cost.
func (r *Rule) Cost() int64 { return r.cost.units }

// FixedCost reports whether the rule's cost is a number: then neither a caller nor Settle changes it.
func (r *Rule) FixedCost() bool { return r.cost.fixed }

// ChargesFull reports whether the rule grants while anything is left, and charges the whole cost.
func (r *Rule) ChargesFull() bool { return r.full }

// Described reports whether the rule's match or key names a descriptor.
func (r *Rule) Described() bool { return r.described }

// Settle is the part of a response that states the actual cost, as the file writes it; "" if no part does.
func (r *Rule) Settle() string { return r.cost.settleText }

// CostOf is the number of units of a request; stated is false if it is the default in place of a cost that the request
// does not state. The error is a *weir.InputError: the stated cost is invalid, over the rule's maximum, or missing in
// a rule that denies this. It is not reduced to the maximum, unless the response settles it: that would be a way around
// the limit.
func (r *Rule) CostOf(request *Request) (units int64, stated bool, err error) {
	c := &r.cost
	if c.by != nil {
		return c.ofValue(request), true, nil
	}
	if c.from == nil {
		return c.units, true, nil
	}
	q := c.from.single()
	if q == nil || q.kind != attributed {
		return c.ofSum(request)
	}
	text := request.attribute(q.source, q.name)
	if text == "" {
		return c.missing(q.source.String() + " " + q.name)
	}
	units, ok := decimal(text)
	if !ok || units < 1 || units > c.most {
		return 0, false, c.wrong(q.source.String()+" "+q.name, strings.Clone(text[:min(len(text), bounds.Text)]))
	}
	return units, true, nil
}

// ofSum is the cost by a sum, which is at least 1.
func (c *cost) ofSum(request *Request) (units int64, stated bool, err error) {
	body, value := request.json(), c.valueIn(request)
	units, known := c.from.units(value)
	switch {
	case !known || body != nil && body.unread() && c.from.readsJSON():
		lengths, _ := c.from.lengths(value)
		least, _ := lengths.units(value)
		units, stated, err = c.missing("cost.from")
		return max(units, min(least, c.most)), stated, err
	case units <= c.most:
		return max(1, units), true, nil
	case c.settle != nil:
		return c.most, true, nil
	}
	return 0, false, c.wrong("cost.from", units)
}

// valueIn returns a function that reads quantities of the request.
func (c *cost) valueIn(request *Request) func(q *quantity) (*big.Rat, bool) {
	body := request.json()
	return func(q *quantity) (*big.Rat, bool) {
		if q.kind != attributed {
			return q.of(body)
		}
		n, ok := decimal(request.attribute(q.source, q.name))
		return new(big.Rat).SetInt64(n), ok
	}
}

func (c *cost) wrong(field string, given any) error {
	return &weir.InputError{Field: field, Given: given,
		Allowed: "a whole number from 1 to " + strconv.FormatInt(c.most, 10) + ", in decimal digits"}
}

func (c *cost) missing(field string) (units int64, stated bool, err error) {
	if c.deny {
		return 0, false, c.wrong(field, "")
	}
	return c.units, false, nil
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
	c := cost{units: max(1, s.Units, s.Default), fixed: s.Units != 0, settleText: s.Settle}
	c.settle = b.sum(at(i, "cost.settle"), s.Settle, []source{sourceHeader}, "header.NAME of the response, ")
	c.deny = word(b, at(i, "cost.on_missing"), s.OnMissing, costMissing) == costDeny
	b.units(at(i, "cost"), s.Units)
	b.units(at(i, "cost.default"), s.Default)
	b.units(at(i, "cost.max"), s.Max)
	b.costBy(i, rule, &c)
	c.learn = b.learned(i, rule)
	if c.fixed && (s.From != "" || s.Default != 0 || s.Max != 0 || s.Settle != "" || s.By != "" || c.deny) {
		b.add(at(i, "cost"), "cost is a number, or says where it comes from; it cannot be both")
	}
	maximum := at(i, "cost.max")
	if s.From == "" {
		if s.Max != 0 && !b.has(at(i, "cost.from")) {
			b.add(maximum, "cost.max bounds the value of cost.from, which is missing")
		}
		if c.deny && !b.has(at(i, "cost.from")) {
			b.add(at(i, "cost.on_missing"), "cost.on_missing is for requests without cost.from, which is missing")
		}
		return c
	}
	c.from = b.sum(at(i, "cost.from"), s.From, []source{sourceHeader, sourceQuery, sourceDescriptor},
		"header.NAME, query.NAME, descriptor.NAME, ")
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

// sum reads the quantities that state a cost; nil without a text. attributes describes the allowed ones.
func (b *builder) sum(p place, text string, allowed []source, attributes string) sum {
	if text == "" {
		return nil
	}
	s, complaint := parseSum(text, allowed)
	if complaint != "" {
		b.add(p, "%s is %.80q; %s; allowed: %s%s", p.field, text, complaint, attributes, sumSyntax)
	}
	return s
}
