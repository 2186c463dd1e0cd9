package rules

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// A countIf is a checked CountIf.
type countIf struct {
	status  []statusRange
	headers []headerCondition
}

// A statusRange holds its first and its last status.
type statusRange struct{ from, to int }

type headerCondition struct {
	name   string // canonical
	values []string
	any    bool // every value that is not empty
}

// HasCountIf reports whether the response decides if a request counts: it is charged before, and given back unless
// Counts.
func (r *Rule) HasCountIf() bool { return r.countIf != nil }

// Counts reports whether a request with this response counts. Names in header are canonical, as in http.Header.
// Without count_if every request counts.
func (r *Rule) Counts(status int, header map[string][]string) bool {
	c := r.countIf
	if c == nil {
		return true
	}
	in := func(s statusRange) bool { return s.from <= status && status <= s.to }
	if len(c.status) > 0 && !slices.ContainsFunc(c.status, in) {
		return false
	}
	for i := range c.headers {
		if !slices.ContainsFunc(header[c.headers[i].name], c.headers[i].holds) {
			return false
		}
	}
	return true
}

func (h *headerCondition) holds(line string) bool {
	line = strings.Trim(line, " \t")
	return h.any && line != "" || slices.Contains(h.values, line)
}

// countIf checks count_if. The limits follow it: see countable.
func (b *builder) countIf(i int, s *Spec) *countIf {
	given := &s.CountIf
	if !given.stated() {
		return nil
	}
	c := new(countIf)
	b.count(at(i, "count_if.status"), len(given.Status), bounds.Values)
	for j, text := range given.Status {
		c.status = append(c.status, b.statusRange(place{i, "count_if.status", j}, text))
	}
	p := at(i, "count_if.header")
	b.count(p, len(given.Header), bounds.Conditions)
	for name, values := range given.Header {
		if !validAttribute(name) {
			b.add(p, "count_if.header has the name %.80q; allowed: the name of a header field, such as X-Login", name)
		}
		b.count(p, len(values), bounds.Values)
		c.headers = append(c.headers, headerCondition{canonical(name), values, slices.Contains(values, "*")})
	}
	for _, other := range []struct {
		field string
		is    bool
		why   string
	}{
		{"candidate", len(s.Candidate.Limit) > 0, "a request that only the candidate grants has no response"},
		{"charge: full", s.Charge == ChargeFull, "the debt does not come back"},
		{"lease_percent", s.LeasePercent != 0, "units that were prefetched are not those that come back"},
		{"local_ceiling", s.LocalCeiling != 0, "the ceiling may have refilled the units that come back"},
	} {
		if other.is {
			b.add(at(i, "count_if"), "count_if does not go with %s: %s", other.field, other.why)
		}
	}
	return c
}

func (c *CountIf) stated() bool { return len(c.Status)+len(c.Header) > 0 }

// statusRange reads 401, 4xx, 4XX or 400-499.
func (b *builder) statusRange(p place, text string) (s statusRange) {
	first, last, ranged := strings.Cut(text, "-")
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok && len(class) == 1 {
		first, last, ranged = class+"00", class+"99", true
	}
	if !ranged {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, failed := strconv.Atoi(last)
	if err != nil || failed != nil || len(first) != 3 || len(last) != 3 || from < 100 || from > to || to > 599 {
		b.add(p, "count_if.status is %.80q; allowed: a status such as 401 (100 to 599), a class such as 4xx, or "+
			"a range such as 400-499", text)
	}
	return statusRange{from, to}
}

// countable refuses a limit that does not give back exactly the unit that was taken. A bucket may have refilled it
// meanwhile, so that giving it back would let more than the limit pass.
func (b *builder) countable(p place, limit *weir.Limit) {
	if !limit.Refills() && !limit.Leases() {
		return
	}
	why := "of a token bucket, units could be given back that were refilled already, and more than the limit would pass"
	if limit.Leases() {
		why = "a concurrency limit gives all its units back"
	}
	b.add(p, "%s does not go with count_if: %s; write sliding_log 5/10m (exact), or use fixed_window, calendar or "+
		"sliding_counter", limit, why)
}
