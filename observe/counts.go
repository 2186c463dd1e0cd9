package observe

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// Indexes of the counts of a rule. Shadow rules have their own: adding them to the real refusals
// would mislead.
const (
	passed = iota
	refused
	denied
	failed
	shadowPassed
	shadowRefused
	outcomes

	bans   = outcomes // bans placed; not an outcome
	rival  = bans + 1 // the four comparisons with a candidate, in the order of gate.Difference.Parts
	counts = rival + 4
)

var outcomeNames = [outcomes]string{"passed", "refused", "denied", "failed", "shadow_passed", "shadow_refused"}

// Names of counts that belong to no rule in force. Names of rules have no brackets.
const (
	claims  = "(claims)"  // claims that callers bring
	unknown = "(unknown)" // rules that are no longer in force
	other   = "(other)"   // rules beyond mostRules
)

// mostRules bounds the rules with series of their own: the first ones that count anything. Without
// the bound a scrape of 100,000 rules takes over a second and 11 MB.
const mostRules = 2000

// A tally has the counts of one rule.
type tally struct {
	n     [counts]atomic.Uint64
	place place // guarded by Metrics.collecting
}

// A place says under which name counts are exported. It never changes: a counter that moved to
// another series would look like a reset.
type place uint8

const (
	nowhere  place = iota // no count yet
	own                   // under the name of the rule
	together              // under other
)

// counted reports whether any count is above 0.
func (t *tally) counted() bool {
	for i := range t.n {
		if t.n[i].Load() > 0 {
			return true
		}
	}
	return false
}

// add adds the counts of another tally.
func (t *tally) add(from *tally) {
	for i := range t.n {
		t.n[i].Add(from.n[i].Load())
	}
}

// A census has the tallies of the rules in force. Verdicts by rules that were replaced meanwhile
// still arrive: they count as unknown.
type census struct {
	rules   []*rules.Rule
	tallies []*tally // by index of rules
	claims  *tally
	unknown *tally
	gone    *tally // sum of removed rules that were exported as other
	shown   int    // rules with series of their own; guarded by Metrics.collecting
}

func newCensus() *census {
	return &census{claims: new(tally), unknown: new(tally), gone: new(tally)}
}

