package history

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

const (
	defaultSpan = time.Hour
	maxMinutes  = 2 * time.Hour // of a series in minutes; others are in steps of ten
	maxSeries   = 200           // rules of an overview that have a series
	freshness   = time.Second   // of this node's counts in a report
)

// A span is the interval of a report.
type span struct {
	from  time.Time // a multiple of step
	step  time.Duration
	steps int
	node  string // "": all
	key   string // "": all
}

func (s span) end() time.Time { return s.from.Add(time.Duration(s.steps) * s.step) }

// spanOf returns the interval of a query.
func (h *History) spanOf(q telemetry.Query, now time.Time) span {
	from, to := q.From, q.To
	if to.IsZero() || to.After(now) {
		to = now
	}
	if from.IsZero() {
		from = to.Add(-defaultSpan)
	}
	if oldest := now.Add(-kept); from.Before(oldest) {
		from = oldest
	}
	if !from.Before(to) { // all of it is older than what is kept
		from, to = now.Add(-time.Minute), now
	}
	s := span{step: minute, node: q.Node}
	if to.Sub(from) > maxMinutes || now.Sub(from) > keptMinutes {
		s.step = ten
	}
	s.from = from.Truncate(s.step).UTC()
	s.steps = int((to.Sub(s.from) + s.step - 1) / s.step)
	return s
}

// collect adds up an interval. An error is of the nodes that could not be read.
func (h *History) collect(ctx context.Context, s span) (*sum, error) {
	now := h.now()
	to := newSum(s.from, s.step, s.steps)
	to.key = s.key
	slots := between(s.step, s.from, s.end())
	add := func(text []byte) {
		d, err := unpack(text)
		if err != nil {
			h.failures.Add(1)
			return
		}
		to.add(d)
	}
	if s.node == "" || s.node == h.Name {
		h.mu.Lock()
		stale := now.Sub(h.cutAt) >= freshness
		h.mu.Unlock()
		if stale {
			h.cut(now)
		}
		var texts [][]byte
		h.mu.Lock()
		for _, one := range slots {
			if c := h.currentOf(one); c != nil {
				to.add(c.document())
			} else if text := h.own[one]; text != nil {
				texts = append(texts, text)
			}
		}
		h.mu.Unlock()
		for _, text := range texts {
			add(text)
		}
	}
	return to, h.shared.each(ctx, h.id, s.node, slots, add)
}

// Overview implements telemetry.Reader. If Redis does not answer it has the part of this node, and says so.
func (h *History) Overview(ctx context.Context, q telemetry.Query) (*telemetry.Overview, error) {
	s := h.spanOf(q, h.now())
	sum, missing := h.collect(ctx, s)
	o := &telemetry.Overview{From: s.from, To: s.end(), Step: s.step, Total: sum.total, Series: sum.points(),
		Rules: h.summaries(sum)}
	if h.Alerts != nil {
		o.Alerts = h.Alerts()
	}
	if most := cmp.Or(q.Most, len(o.Rules)); len(o.Rules) > most {
		o.Rules, o.More = o.Rules[:most], len(o.Rules)-most
	}
	for i := range o.Rules[:min(len(o.Rules), maxSeries)] {
		o.Rules[i].Series = sum.seriesOf(o.Rules[i].Name, false)
	}
	o.Nodes = h.nodes(ctx, missing)
	for i := range o.Rules {
		reserve(&o.Rules[i], o.Nodes)
	}
	return o, nil
}

// points is the series of all requests, without gaps.
func (s *sum) points() []telemetry.Point {
	list := make([]telemetry.Point, s.steps)
	for i := range list {
		m := &s.series[i]
		list[i] = telemetry.Point{At: s.at(i), Counts: m.counts, P50: m.took.Quantile(0.5), P99: m.took.Quantile(0.99)}
	}
	return list
}

func (s *sum) at(i int) time.Time { return s.from.Add(time.Duration(i) * s.step) }

// seriesOf is the series of a rule. Without gaps it has the empty points too.
func (s *sum) seriesOf(name string, gapless bool) (list []telemetry.Point) {
	r := s.rules[name]
	for i := range s.steps {
		var p telemetry.Point
		if r != nil {
			p.Counts = r.series.at(i)
		}
		if gapless || p.Counts != (telemetry.Counts{}) {
			p.At = s.at(i)
			list = append(list, p)
		}
	}
	return list
}

