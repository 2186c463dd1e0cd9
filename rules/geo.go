package rules

import (
	"slices"
	"strconv"
)

// geo is what must be known of a client's address: bits.
type geo uint8

const (
	geoCountry geo = 1 << iota
	geoASN
)

// Located reports whether the rule needs the country or the autonomous system of clients.
func (r *Rule) Located() (country, asn bool) { return r.geo.split() }

// Located reports whether a rule that applies to requests, a list of the file or an exception needs the country or the
// autonomous system of clients. Gates look up only the data that rules need.
func (s *Set) Located() (country, asn bool) { return (s.geo | s.inForce().geo).split() }

func (g geo) split() (country, asn bool) { return g&geoCountry != 0, g&geoASN != 0 }

// geo is the data that the conditions of a match need.
func (m *Match) geo() (g geo) {
	if len(m.Country) > 0 {
		g |= geoCountry
	}
	if len(m.ASN) > 0 {
		g |= geoASN
	}
	for _, one := range slices.Concat(m.Any, m.Not) {
		g |= one.geo()
	}
	return g
}

func (l *lists) geo() (g geo) {
	for _, entries := range [][]listEntry{l.allow, l.deny} {
		for i := range entries {
			g |= entries[i].component.source.geo()
		}
	}
	return g
}

// located is the data about clients that a rule needs.
func (r *Rule) located(s *Spec) (g geo) {
	for _, m := range s.matches() {
		g |= m.geo()
	}
	for _, c := range r.everyComponent() {
		g |= c.source.geo()
	}
	return g
}

// IsCountry reports whether a text has the form of a country in a Request: two letters in capitals. The second may be a
// digit, as in T1, which a content delivery network says for Tor.
func IsCountry(code string) bool {
	return len(code) == 2 && 'A' <= code[0] && code[0] <= 'Z' &&
		('A' <= code[1] && code[1] <= 'Z' || '0' <= code[1] && code[1] <= '9')
}

const (
	countryAllowed = "a code of ISO 3166 in capitals, such as CN or HK"
	asnAllowed     = "the number of an autonomous system, 1 to 4294967295, without AS"
)

// isASN reports whether a text is the number of an autonomous system as keys have it.
func isASN(text string) bool {
	n, err := strconv.ParseUint(text, 10, 32)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// misplaced says why a value never occurs as a country or an autonomous system; "" if it may.
func (c *component) misplaced(p *pattern) (allowed string) {
	switch {
	case p.any():
	case c.source == sourceCountry && (p.wild || !IsCountry(p.text)):
		return "allowed: " + countryAllowed + `; or "*" for any`
	case c.source == sourceASN && (p.wild || !isASN(p.text)):
		return "allowed: " + asnAllowed + `; or "*" for any`
	}
	return ""
}

// located adds a condition on the country or the autonomous system of the client.
func (b *builder) located(list []condition, p place, kind source, given []string, allowed string,
	valid func(string) bool) []condition {
	for j, value := range given {
		item := place{p.rule, p.field, j}
		if !valid(value) && value != "*" && !(value == "" && b.has(item)) {
			b.add(item, "%s has %.80q; allowed: %s", p.field, value, allowed)
		}
	}
	return b.standard(list, p, kind, given)
}
