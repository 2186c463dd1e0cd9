package backtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A SweepOf is a rule and the limits to try for it.
type SweepOf struct {
	Rule   string
	index  int         // of the rule
	which  int         // of its limits
	Limits []weir.Spec // ascending
}

const (
	sweepHelp = "RULE=LIMIT..LIMIT:NUMBER, such as login=5/1m..200/1m:12, or RULE=LIMIT,LIMIT,…"
	maxPoints = 60
)

// ParseSweep reads a sweep, such as login=5/1m..200/1m:12. name is of the flag, for errors.
func ParseSweep(name, text string, file *rules.File) (s SweepOf, err error) {
	rule, limits, ok := strings.Cut(text, "=")
	if !ok || limits == "" {
		return s, fmt.Errorf("%s is %.80q; allowed: %s", name, text, sweepHelp)
	}
	if s, err = sweepOf(name, rule, file); err != nil {
		return s, err
	}
	spec := &file.Rules[s.index]
	lowest, highest, ranged := strings.Cut(limits, "..")
	if !ranged {
		for one := range strings.SplitSeq(limits, ",") {
			limit, err := parseLimitAs(name, one, spec, s.which)
			if err != nil {
				return s, err
			}
			s.Limits = append(s.Limits, limit)
		}
		if len(s.Limits) > maxPoints {
			return s, fmt.Errorf("%s has %d limits; allowed: 1 to %d", name, len(s.Limits), maxPoints)
		}
		slices.SortStableFunc(s.Limits, func(a, b weir.Spec) int { return int(min(1, max(-1, unitsOf(a)-unitsOf(b)))) })
		return s, nil
	}
	highest, number, ok := strings.Cut(highest, ":")
	points := 12
	if ok {
		if points, err = strconv.Atoi(number); err != nil || points < 2 || points > maxPoints {
			return s, fmt.Errorf("%s has the number %.20q; allowed: 2 to %d limits", name, number, maxPoints)
		}
	}
	from, err := parseLimitAs(name, lowest, spec, s.which)
	if err != nil {
		return s, err
	}
	to, err := parseLimitAs(name, highest, spec, s.which)
	if err != nil {
		return s, err
	}
	if unitsOf(from) >= unitsOf(to) || !alike(from, to) {
		return s, fmt.Errorf("%s has the limits %s and %s; allowed: the same algorithm and period, and fewer units in "+
			"the first, as in login=5/1m..200/1m:12", name, from, to)
	}
	for _, units := range humanSteps(unitsOf(from), unitsOf(to), points) {
		s.Limits = append(s.Limits, between(from, to, units))
	}
	return s, nil
}

// sweepOf finds a rule, and which of its limits is changed.
func sweepOf(name, rule string, file *rules.File) (s SweepOf, err error) {
	s = SweepOf{Rule: rule, index: slices.IndexFunc(file.Rules, func(r rules.Spec) bool { return r.Name == rule })}
	if s.index < 0 {
		var names []string
		for i := range file.Rules {
			names = append(names, file.Rules[i].Name)
		}
		return s, fmt.Errorf("%s names the rule %.80q; allowed: %s", name, rule, strings.Join(names, ", "))
	}
	for i, text := range file.Rules[s.index].Limit {
		limit, err := weir.ParseLimit(withAlgorithm(text, &file.Rules[s.index]))
		if err == nil {
			if _, held := limit.(weir.Concurrency); !held {
				s.which = i
				break
			}
		}
	}
	return s, nil
}

func withAlgorithm(text string, spec *rules.Spec) string {
	if spec.Algorithm != "" && text != "" && text[0] >= '0' && text[0] <= '9' {
		return spec.Algorithm + " " + text
	}
	return text
}

