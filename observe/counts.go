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
	other   = "(other)"   // of rules beyond mostRules
)

// mostRules is how many rules have series of their own: the first that count anything. A
// scrape of 100,000 rules takes over a second and 11 MB otherwise.
const mostRules = 2000

// A tally is the counts of one rule.
type tally struct {
	n     [counts]atomic.Uint64
	place place // written with Metrics.collecting held
}

// A place is where the counts of a rule are told. It is for good: a counter that moved
// elsewhere would look as if it had begun anew.
type place uint8

const (
	nowhere place = iota // nothing was counted yet
	own
	together // as other
)

// counted reports whether anything was.
func (t *tally) counted() bool {
	for i := range t.n {
		if t.n[i].Load() > 0 {
			return true
		}
	}
	return false
}

// add adds what another tally has.
func (t *tally) add(from *tally) {
	for i := range t.n {
		t.n[i].Add(from.n[i].Load())
	}
}

// A census is the tallies of the rules in force. A rule is found by its place, and by
// itself: verdicts of the rules before may still come.
type census struct {
	rules   []*rules.Rule
	tallies []*tally // as rules
	claims  *tally
	unknown *tally
	gone    *tally // of rules that are gone and were told together
	shown   int    // how many have series of their own; written with Metrics.collecting held
}

func newCensus() *census {
	return &census{claims: new(tally), unknown: new(tally), gone: new(tally)}
}

// next is the census of other rules. What a name has counted goes on.
func (c *census) next(set *rules.Set) *census {
	before := make(map[string]*tally, len(c.rules))
	for i, rule := range c.rules {
		before[rule.Name()] = c.tallies[i]
	}
	n := &census{rules: set.Rules(), claims: c.claims, unknown: c.unknown, gone: c.gone, tallies: make([]*tally, len(set.Rules()))}
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
		if t.place == together { // or the sum would shrink
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

// count notes a verdict. All that was asked has passed if the verdict has; of what did not
// pass only the rule that decided is counted: the others were not charged.
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
			c.of(v.Rule).n[v.Outcome].Add(1) // the gate numbers outcomes as we do
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
			c.of(check.Rule).n[outcomeOf(&check)].Add(1)
		}
		last = check.Rule
	}
	if own {
		c.claims.n[passed].Add(1)
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
	"Decisions by rule. Of requests that passed, every rule that was asked; of others, the one that decided. shadow_ is of rules that are only tried out; (claims) are the callers' own limits, (other) the rules beyond the first 2000 that counted anything.",
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
// each label up for each verdict, and keep the rules of all times. Rules that counted nothing
// have no series.
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

// placeOf gives a tally its place when it has first counted something.
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

// collect tells of the two outcomes that are expected of a rule, also at 0, so that a rate
// has a beginning; of the others only once there are any.
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

// mostLabel is the longest label that metrics have, in bytes.
const mostLabel = 64

var ruleInfo = prometheus.NewDesc("weir_rule_info", "1 for each rule with a label of at most 64 bytes: join it by rule.", []string{"rule", "label"}, nil)

// collectMore tells of what only some rules have.
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

// compared reports whether a candidate said anything.
func (t *tally) compared() bool {
	for i := range rivalWords {
		if t.n[rival+i].Load() > 0 {
			return true
		}
	}
	return false
}