// next is the census of another rule set. The counts of a name continue.
func (c *census) next(set *rules.Set) *census {
	before := make(map[string]*tally, len(c.rules))
	for i, rule := range c.rules {
		before[rule.Name()] = c.tallies[i]
	}
	n := &census{rules: set.Rules(), claims: c.claims, unknown: c.unknown, gone: c.gone}
	n.tallies = make([]*tally, len(n.rules))
	for i, rule := range n.rules {
		t := before[rule.Name()]
		delete(before, rule.Name())
		if t == nil {
			t = new(tally)
		}
		if t.place == own {
			n.shown++
		}
		n.tallies[i] = t
	}
	for _, t := range before {
		if t.place == together { // keep it in the sum, which must not shrink
			n.gone.add(t)
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

// count counts a verdict. A granted request counts for each of its rules; a refused one only for
// the rule that decided, because the others were not charged.
func (c *census) count(v *gate.Verdict) {
	for _, ban := range v.Banned() {
		c.of(ban.Rule).n[bans].Add(1)
	}
	for _, d := range v.Differences() {
		t := c.of(d.Rule)
		both, refused, granted, neither := d.Parts()
		for i, n := range [...]int64{both, refused, granted, neither} {
			t.n[rival+i].Add(uint64(n))
		}
	}
	if v.Outcome != gate.Passed {
		if v.Rule != nil || v.Reason == gate.LimitExceeded || v.Reason == gate.StoreFailed {
			c.of(v.Rule).n[v.Outcome].Add(1) // gate.Outcome has the same numbers
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
		case check.Rule != last: // the limits of one rule are adjacent, and granted together
			c.of(check.Rule).n[outcomeOf(&check)].Add(1)
		}
		last = check.Rule
	}
	if own {
		c.claims.n[passed].Add(1)
	}
}

// outcomeOf is the outcome of one rule for a granted request.
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
	"Decisions, by rule and outcome. A granted request counts for all its rules, a refused one for the "+
		"rule that decided. shadow_ outcomes are of rules in shadow mode. (claims): limits that callers bring; "+
		"(unknown): rules replaced meanwhile; (other): rules beyond the first 2000 with any count.",
	[]string{"rule", "outcome"}, nil)

var ruleBans = prometheus.NewDesc("weir_bans_total", "Bans placed by this server, by rule.", []string{"rule"}, nil)

var ruleRivals = prometheus.NewDesc("weir_candidate_total",
	"Requests by rule, decision of the rule (live) and decision of its candidate.",
	[]string{"rule", "live", "candidate"}, nil)

// rivalWords are the decisions of the rule and of its candidate.
var rivalWords = [4][2]string{
	{"granted", "granted"},
	{"granted", "refused"},
	{"refused", "granted"},
	{"refused", "refused"},
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- ruleDecisions
	descriptions <- ruleBans
	descriptions <- ruleRivals
	descriptions <- ruleInfo
	descriptions <- verdictCounts
}

// Collect implements prometheus.Collector. A CounterVec would look each label up for each verdict,
// and keep removed rules. A rule without counts has no series.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.collecting.Lock()
	defer m.collecting.Unlock()
	c := m.census.Load()
	rest := new(tally)
	rest.add(c.gone)
	labels := 0
	for i, rule := range c.rules {
		if label := rule.Label(); label != "" && len(label) <= mostLabel && labels < mostRules {
			to <- prometheus.MustNewConstMetric(ruleInfo, prometheus.GaugeValue, 1, rule.Name(), label)
			labels++
		}
		switch t := c.tallies[i]; c.placeOf(t) {
		case own:
			t.collect(to, rule.Name(), rule.Mode() == rules.Shadow)
			t.collectMore(to, rule.Name(), rule.Bans() != nil, rule.Candidate() != nil)
		case together:
			rest.add(t)
		}
	}
	for name, t := range map[string]*tally{claims: c.claims, unknown: c.unknown, other: rest} {
		if t.counted() {
			t.collect(to, name, false)
		}
	}
	rest.collectMore(to, other, rest.n[bans].Load() > 0, rest.compared())
	m.collectVerdicts(to)
}

// placeOf returns the place of a tally, which it gets with its first count.
func (c *census) placeOf(t *tally) place {
	if t.place == nowhere && t.counted() {
		t.place = together
		if c.shown < mostRules {
			t.place = own
			c.shown++
		}
	}
	return t.place
}

// collect exports the two usual outcomes also at 0, so that a rate has a start, and the others once
// they occur.
func (t *tally) collect(to chan<- prometheus.Metric, name string, shadow bool) {
	for i := range outcomes {
		n := t.n[i].Load()
		expected := i == passed || i == refused
		if shadow {
			expected = i == shadowPassed || i == shadowRefused
		}
		if n > 0 || expected {
			to <- counter(ruleDecisions, n, name, outcomeNames[i])
		}
	}
}

// mostLabel is the maximum length of an exported label, in bytes.
const mostLabel = 64

var ruleInfo = prometheus.NewDesc("weir_rule_info",
	"Label of each rule that has one of at most 64 bytes; the value is 1. Join by rule.",
	[]string{"rule", "label"}, nil)

// collectMore exports bans and comparisons, which only some rules have.
func (t *tally) collectMore(to chan<- prometheus.Metric, name string, banned, compared bool) {
	if banned {
		to <- counter(ruleBans, t.n[bans].Load(), name)
	}
	if !compared {
		return
	}
	for i, words := range rivalWords {
		to <- counter(ruleRivals, t.n[rival+i].Load(), name, words[0], words[1])
	}
}

// compared reports whether a candidate was compared.
func (t *tally) compared() bool {
	for i := range rivalWords {
		if t.n[rival+i].Load() > 0 {
			return true
		}
	}
	return false
}