// parseLimitAs reads a limit. Without the name of an algorithm it has the rule's.
func parseLimitAs(name, text string, spec *rules.Spec, which int) (weir.Spec, error) {
	text = strings.TrimSpace(text)
	if text != "" && text[0] >= '0' && text[0] <= '9' && which < len(spec.Limit) {
		own := withAlgorithm(spec.Limit[which], spec)
		if word, _, _ := strings.Cut(own, " "); word != "" && (word[0] < '0' || word[0] > '9') {
			text = word + " " + text
		}
	}
	limit, err := weir.ParseLimit(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return limit, nil
}

// unitsOf are the units that a limit grants in its period.
func unitsOf(s weir.Spec) int64 {
	limit, err := weir.NewLimit("limit", s)
	if err != nil {
		return 0
	}
	return limit.Units()
}

// withUnits is the limit with other units; a bucket's burst and overdraft stay as large in proportion.
func withUnits(s weir.Spec, units int64) weir.Spec {
	limit, err := weir.NewLimit("limit", s)
	if err != nil {
		return s
	}
	return limit.WithUnits(units)
}

// alike reports whether two limits differ in their units alone, or in burst and overdraft.
func alike(a, b weir.Spec) bool {
	x, isBucket := a.(weir.TokenBucket)
	y, both := b.(weir.TokenBucket)
	if isBucket && both {
		return x.Period == y.Period && x.Mode == y.Mode
	}
	return withUnits(a, 1) == withUnits(b, 1)
}

// between is a limit between two: the first, or the second if it has its units.
func between(from, to weir.Spec, units int64) weir.Spec {
	if units == unitsOf(to) {
		return to
	}
	x, isBucket := from.(weir.TokenBucket)
	if !isBucket {
		return withUnits(from, units)
	}
	y := to.(weir.TokenBucket)
	part := math.Log(float64(units)/float64(x.Refill)) / math.Log(float64(y.Refill)/float64(x.Refill))
	ratio := float64(y.Capacity) / float64(x.Capacity)
	x.Capacity = int64(math.Round(float64(x.Capacity) * math.Pow(ratio, part)))
	x.Overdraft += int64(math.Round(part * float64(y.Overdraft-x.Overdraft)))
	x.Refill = units
	return x
}

// humanSteps are n numbers or fewer from one to another, with about equal ratios, that people would write.
func humanSteps(from, to int64, n int) (list []int64) {
	ratio := math.Pow(float64(to)/float64(from), 1/float64(n-1))
	for i := range n {
		x := human(float64(from)*math.Pow(ratio, float64(i)), math.Round)
		switch {
		case i == 0:
			x = from
		case i == n-1:
			x = to
		}
		if len(list) == 0 || x > list[len(list)-1] && x <= to {
			list = append(list, x)
		}
	}
	return list
}

// humanNumbers are the numbers that people write, in a factor of ten.
var humanNumbers = []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10}

// human rounds a number to one that people would write: to the nearest, or up with math.Ceil.
func human(x float64, round func(float64) float64) int64 {
	if x < 10 {
		return max(1, int64(round(x)))
	}
	scale := math.Pow(10, math.Floor(math.Log10(x)))
	best := 10 * scale
	for _, n := range humanNumbers {
		n *= scale
		if round(0.4) == 1 { // up
			if n >= x-1e-9 {
				return int64(math.Round(n))
			}
			continue
		}
		if math.Abs(n-x) < math.Abs(best-x) {
			best = n
		}
	}
	return int64(math.Round(best))
}

// A sweep is one that runs.
type sweep struct {
	SweepOf
	points []*other
}

// addSweep adds a replayer for each limit: the rule alone with this limit, for the requests that it matches among the
// others. Its refusals are the rule's own, whatever the other rules do.
func (r *replay) addSweep(s *SweepOf, add func(*rules.Set, int) (*other, error)) error {
	run := &sweep{SweepOf: *s}
	for _, limit := range s.Limits {
		set, err := variant(r.config.File, s, limit)
		if err != nil {
			return err
		}
		o, err := add(set, s.index)
		if err != nil {
			return err
		}
		if rule := set.Rules()[0]; isPlain(rule) {
			o.limit, o.own = rule.Limits()[0], r.config.Set.Rules()[s.index].Limits()[0]
		}
		run.points = append(run.points, o)
	}
	r.sweeps = append(r.sweeps, run)
	return nil
}

