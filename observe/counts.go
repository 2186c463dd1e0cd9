package observe

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// What is counted of a rule. Those of shadow rules are apart: adding them to what was
// really refused would mislead.
const (
	passed = iota
	refused
	denied
	failed
	shadowPassed
	shadowRefused
	outcomes

	bans   = outcomes // how many it put, which is no outcome
	rival  = bans + 1 // and the four of what its candidate says, as gate.Difference.Parts
	counts = rival + 4
)

var outcomeNames = [outcomes]string{"passed", "refused", "denied", "failed", "shadow_passed", "shadow_refused"}

// Rules that are none. Names of rules have no brackets.
const (
	claims  = "(claims)"  // the callers' own
	unknown = "(unknown)" // of rules that are not in force any more
)

// A tally is the counts of one rule.
type tally [counts]atomic.Uint64

// A census is the tallies of the rules in force. A rule is found by its place, and by
// itself: verdicts of the rules before may still come.
type census struct {
	rules   []*rules.Rule
	tallies []*tally // as rules
	claims  *tally
	unknown *tally
}

// next is the census of other rules. What a name has counted goes on.
func (c *census) next(set *rules.Set) *census {
	before := make(map[string]*tally, len(c.rules))
	for i, rule := range c.rules {
		before[rule.Name()] = c.tallies[i]
	}
	n := &census{rules: set.Rules(), claims: c.claims, unknown: c.unknown, tallies: make([]*tally, len(set.Rules()))}
	for i, rule := range n.rules {
		if n.tallies[i] = before[rule.Name()]; n.tallies[i] == nil {
			n.tallies[i] = new(tally)
		}
	}
	return n
}

func (c *census) of(rule *rules.Rule) *tally {
	if rule == nil {
		return c.claims
	}
	if i := rule.Index(); i < len(c.rules) && c.rules[i] == rule {
		return c.tallies[i]
	}
	return c.unknown
}

// count notes a verdict. All that was asked has passed if the verdict has; of what did not
// pass only the rule that decided is counted: the others were not charged.
func (c *census) count(v *gate.Verdict) {
	for _, ban := range v.Banned() {
		c.of(ban.Rule)[bans].Add(1)
	}
	for _, d := range v.Differences() {
		t := c.of(d.Rule)
		both, refused, granted, neither := d.Parts()
		for i, n := range [...]int64{both, refused, granted, neither} {
			t[rival+i].Add(uint64(n))
		}
	}
	if v.Outcome != gate.Passed {
		if v.Rule != nil || v.Reason == gate.LimitExceeded || v.Reason == gate.StoreFailed {
			c.of(v.Rule)[v.Outcome].Add(1) // the gate numbers outcomes as we do
		}
		return
	}
	own := false
	var last *rules.Rule
	for i := range v.Len() {
		check := v.At(i)
		switch {
		case check.Aside, check.Candidate:
			continue
		case check.Rule == nil:
			own = true
		case check.Rule != last: // the limits of a rule stand together, and are granted together
			c.of(check.Rule)[outcomeOf(&check)].Add(1)
		}
		last = check.Rule
	}
	if own {
		c.claims[passed].Add(1)
	}
}

// outcomeOf is what a rule said of a request that passes.
func outcomeOf(check *gate.Check) int {
	switch {
	case !check.Shadow:
		return passed
	case check.Granted == 0:
		return shadowRefused
	}
	return shadowPassed
}

var ruleDecisions = prometheus.NewDesc("weir_decisions_total",
	"Decisions by rule. Of requests that passed, every rule that was asked; of others, the one that decided. shadow_ is of rules that are only tried out; (claims) are the callers' own limits.",
	[]string{"rule", "outcome"}, nil)

var ruleBans = prometheus.NewDesc("weir_bans_total", "Bans that this server put, by rule.", []string{"rule"}, nil)

var ruleRivals = prometheus.NewDesc("weir_candidate_total",
	"Requests by rule, what the rule says of them, and what its candidate would.", []string{"rule", "live", "candidate"}, nil)

// rivalWords are what the rule and its candidate say.
var rivalWords = [4][2]string{{"granted", "granted"}, {"granted", "refused"}, {"refused", "granted"}, {"refused", "refused"}}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- ruleDecisions
	descriptions <- ruleBans
	descriptions <- ruleRivals
	descriptions <- ruleInfo
	descriptions <- verdictCounts
}

// Collect implements prometheus.Collector. It is not a CounterVec because that would look
// each label up for each verdict, and keep the rules of all times.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	c := m.census.Load()
	for i, rule := range c.rules {
		c.tallies[i].collect(to, rule.Name(), rule.Mode() == rules.Shadow)
		c.tallies[i].collectMore(to, rule)
	}
	c.claims.collect(to, claims, false)
	c.unknown.collect(to, unknown, false)
	m.collectVerdicts(to)
}

// collect tells of the two outcomes that are expected of a rule, also at 0, so that a rate
// has a beginning; of the others only once there are any.
func (t *tally) collect(to chan<- prometheus.Metric, name string, shadow bool) {
	for i := range outcomes {
		n := t[i].Load()
		expected := i == passed || i == refused
		if shadow {
			expected = i == shadowPassed || i == shadowRefused
		}
		if n > 0 || expected {
			to <- prometheus.MustNewConstMetric(ruleDecisions, prometheus.CounterValue, float64(n), name, outcomeNames[i])
		}
	}
}

// mostLabel is the longest label that metrics have, in bytes.
const mostLabel = 64

var ruleInfo = prometheus.NewDesc("weir_rule_info", "1 for each rule with a label of at most 64 bytes: join it by rule.", []string{"rule", "label"}, nil)

// collectMore tells of what only some rules have.
func (t *tally) collectMore(to chan<- prometheus.Metric, rule *rules.Rule) {
	if label := rule.Label(); label != "" && len(label) <= mostLabel {
		to <- prometheus.MustNewConstMetric(ruleInfo, prometheus.GaugeValue, 1, rule.Name(), label)
	}
	if rule.Bans() != nil {
		to <- prometheus.MustNewConstMetric(ruleBans, prometheus.CounterValue, float64(t[bans].Load()), rule.Name())
	}
	if rule.Candidate() == nil {
		return
	}
	for i, words := range rivalWords {
		to <- prometheus.MustNewConstMetric(ruleRivals, prometheus.CounterValue, float64(t[rival+i].Load()), rule.Name(), words[0], words[1])
	}
}
