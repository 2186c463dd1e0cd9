package observe

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/rules"
)

var outcomeNames = [tally.Outcomes]string{"passed", "refused", "denied", "failed", "shadow_passed", "shadow_refused"}

// Names of counts that belong to no rule in force. Names of rules have no brackets.
const (
	claims  = "(claims)"  // claims that callers bring
	unknown = "(unknown)" // rules that are no longer in force
	other   = "(other)"   // rules beyond maxRules
)

// maxRules bounds the rules that have their own series: the first ones that count anything. Without
// the bound a scrape of 100,000 rules takes over a second and 11 MB.
const maxRules = 2000

// A counted rule has its counts and their place.
type counted struct {
	tally.Rule
	place place // guarded by Metrics.collecting

	classes atomic.Pointer[refusalsByClass] // nil: the rule has no classes
}

// refusalsByClass are the refusals of each class of a rule. The map is constant.
type refusalsByClass map[string]*atomic.Uint64

// sort sets the classes that the rule has now. Counts of classes that it had before go on.
func (t *counted) sort(classes []rules.Class) {
	before := t.classes.Load()
	if before == nil && len(classes) == 0 {
		return
	}
	next := make(refusalsByClass, len(classes))
	for _, class := range classes {
		n := new(atomic.Uint64)
		if before != nil && (*before)[class.Name] != nil {
			n = (*before)[class.Name]
		}
		next[class.Name] = n
	}
	t.classes.Store(&next)
}

// refuse counts a refusal of a class.
func (t *counted) refuse(class *rules.Class) {
	if of := t.classes.Load(); of != nil && class != nil && (*of)[class.Name] != nil {
		(*of)[class.Name].Add(1)
	}
}

// Refused are the refusals by class of a rule in force; nil if it has no classes.
func (m *Metrics) Refused(rule *rules.Rule) map[string]uint64 {
	of := m.ruleTallies.Load().of(rule).classes.Load()
	if of == nil {
		return nil
	}
	refused := make(map[string]uint64, len(*of))
	for class, n := range *of {
		refused[class] = n.Load()
	}
	return refused
}

// A place has the name of exported counts. It never changes: a counter that moved to
// another series would look like a reset.
type place uint8

const (
	nowhere  place = iota // no count yet
	own                   // under the name of the rule
	together              // under other
)

// ruleTallies has the tallies of the rules in force. A verdict by rules that were replaced meanwhile counts for the
// rule of the same name, or as unknown if there is none.
type ruleTallies struct {
	rules   []*rules.Rule
	tallies []*counted // by index of rules
	names   map[string]*counted
	claims  *counted
	unknown *counted
	gone    *counted // sum of removed rules that were exported as other
	shown   int      // rules with series of their own; guarded by Metrics.collecting
}

func newRuleTallies() *ruleTallies {
	return &ruleTallies{claims: new(counted), unknown: new(counted), gone: new(counted)}
}

// next returns the tallies of another rule set. The counts of a name continue.
func (c *ruleTallies) next(set *rules.Set) *ruleTallies {
	n := &ruleTallies{rules: set.Rules(), claims: c.claims, unknown: c.unknown, gone: c.gone}
	n.tallies, n.names = make([]*counted, len(n.rules)), make(map[string]*counted, len(n.rules))
	for i, rule := range n.rules {
		t := c.names[rule.Name()]
		if t == nil {
			t = new(counted)
		}
		t.sort(rule.Classes())
		n.names[rule.Name()] = t
		if t.place == own {
			n.shown++
		}
		n.tallies[i] = t
	}
	for name, t := range c.names {
		if n.names[name] == nil && t.place == together { // keep it in the sum, which must not shrink
			n.gone.Add(&t.Rule)
		}
	}
	return n
}

func (c *ruleTallies) of(rule *rules.Rule) *counted {
	if rule == nil {
		return c.claims
	}
	if i := rule.Index(); i < len(c.rules) && c.rules[i] == rule {
		return c.tallies[i]
	}
	if t := c.names[rule.Name()]; t != nil {
		return t
	}
	return c.unknown
}

