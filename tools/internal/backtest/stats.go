package backtest

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// stats are the counts of the replay of the rules.
type stats struct {
	set          *rules.Set
	replayers    int // of other sets, whose bits come first
	total        Count
	good         goodCount
	series       *timeline // passed, refused, and refused by each rule
	rules        []ruleStats
	clientCounts *clientCounts
	first        int64
	last         int64
}

// A ruleStats has the counts of a rule.
type ruleStats struct {
	rule        *rules.Rule
	count       Count
	failing     int64
	first, last int64
	minute      busiest
	keys        *keys // nil: its limits have no window
	swept       bool  // its claims are kept for a sweep
	good        goodCount
	worst       *details // of its keys; nil: it counts by clients, or has one key
}

// maxWorst is the number of a rule's refused keys that have more than numbers.
const maxWorst = 128

// A goodCount counts requests of good clients.
type goodCount struct{ requests, refused int64 }

// rows of a timeline before the rows of rules.
const (
	rowPassed = iota
	rowRefused
	rowRules
)

func newStats(set *rules.Set, replayers int) *stats {
	s := &stats{set: set, replayers: replayers, first: -1}
	s.rules = make([]ruleStats, len(set.Rules()))
	windowed := 0
	for _, rule := range set.Rules() {
		if windowOf(rule) > 0 {
			windowed++
		}
	}
	for i, rule := range set.Rules() {
		s.rules[i] = ruleStats{rule: rule, first: -1}
		if window := windowOf(rule); window > 0 {
			s.rules[i].keys = newKeys(window, windowed)
		}
		parts := rule.Components()
		if byClient := len(parts) == 1 && parts[0] == "client.ip"; len(parts) > 0 && !byClient {
			worst := newDetails(maxWorst)
			s.rules[i].worst = &worst
		}
	}
	s.series = newTimeline(rowRules + len(s.rules))
	s.clientCounts = newClientCounts(replayers + 2*len(s.rules))
	return s
}

// windowOf is the window, in microseconds, of the units of a rule's keys: the first limit's
// with a window; 0 without one.
func windowOf(rule *rules.Rule) int64 {
	if limit := windowed(rule); limit != nil {
		return limit.Length()
	}
	return 0
}

// windowed is the first limit of a rule that is one for a time.
func windowed(rule *rules.Rule) *weir.Limit {
	if !rule.Enabled() {
		return nil
	}
	for _, limit := range rule.Limits() {
		if !limit.Leases() {
			return limit
		}
	}
	return nil
}

// observe counts the verdicts on a request, one unless it has several descriptors. x gets the rules that it matched,
// and the ones that refuse it.
func (s *stats) observe(e *event, at int64, verdicts []*gate.Verdict, r result, x *hits) {
	x.matched, x.refusing, x.claims = x.matched[:0], x.refusing[:0], x.claims[:0]
	if r == undecided {
		return
	}
	for _, v := range verdicts {
		s.verdict(e, at, v, x)
	}
}

func (s *stats) verdict(e *event, at int64, v *gate.Verdict, x *hits) {
	if v.Outcome == gate.Denied && v.Rule != nil {
		x.matched = append(x.matched, v.Rule.Index())
		x.refusing = append(x.refusing, v.Rule.Index())
		return
	}
	for i := range v.Len() {
		rule, claim, shadow, granted, ok := v.Counted(i)
		if !ok || rule == nil {
			continue
		}
		refuses := shadow && !granted || !shadow && v.Outcome == gate.Refused && refusesOf(v, i)
		x.matched = append(x.matched, rule.Index())
		if refuses {
			x.refusing = append(x.refusing, rule.Index())
		}
		if s.rules[rule.Index()].swept {
			x.sweep(rule.Index(), claim)
		}
		if keys := s.rules[rule.Index()].keys; keys != nil {
			keys.observe(hashOf(claim.Key), e.id, at, claim.Cost, e.good)
		}
		if worst := s.rules[rule.Index()].worst; worst != nil && (refuses || len(worst.by) > 0) {
			worst.count(hashOf(claim.Key), claim.Key, e, refuses)
		}
	}
}

// refusesOf reports whether a limit or the ban of the rule of the ith check refuses. Checks of a rule are adjacent.
func refusesOf(v *gate.Verdict, i int) bool {
	first := v.At(i)
	for ; i < v.Len(); i++ {
		c := v.At(i)
		if c.Rule != first.Rule || c.Shadow != first.Shadow {
			return false
		}
		if c.Decided && !c.Aside && c.Decision.RetryAfter != 0 {
			return true
		}
	}
	return false
}

// hits are the rules that a request matched, and the ones that refuse it.
type hits struct {
	matched, refusing []int
	claims            []swept // of rules that are swept
}

// A swept is the claim of a rule on a request. Its key is valid until the next batch.
type swept struct {
	rule  int
	key   []byte
	cost  int64
	limit *weir.Limit
}

// sweep notes a claim, with the memory of one of a batch before.
func (h *hits) sweep(rule int, claim *weir.Claim) {
	if len(h.claims) < cap(h.claims) {
		h.claims = h.claims[:len(h.claims)+1]
	} else {
		h.claims = append(h.claims, swept{})
	}
	x := &h.claims[len(h.claims)-1]
	x.rule, x.key, x.cost, x.limit = rule, append(x.key[:0], claim.Key...), claim.Cost, claim.Limit
}

// count counts a decided request. others are the replayers of other sets that stop it.
func (s *stats) count(e *event, at int64, r result, x *hits, others uint64) {
	if s.first < 0 {
		s.first = at
	}
	s.last = at
	s.total.Requests++
	step := s.series.at(at)
	stopped := r.stopped()
	switch {
	case r.denies():
		s.total.Denied++
		s.series.add(rowRefused, step)
	case stopped:
		s.total.Refused++
		s.series.add(rowRefused, step)
	default:
		s.series.add(rowPassed, step)
	}
	s.good.add(e, stopped)
	c := s.clientCounts.count(e, r)
	if c != nil && others != 0 {
		c.bits[0] |= others
	}
	for _, i := range x.matched {
		rule := &s.rules[i]
		rule.count.Requests++
		if c != nil {
			c.set(s.replayers + 2*i)
		}
	}
	for _, i := range x.refusing {
		s.refused(e, at, r, i, step, c)
	}
	if e.good {
		for _, i := range x.matched {
			s.rules[i].good.requests++
		}
	}
}

// refused counts a refusal of a rule.
func (s *stats) refused(e *event, at int64, r result, i, step int, c *client) {
	rule := &s.rules[i]
	if r.denies() {
		rule.count.Denied++
	} else {
		rule.count.Refused++
	}
	if rule.first < 0 {
		rule.first = at
	}
	rule.last = at
	rule.minute.add(at, minute)
	s.series.add(rowRules+i, step)
	if e.failing() {
		rule.failing++
	}
	if e.good {
		rule.good.refused++
	}
	if c != nil {
		c.set(s.replayers + 2*i + 1)
	}
}

func (g *goodCount) add(e *event, stopped bool) {
	if e.good {
		g.requests++
		if stopped {
			g.refused++
		}
	}
}

func timeOf(at int64) time.Time {
	if at < 0 {
		return time.Time{}
	}
	return time.UnixMicro(at).UTC()
}

func (h *hits) has(rule int) bool {
	for _, i := range h.matched {
		if i == rule {
			return true
		}
	}
	return false
}

// hashOf is FNV-1a; sampled mixes its bits. It is equal in every process, so that reports are.
func hashOf(text string) uint64 {
	hash := uint64(14695981039346656037)
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return hash
}
