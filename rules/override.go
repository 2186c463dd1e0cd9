package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/netaddr"
)

// overrides are other limits for some keys of a rule.
type overrides struct {
	exact map[string][]*weir.Limit // by the whole key, as AppendKey makes it
	wild  []wildcard               // in order of precedence
}

type wildcard struct {
	parts  []pattern // one for each component
	limits []*weir.Limit
	rank   int
}

// LimitsFor are the limits of a request with this key, from an operator's Exception, an override, or Limits. An exact
// override precedes wildcards; of these the one with more literal text, then the first in the file. key is the result
// of AppendKey. Do not change the slice.
func (r *Rule) LimitsFor(request *Request, key []byte) []*weir.Limit {
	return r.limitsFor(key, func(w *wildcard) bool { return w.matches(r, request) })
}

// limitsFor are the limits of a key, which some wildcards fit.
func (r *Rule) limitsFor(key []byte, fits func(*wildcard) bool) []*weir.Limit {
	if x := r.excepted(); x != nil {
		if limits := x.overrides.find(key, fits); limits != nil {
			return limits
		}
	}
	if limits := r.overrides.find(key, fits); limits != nil {
		return limits
	}
	return r.limits
}

// find is nil if no override fits the key.
func (o *overrides) find(key []byte, fits func(*wildcard) bool) []*weir.Limit {
	if limits, ok := o.exact[string(key)]; ok {
		return limits
	}
	for i := range o.wild {
		if w := &o.wild[i]; fits(w) {
			return w.limits
		}
	}
	return nil
}

func (w *wildcard) matches(r *Rule, request *Request) bool {
	for i := range w.parts {
		if !w.parts[i].matches(&r.components[i], request) {
			return false
		}
	}
	return true
}

// matches is false for a missing value.
func (p *pattern) matches(c *component, r *Request) bool {
	if c.source == sourceIP {
		address := netaddr.Plain(r.Client)
		return address.IsValid() && (!p.network.IsValid() || p.network.Contains(address))
	}
	var buffer [512]byte
	value := c.text(buffer[:0], r)
	if p.wild {
		return value != "" && strings.HasPrefix(value, p.text)
	}
	return value == p.text
}

func (b *builder) override(i int, s *Spec, rule *Rule, named bool) {
	if !b.count(at(i, "overrides"), len(s.Overrides), bounds.Overrides) || len(s.Overrides) == 0 {
		return
	}
	if b.overrides += len(s.Overrides); b.overrides > bounds.AllOverrides {
		b.add(at(i, "overrides"), "the rules up to here have over %d overrides", bounds.AllOverrides)
		return
	}
	if len(s.Key) == 0 && !b.has(at(i, "key")) {
		b.add(at(i, "overrides"), "overrides need a key: without one all requests are counted together, by one limit")
		return
	}
	if len(rule.components) < len(s.Key) {
		return
	}
	o := overrideBuilder{builder: b, rule: rule, into: &rule.overrides, seen: make(map[string]int)}
	rule.overrides.exact = make(map[string][]*weir.Limit)
	for j := range s.Overrides {
		o.add(i, j, &s.Overrides[j], s, named)
	}
	if len(rule.overrides.wild) > bounds.Wildcards {
		b.add(at(i, "overrides"), "overrides has %d keys with wildcards or networks; at most %d",
			len(rule.overrides.wild), bounds.Wildcards)
	}
	slices.SortStableFunc(rule.overrides.wild, func(a, b wildcard) int { return b.rank - a.rank })
}

// An overrideBuilder compiles the overrides of one rule.
type overrideBuilder struct {
	*builder
	rule *Rule
	into *overrides
	seen map[string]int // override by key
}

func (o *overrideBuilder) add(i, j int, given *Override, s *Spec, named bool) {
	field := fmt.Sprintf("overrides[%d].", j)
	limits := o.limits(at(i, field+"limit"), given.Limit, s, o.rule, named)
	parts, ok := o.parts(at(i, field+"key"), given.Key)
	if !ok {
		return
	}
	w := wildcard{parts: parts, limits: limits}
	wild, label := false, ""
	for k := range parts {
		wild = wild || parts[k].wild
		w.rank += parts[k].rank()
		label += fmt.Sprintf("%q ", parts[k].String())
	}
	if first, twice := o.seen[label]; twice {
		o.builder.add(at(i, field+"key"), "the key of overrides[%d] occurs again; write one override for each "+
			"key", first)
		return
	}
	o.seen[label] = j
	if wild {
		o.into.wild = append(o.into.wild, w)
	} else {
		o.into.exact[string(o.rule.keyOf(parts))] = limits
	}
}

// parts reads the values of an override's key.
func (o *overrideBuilder) parts(p place, given []string) (parts []pattern, ok bool) {
	components := o.rule.components
	if len(given) == 0 {
		if !o.has(p) {
			o.builder.add(p, "%s is missing: a value for each component of the rule's key", p.field)
		}
		return nil, false
	}
	if len(given) != len(components) {
		o.builder.add(p, "%s has %d values, and the rule's key %d components; give each component its value, and "+
			"each key an override of its own", p.field, len(given), len(components))
		return nil, false
	}
	for k, text := range given {
		item := place{p.rule, p.field, k}
		if text == "" && o.has(item) {
			return nil, false
		}
		part, complaint := parsePatternOf(&components[k], text)
		if complaint == "" {
			complaint = countedAs(&components[k], &part)
		}
		if text == "" || len(text) > bounds.Text {
			complaint = fmt.Sprintf("a value of 1 to %d bytes is needed", bounds.Text)
		}
		if complaint != "" {
			o.builder.add(item, "%s has %.80q: %s", p.field, text, complaint)
			return nil, false
		}
		parts = append(parts, part)
	}
	return parts, true
}

// countedAs turns a network that the rule counts as one client into a single value. A narrower network has no separate
// key, so it can have no other limits.
func countedAs(c *component, p *pattern) (complaint string) {
	if !p.network.IsValid() {
		return ""
	}
	bits, family := c.v6, "v6"
	if p.network.Addr().Is4() {
		bits, family = c.v4, "v4"
	}
	p.wild = p.network.Bits() < bits
	if p.network.Bits() <= bits {
		return ""
	}
	whole, _ := p.network.Addr().Prefix(bits)
	return fmt.Sprintf("this rule counts all of %v as one; write that, or count by client.ip %s/%d", whole, family,
		p.network.Bits())
}

// keyOf is the key of these values, as AppendKey makes it.
func (r *Rule) keyOf(parts []pattern) (key []byte) {
	for i := range parts {
		key = r.components[i].begin(key, i)
		value := len(key)
		if parts[i].network.IsValid() {
			key = appendNetwork(key, parts[i].network)
		} else {
			key = append(key, parts[i].text...)
		}
		key = insertLength(key, value)
	}
	return r.set.keyHash.long(key, 0)
}