// count counts a verdict. A granted request counts for each of its rules; a refused one only for
// the rule that decided, because the others were not charged.
func (c *ruleTallies) count(v *gate.Verdict) {
	for _, ban := range v.Banned() {
		c.of(ban.Rule).N[tally.Bans].Add(1)
	}
	for _, d := range v.Differences() {
		t := c.of(d.Rule)
		both, refused, granted, neither := d.Parts()
		for i, n := range [...]int64{both, refused, granted, neither} {
			t.N[tally.Compared+i].Add(uint64(n))
		}
	}
	for _, rule := range v.Unstated() {
		c.of(rule).N[tally.Unstated].Add(1)
	}
	if v.Outcome != gate.Passed {
		if v.Rule != nil || v.Reason == gate.LimitExceeded || v.Reason == gate.StoreFailed {
			c.add(v, v.Rule, int(v.Outcome)) // gate.Outcome has the same numbers
			if class := v.Class(); class != nil && v.Outcome == gate.Refused {
				c.of(v.Rule).refuse(class)
			}
		}
		return
	}
	for i := range v.Len() {
		if rule, _, shadow, granted, ok := v.Counted(i); ok {
			c.add(v, rule, outcomeOf(shadow, granted))
			if rule != nil && rule.Metered() {
				c.spend(v, i, rule)
			}
		}
	}
}

// spend counts the units of a check, unless they are an estimate.
func (c *ruleTallies) spend(v *gate.Verdict, i int, rule *rules.Rule) {
	if units, estimated := v.Units(i); units > 0 && !estimated {
		c.of(rule).N[tally.Units+tally.Spent].Add(uint64(units))
	}
}

// Counting counts the end of a reservation, as an observer for gate.WithCountObserver. It does not allocate.
func (m *Metrics) Counting(c *gate.Counting) {
	t := m.ruleTallies.Load().of(c.Rule)
	t.N[tally.Counted+int(c.Result)].Add(1)
	t.N[tally.Bans].Add(uint64(len(c.Banned)))
	if c.Rule == nil || !c.Rule.Metered() {
		return
	}
	t.Settle(uint64(c.Estimate), uint64(c.Units), c.Estimated)
	if c.Result == gate.Settled {
		t.N[tally.Units+tally.Estimated].Add(uint64(c.Estimate))
		t.N[tally.Units+tally.Settled].Add(uint64(c.Units))
	}
}

// add counts a verdict for a rule.
func (c *ruleTallies) add(v *gate.Verdict, rule *rules.Rule, outcome int) {
	t := c.of(rule)
	t.N[outcome].Add(1)
	if v.Degraded() {
		t.N[tally.Degraded].Add(1)
	}
}

// outcomeOf is the outcome of one rule for a granted request.
func outcomeOf(shadow, granted bool) int {
	switch {
	case !shadow:
		return tally.Passed
	case granted:
		return tally.ShadowPassed
	}
	return tally.ShadowRefused
}

var ruleDecisions = prometheus.NewDesc("weir_decisions_total",
	"Decisions, by rule and outcome. A granted request counts for all its rules, a refused one for the "+
		"rule that decided. shadow_ outcomes are of rules in shadow mode. (claims): limits that callers bring; "+
		"(unknown): rules removed meanwhile; (other): rules beyond the first 2000 with any count.",
	[]string{"rule", "outcome"}, nil)

var ruleBans = prometheus.NewDesc("weir_bans_total", "Bans placed by this server, by rule.", []string{"rule"}, nil)

var ruleCountings = prometheus.NewDesc("weir_count_if_total",
	"Requests charged by rules with count_if whose response is known, by rule and result: kept, no_response (kept: "+
		"the client left before), given_back, lost (the store did not take the units back: they stay charged). Those "+
		"that passed and are missing here are under way, or came by a front end without responses.",
	[]string{"rule", "result"}, nil)

var ruleUnfinished = prometheus.NewDesc("weir_unfinished_total",
	"Requests of rules with count_if or hold_until: done that were sent to the service, and whose response was not "+
		"seen: the client left or broke off its body, a timeout passed, or the connection broke. They stay counted, "+
		"and hold their leases.",
	[]string{"rule"}, nil)

