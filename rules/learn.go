package rules

import (
	"math/big"
	"slices"
	"strings"
)

// learnByKey is the value of cost.learn for one class a key.
const learnByKey = "key"

// A learned cost is an estimate that follows from the costs of earlier requests of the same class.
type learned struct {
	by *component // divides the requests of a key into classes, by its values; nil: the key is one class
}

// Learns reports whether the estimate of the rule's cost is learned from settled costs.
func (r *Rule) Learns() bool { return r.cost.learn != nil }

// Expects reports whether Expect has a use: the rule Learns, or it charges an estimate and counts the part of the
// response that has passed.
func (r *Rule) Expects() bool {
	return r.Learns() || r.passed != nil && r.stream == nil && r.cost.from != nil
}

// Expect reads more about the cost of a request, for a rule that Expects and a cost that CostOf found stated. known is
// the units of the lengths in cost.from, such as the length of a prompt. most is the largest cost to expect: the stated
// cost, or cost.max if the request leaves out a number and cost.from has a substitute for it. class is dst and a text
// that requests of one key with similar costs have in common.
func (r *Rule) Expect(dst []byte, request *Request) (class []byte, known, most int64) {
	c := &r.cost
	if c.learn != nil && c.learn.by != nil {
		dst = append(dst, c.learn.by.text(nil, request)...)
	}
	value := c.valueIn(request)
	most = c.most
	stated, ok := c.from.units(value)
	lengths, open := c.from.lengths(value)
	if ok && !open {
		most = min(most, stated)
	}
	known, _ = lengths.units(value)
	return dst, min(known, most), max(1, most)
}

// lengths are the terms that measure values and bodies. open reports that a term asks for a number that the request
// does not state.
func (s sum) lengths(value func(*quantity) (*big.Rat, bool)) (terms sum, open bool) {
	isNumber := func(q quantity) bool {
		return q.kind == jsonNumber || q.kind == attributed || q.kind == largest
	}
	for _, t := range s {
		there := slices.IndexFunc(t.of, func(q quantity) bool { _, ok := value(&q); return ok })
		switch {
		case there >= 0 && (t.of[there].kind == jsonSize || t.of[there].kind == bodySize):
			terms = append(terms, term{t.weight, t.times, t.of[there : there+1]})
		case there < 0 || !isNumber(t.of[there]):
			open = open || slices.ContainsFunc(t.of, isNumber)
		}
	}
	return terms, open
}

// learned checks cost.learn; nil without it.
func (b *builder) learned(i int, s *Spec) *learned {
	text, p := s.Cost.Learn, at(i, "cost.learn")
	if text == "" {
		return nil
	}
	if s.Cost.From == "" || s.Cost.Settle == "" || s.Charge == ChargeStreaming {
		b.add(p, "cost.learn is for rules with cost.from and cost.settle, and without charge: as_it_streams, whose "+
			"estimate is of the prompt alone")
	}
	l := new(learned)
	if strings.TrimSpace(text) == learnByKey {
		return l
	}
	if list := b.key(p, []string{text}, s.Match.Path); len(list) == 1 {
		l.by = &list[0]
	}
	return l
}