// isPlain reports whether the limit alone decides the outcome of a request that the rule matches. Then the store
// decides the claim that the main replayer made of the request, and no gate makes it once more for each limit.
func isPlain(rule *rules.Rule) bool {
	return len(rule.Limits()) == 1 && rule.Bans() == nil && !rule.HasCountIf() && rule.Settle() == "" &&
		!rule.ChargesFull() && !isHeld(rule)
}

// charge decides the claim of the rule on a request. A key with overridden limits keeps them.
func (o *other) charge(ctx context.Context, e *event, x *hits) (result, error) {
	i := slices.IndexFunc(x.claims, func(c swept) bool { return c.rule == o.rule })
	if i < 0 { // denied by a list of the rule, or for a missing key
		return -result(o.rule + 1), nil
	}
	c := &x.claims[i]
	limit := o.limit
	if c.limit != o.own {
		limit = c.limit
	}
	o.now = e.at
	o.claim[0] = weir.Claim{Key: unsafe.String(&c.key[0], len(c.key)), Limit: limit, Cost: c.cost}
	granted, err := o.store.Decide(ctx, o.claim[:], 1, nil)
	switch {
	case errors.Is(err, weir.ErrUnavailable):
		return undecided, nil
	case err != nil:
		return passed, err
	case granted == 0:
		return result(o.rule + 1), nil
	}
	return passed, nil
}

// variant is the rule alone with another limit, enforced for all keys.
func variant(file *rules.File, s *SweepOf, limit weir.Spec) (*rules.Set, error) {
	alone := *file
	rule := file.Rules[s.index]
	rule.Limit = slices.Clone(rule.Limit)
	rule.Limit[s.which] = limit.String()
	rule.Algorithm, rule.Mode, rule.EnforcePercent = "", rules.Enforce, nil
	for i, text := range rule.Limit {
		if i != s.which {
			rule.Limit[i] = withAlgorithm(text, &file.Rules[s.index])
		}
	}
	rule.Candidate = rules.Candidate{}
	// The main replayer has matched the request, and looked it up in the lists.
	if rule.Group, alone.Allow, alone.Deny = "", nil, nil; len(rule.Match.DescriptorKeys) == 0 {
		rule.Match = rules.Match{}
	}
	alone.Rules = []rules.Spec{rule}
	set, err := rules.Compile(&alone)
	if err != nil {
		return nil, fmt.Errorf("the rule %s with the limit %s: %w", s.Rule, limit, err)
	}
	return set, nil
}

// result is the sweep in the report.
func (s *sweep) result(stats *stats, good bool) Sweep {
	x := Sweep{Rule: s.Rule}
	for i, o := range s.points {
		x.Points = append(x.Points, o.point(s.Limits[i], s.index, stats, good))
	}
	return x
}

// point is what one limit of a rule does.
func (o *other) point(limit weir.Spec, rule int, stats *stats, good bool) Point {
	p := Point{Limit: limit.String(), Units: unitsOf(limit), Count: o.count, Peak: o.busiest.peak,
		Failing: o.failing}
	p.Hour, p.Day = mostOf(o.set.Rules()[0], time.Hour), mostOf(o.set.Rules()[0], 24*time.Hour)
	matched := stats.replayers + 2*rule
	if good {
		p.Good = &Good{Requests: o.good.requests, RequestsRefused: o.good.refused}
	}
	weight := stats.clientCounts.table.weight()
	for i := range stats.clientCounts.table.items {
		c := &stats.clientCounts.table.items[i].v
		if !c.has(matched) {
			continue
		}
		p.Clients += weight
		refused := c.has(o.bit)
		if refused {
			p.ClientsRefused += weight
		}
		if c.fails() {
			p.Fails += weight
			if refused {
				p.FailsRefused += weight
			}
		}
		addGood(p.Good, c.good, refused, weight, func() string { return nameOf(stats.clientCounts.table.items[i].id) })
	}
	return p
}

// mostOf is the most units that the limits of a rule grant a key within any such time.
func mostOf(rule *rules.Rule, t time.Duration) (most int64) {
	for _, limit := range rule.Limits() {
		if of := limit.MostIn(t); !limit.Leases() && (most == 0 || of < most) {
			most = of
		}
	}
	return most
}

// maxExamples is the number of examples of each kind.
const maxExamples = 5