var ruleUnstated = prometheus.NewDesc("weir_cost_unstated_total",
	"Requests of a rule with cost.from that do not state their cost, so that it was the default: the field is "+
		"missing, or the body is too long, compressed or not JSON.", []string{"rule"}, nil)

var ruleClasses = prometheus.NewDesc("weir_class_refusals_total",
	"Refusals of rules with reserve, by rule and class.", []string{"rule", "class"}, nil)

// ruleUnits are the metrics of the units of a rule, in the order of their counts.
var ruleUnits = [...]*prometheus.Desc{
	unitsDesc("weir_units_total", "Units that requests of a rule have cost, of rules with a unit or with costs that "+
		"differ. An estimate is counted when it is settled."),
	unitsDesc("weir_units_returned_total", "Units of weir_units_total that were given back: they were charged by "+
		"reservations of the API, or did not count by count_if."),
	unitsDesc("weir_units_estimated_total", "Units that were charged as estimates, of requests of which the cost was "+
		"settled."),
	unitsDesc("weir_units_settled_total", "Units that the same requests have cost."),
}

func unitsDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"rule", "unit"}, nil)
}

var ruleLimits = prometheus.NewDesc("weir_limit",
	"Units of each limit of a rule in its period, as rule files state them; of a concurrency limit, at a time.",
	[]string{"rule", "limit"}, nil)

var rulePeriods = prometheus.NewDesc("weir_limit_period_seconds",
	"Period of each limit of a rule. Calendars and concurrency limits have none.", []string{"rule", "limit"}, nil)

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
	descriptions <- ruleCountings
	descriptions <- ruleUnfinished
	descriptions <- ruleUnstated
	descriptions <- ruleClasses
	for _, d := range ruleUnits {
		descriptions <- d
	}
	descriptions <- ruleInfo
	descriptions <- ruleLimits
	descriptions <- rulePeriods
	descriptions <- verdictCounts
	descriptions <- storeTook
	descriptions <- degradedCounts
	descriptions <- decisionTook
}

// Collect implements prometheus.Collector. A CounterVec would look each label up for each verdict,
// and keep removed rules. A rule without counts has no series.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.collecting.Lock()
	defer m.collecting.Unlock()
	c := m.ruleTallies.Load()
	rest := new(counted)
	rest.Add(&c.gone.Rule)
	labels := 0
	for i, rule := range c.rules {
		if label := rule.Label(); label != "" && len(label) <= maxLabel && labels < maxRules {
			to <- prometheus.MustNewConstMetric(ruleInfo, prometheus.GaugeValue, 1, rule.Name(), label)
			labels++
		}
		switch t := c.tallies[i]; c.placeOf(t) {
		case own:
			t.collect(to, rule.Name(), rule.Mode() == rules.Shadow)
			t.collectMore(to, rule.Name(), rule.Bans() != nil, rule.Candidate() != nil, rule.HasCountIf())
			t.collectUnfinished(to, rule.Name(), rule.HasCountIf() || rule.HoldUntilDone())
			for class, n := range m.Refused(rule) {
				to <- counter(ruleClasses, n, rule.Name(), class)
			}
			t.collectUnits(to, rule)
			collectLimits(to, rule)
		case together:
			rest.Add(&t.Rule)
		}
	}
	for name, t := range map[string]*counted{claims: c.claims, unknown: c.unknown, other: rest} {
		if t.Any() {
			t.collect(to, name, false)
		}
	}
	rest.collectMore(to, other, rest.N[tally.Bans].Load() > 0, rest.any(tally.Compared), rest.any(tally.Counted))
	rest.collectUnfinished(to, other, rest.unfinished() > 0)
	m.collectVerdicts(to)
	m.collectStore(to)
}