// summaries are the rules in force and other ones that had requests, sorted by harm, without their series.
func (h *History) summaries(s *sum) []telemetry.RuleSummary {
	inForce, watched := h.Rules().Rules(), h.Recorder.Watched()
	list := make([]telemetry.RuleSummary, 0, max(len(inForce), len(s.rules)))
	seen := make(map[string]bool, len(inForce))
	for _, rule := range inForce {
		seen[rule.Name()] = true
		list = append(list, s.summary(rule, len(inForce), watched))
	}
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		if !seen[name] {
			list = append(list, s.removed(name))
		}
	}
	slices.SortStableFunc(list, func(a, b telemetry.RuleSummary) int {
		return cmp.Or(cmp.Compare(b.Counts.Refused+b.Counts.Denied, a.Counts.Refused+a.Counts.Denied),
			cmp.Compare(b.Counts.ShadowRefused, a.Counts.ShadowRefused), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// summary is the summary of one of so many rules in force.
func (s *sum) summary(rule *rules.Rule, inForce int, watched map[string]bool) telemetry.RuleSummary {
	one := telemetry.RuleSummary{Name: rule.Name(), Label: rule.Label(), Mode: string(rule.Mode()), Limits: []string{}}
	for _, limit := range rule.Limits() {
		one.Limits = append(one.Limits, limit.String())
	}
	if c := rule.Candidate(); c != nil {
		for _, limit := range c.Limits() {
			one.Candidate = append(one.Candidate, limit.String())
		}
	}
	one.Units = unitsOf(rule)
	s.complete(&one)
	one.Folded = s.folds(rule, inForce)
	one.Unwatched = len(rule.Components()) > 0 && !watched[rule.Name()] && s.isKeyless(rule.Name())
	return one
}

// unitsOf are the units of a metered rule; nil of others.
func unitsOf(rule *rules.Rule) *telemetry.Units {
	if !rule.Metered() {
		return nil
	}
	unit := rule.Unit()
	return &telemetry.Units{Name: unit.Name, Scale: unit.Scale, Estimates: rule.Settles()}
}

// reserve adds up the units of a rule that nodes have reserved.
func reserve(rule *telemetry.RuleSummary, nodes []telemetry.Node) {
	if rule.Units == nil {
		return
	}
	for i := range nodes {
		rule.Units.Reserved += nodes[i].Reserved[rule.Name]
	}
}

// isKeyless reports whether a rule has requests, and no node has counted their keys.
func (s *sum) isKeyless(rule string) bool {
	r := s.rules[rule]
	if r == nil {
		return false
	}
	c := &r.counts
	return c.Passed+c.Refused+c.ShadowPassed+c.ShadowRefused > 0 && r.distinct == 0 && len(r.keys) == 0
}

// folds reports whether counts of a rule may be in the sum of others: the counts of a rule beyond the first ones, or of
// any if a document was too large.
func (s *sum) folds(rule *rules.Rule, inForce int) bool {
	const most = telemetry.MostRules
	return s.rules[telemetry.OtherRules] != nil && (rule.Index() >= most || inForce <= most)
}

// removed is the summary of a rule that is not in force, or of what belongs to no rule, such as (claims).
func (s *sum) removed(name string) telemetry.RuleSummary {
	one := telemetry.RuleSummary{Name: name, Limits: []string{}, Removed: !strings.HasPrefix(name, "(")}
	s.complete(&one)
	return one
}

// complete adds the counts of a rule.
func (s *sum) complete(one *telemetry.RuleSummary) {
	r := s.rules[one.Name]
	if r == nil {
		return
	}
	one.Counts = r.counts
	if all := r.counts.Passed + r.counts.Refused; all > 0 {
		one.RefusedShare = float64(r.counts.Refused) / float64(all)
	}
	if top := r.top(1); len(top) > 0 && top[0].Refused > 0 {
		one.WorstKey = &top[0]
	}
}

// Rule implements telemetry.Reader.
func (h *History) Rule(ctx context.Context, name string, q telemetry.Query) (*telemetry.RuleReport, error) {
	s := h.spanOf(q, h.now())
	sum, _ := h.collect(ctx, s)
	r := sum.rules[name]
	report := &telemetry.RuleReport{From: s.from, To: s.end(), Step: s.step, Top: []telemetry.KeyRate{}}
	inForce := h.Rules().Rules()
	i := slices.IndexFunc(inForce, func(rule *rules.Rule) bool { return rule.Name() == name })
	switch {
	case i >= 0:
		report.RuleSummary = sum.summary(inForce[i], len(inForce), h.Recorder.Watched())
	case r == nil:
		return nil, nil
	default:
		report.RuleSummary = sum.removed(name)
	}
	if report.Units != nil && report.Units.Estimates {
		reserve(&report.RuleSummary, h.nodes(ctx, nil))
	}
	if i >= 0 {
		report.Classes = classesOf(inForce[i], r)
	}
	report.Series = sum.seriesOf(name, true)
	if r != nil {
		report.Top, report.Distinct = r.top(cmp.Or(q.Most, len(r.keys))), r.distinct
		if r.compared != (telemetry.Comparison{}) {
			compared := r.compared
			report.Compared = &compared
		}
	}
	return report, nil
}

// classesOf are the classes of a rule; r may be nil.
func classesOf(rule *rules.Rule, r *ruleSum) (list []telemetry.ClassReport) {
	for _, class := range rule.Classes() {
		one := telemetry.ClassReport{Name: class.Name, Leaves: class.Share}
		if r != nil {
			one.Refused = r.classes[class.Name]
		}
		list = append(list, one)
	}
	return list
}

// Key implements telemetry.Reader. Keys that are shown as digests are looked up by these.
func (h *History) Key(ctx context.Context, key string, q telemetry.Query) (*telemetry.KeyHistory, error) {
	s := h.spanOf(q, h.now())
	s.key = key
	sum, _ := h.collect(ctx, s)
	report := &telemetry.KeyHistory{From: s.from, To: s.end(), Step: s.step, Rules: []telemetry.KeyUnder{}}
	units := make(map[string]*telemetry.Units)
	for _, rule := range h.Rules().Rules() {
		if sum.rules[rule.Name()] != nil {
			units[rule.Name()] = unitsOf(rule)
		}
	}
	for name, r := range sum.rules {
		report.Rules = append(report.Rules, telemetry.KeyUnder{Rule: name, Units: units[name], Counts: r.counts,
			Series: sum.seriesOf(name, false)})
	}
	slices.SortFunc(report.Rules, func(a, b telemetry.KeyUnder) int {
		return cmp.Or(cmp.Compare(b.Counts.Refused, a.Counts.Refused), cmp.Compare(a.Rule, b.Rule))
	})
	return report, nil
}

// self describes this node.
func (h *History) self() telemetry.Node {
	n := telemetry.Node{Name: h.Name, Version: h.Version, Seen: h.now().UTC(), Started: h.started.UTC()}
	h.Describe(&n)
	return n
}

// Others describes the other nodes. leads: this one is the oldest, or the others cannot be read.
func (h *History) Others(ctx context.Context) (others []telemetry.Node, leads bool, err error) {
	if h.shared == nil {
		return nil, true, nil
	}
	list, err := h.shared.nodes(ctx)
	if err != nil {
		return nil, true, err
	}
	delete(list, h.id)
	leads = true
	for id, n := range list {
		others = append(others, n)
		if cmp.Or(n.Started.Compare(h.started), cmp.Compare(id, h.id)) < 0 {
			leads = false
		}
	}
	return others, leads, nil
}

// Nodes implements telemetry.Reader.
func (h *History) Nodes(ctx context.Context) ([]telemetry.Node, error) { return h.nodes(ctx, nil), nil }

// nodes lists the nodes by name. If they cannot be read it has this node, and says so.
func (h *History) nodes(ctx context.Context, missing error) []telemetry.Node {
	self := h.self()
	list := map[string]telemetry.Node{}
	if h.shared != nil {
		var err error
		if list, err = h.shared.nodes(ctx); missing == nil {
			missing = err
		}
		self.ClockOffset = list[h.id].ClockOffset
	}
	if self.Alone = missing != nil; self.Alone {
		self.Problems = append(self.Problems, "the other nodes are not shown: "+missing.Error())
	}
	list[h.id] = self
	return slices.SortedFunc(maps.Values(list), func(a, b telemetry.Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Started.Compare(b.Started))
	})
}