// Read calls each with the name and the counters of each rule in force, of claims that callers bring, and of rules that
// were replaced meanwhile. It returns the requests decided, by gate.Outcome, and their latencies. It is for
// internal/telemetry, so that a decision is counted once.
func (m *Metrics) Read(each func(name string, n *tally.Rule)) (total tally.Counts, took tally.Buckets) {
	c := m.ruleTallies.Load()
	for i, rule := range c.rules {
		each(rule.Name(), &c.tallies[i].Rule)
	}
	each(claims, &c.claims.Rule)
	each(unknown, &c.unknown.Rule)
	for reason := range m.verdicts {
		for outcome := range m.verdicts[reason] {
			total[outcome] += m.verdicts[reason][outcome].Load()
		}
	}
	total[tally.Degraded] = m.degraded.Load()
	took, _ = m.took.Read()
	return total, took
}

// Of returns the counters of a rule.
func (m *Metrics) Of(rule *rules.Rule) *tally.Rule { return &m.ruleTallies.Load().of(rule).Rule }

// placeOf returns the place of a tally, which it gets with its first count.
func (c *ruleTallies) placeOf(t *counted) place {
	if t.place == nowhere && t.Any() {
		t.place = together
		if c.shown < maxRules {
			t.place = own
			c.shown++
		}
	}
	return t.place
}

// collect exports the two usual outcomes also at 0, so that a rate has a start, and the others once
// they occur.
func (t *counted) collect(to chan<- prometheus.Metric, name string, shadow bool) {
	for i := range tally.Outcomes {
		n := t.N[i].Load()
		expected := i == tally.Passed || i == tally.Refused
		if shadow {
			expected = i == tally.ShadowPassed || i == tally.ShadowRefused
		}
		if n > 0 || expected {
			to <- counter(ruleDecisions, n, name, outcomeNames[i])
		}
	}
}

// maxLabel is the maximum length of an exported label, in bytes.
const maxLabel = 64

var ruleInfo = prometheus.NewDesc("weir_rule_info",
	"Label of each rule that has one of at most 64 bytes; the value is 1. Join by rule.",
	[]string{"rule", "label"}, nil)

// collectLimits exports the limits of a rule, so that its use can be computed.
func collectLimits(to chan<- prometheus.Metric, rule *rules.Rule) {
	for _, limit := range rule.Limits() {
		gauge := func(d *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, rule.Name(), limit.Name())
		}
		gauge(ruleLimits, float64(limit.Units()))
		if period := time.Duration(limit.Period()) * time.Microsecond; period > 0 && !limit.Leases() {
			gauge(rulePeriods, period.Seconds())
		}
	}
}

// collectMore exports bans, comparisons and ends of reservations, which only some rules have.
func (t *counted) collectMore(to chan<- prometheus.Metric, name string, banned, compared, byResponse bool) {
	if banned {
		to <- counter(ruleBans, t.N[tally.Bans].Load(), name)
	}
	if n := t.N[tally.Unstated].Load(); n > 0 {
		to <- counter(ruleUnstated, n, name)
	}
	for i, words := range rivalWords {
		if compared {
			to <- counter(ruleRivals, t.N[tally.Compared+i].Load(), name, words[0], words[1])
		}
	}
	for result := gate.Kept; byResponse && result <= gate.Lost; result++ {
		to <- counter(ruleCountings, t.N[tally.Counted+int(result)].Load(), name, result.String())
	}
}

// collectUnits exports the units of a metered rule. Most rules settle no units.
func (t *counted) collectUnits(to chan<- prometheus.Metric, rule *rules.Rule) {
	for i, d := range ruleUnits {
		n := t.N[tally.Units+i].Load()
		if rule.Metered() && (n > 0 || i == tally.Spent || rule.Settles() && i >= tally.Estimated) {
			to <- counter(d, n, rule.Name(), rule.Unit().String())
		}
	}
}

// collectUnfinished exports the requests without a seen response.
func (t *counted) collectUnfinished(to chan<- prometheus.Metric, name string, matters bool) {
	if matters {
		to <- counter(ruleUnfinished, t.unfinished(), name)
	}
}

func (t *counted) unfinished() uint64 {
	return t.N[tally.Counted+int(gate.NoResponse)].Load() + t.N[tally.Counted+int(gate.Held)].Load()
}

// any reports whether one of the four counts from an index on is above 0.
func (t *counted) any(from int) bool {
	for i := range 4 {
		if t.N[from+i].Load() > 0 {
			return true
		}
	}
	return false
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
