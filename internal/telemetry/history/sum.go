package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

// A sum adds up documents: of the intervals of a minute, or of a report over minutes and nodes. It is not safe for
// concurrent use.
type sum struct {
	from  time.Time
	step  time.Duration
	steps int // of the series; 0: there are none

	total  telemetry.Counts
	took   tally.Buckets
	series []moment
	rules  map[string]*ruleSum
	marks  []telemetry.Mark
	key    string // of which alone the counts are; "": all
}

// A moment is one step of the series of all requests.
type moment struct {
	counts telemetry.Counts
	took   tally.Buckets
}

// parts are the numbers of counts.
func parts(c *telemetry.Counts) [13]*uint64 {
	return [...]*uint64{&c.Passed, &c.Refused, &c.Denied, &c.Failed, &c.ShadowPassed, &c.ShadowRefused, &c.Degraded,
		&c.Bans, &c.Spent, &c.Returned, &c.Estimated, &c.Settled, &c.Reserved}
}

// A ruleSum is the part of one rule.
type ruleSum struct {
	counts   telemetry.Counts
	compared telemetry.Comparison
	distinct uint64
	series   columns
	keys     map[string]*telemetry.KeyRate
	classes  map[string]uint64 // refused requests
}

// columns are the series of a rule, one for each part of its counts; nil: all are 0. Most rules have one or two, and a
// sum has thousands of rules.
type columns [13][]uint64

func (c *columns) add(at, steps int, n *telemetry.Counts) {
	for i, part := range parts(n) {
		if *part == 0 {
			continue
		}
		if c[i] == nil {
			c[i] = make([]uint64, steps)
		}
		c[i][at] += *part
	}
}

func (c *columns) at(i int) (n telemetry.Counts) {
	for column, part := range parts(&n) {
		if c[column] != nil {
			*part = c[column][i]
		}
	}
	return n
}

func newSum(from time.Time, step time.Duration, steps int) *sum {
	return &sum{from: from, step: step, steps: steps, series: make([]moment, steps), rules: make(map[string]*ruleSum)}
}

// add adds a document. One outside of the series is left out.
func (s *sum) add(r *document) {
	at := 0
	if s.steps > 0 {
		if at = int(r.At.Sub(s.from) / s.step); r.At.Before(s.from) || at >= s.steps {
			return
		}
		s.series[at].counts.Add(&r.Total)
		s.series[at].took = s.series[at].took.Add(r.Took)
	}
	if s.key != "" {
		s.addKey(r, at)
		return
	}
	s.total.Add(&r.Total)
	s.took = s.took.Add(r.Took)
	for i := range r.Rules {
		s.rule(r.Rules[i].Name).add(&r.Rules[i], at, s.steps)
	}
	s.marks = append(s.marks, r.Marks...)
}

// addKey adds the part of a key.
func (s *sum) addKey(r *document, at int) {
	f := telemetry.Filter{Key: s.key}
	for i := range r.Rules {
		for _, k := range r.Rules[i].Top {
			if f.Matches(&telemetry.Sample{Key: k.Key}) {
				n := telemetry.Counts{Passed: k.Passed, Refused: k.Refused}
				n.Spent, n.Returned = uint64(max(0, k.Units)), uint64(max(0, -k.Units))
				s.rule(r.Rules[i].Name).add(&telemetry.RuleRecord{Counts: n}, at, s.steps)
			}
		}
	}
}

func (s *sum) rule(name string) *ruleSum {
	r := s.rules[name]
	if r == nil {
		r = new(ruleSum)
		s.rules[name] = r
	}
	return r
}

func (r *ruleSum) add(from *telemetry.RuleRecord, at, steps int) {
	r.counts.Add(&from.Counts)
	if steps > 0 {
		r.series.add(at, steps, &from.Counts)
	}
	r.compared.Add(&from.Compared)
	r.distinct = max(r.distinct, from.Distinct)
	for class, n := range from.Classes {
		if r.classes == nil {
			r.classes = make(map[string]uint64)
		}
		if _, known := r.classes[class]; known || len(r.classes) < maxClasses {
			r.classes[class] += n
		}
	}
	if r.keys == nil && len(from.Top) > 0 {
		r.keys = make(map[string]*telemetry.KeyRate)
	}
	for i := range from.Top {
		k := &from.Top[i]
		sum := r.keys[k.Key]
		if sum == nil {
			sum = &telemetry.KeyRate{Key: k.Key, Hidden: k.Hidden}
			r.keys[k.Key] = sum
		}
		sum.Passed += k.Passed
		sum.Refused += k.Refused
		sum.Units += k.Units
	}
}

// top returns the keys with most refused requests, and then the keys with most passed ones.
func (r *ruleSum) top(most int) []telemetry.KeyRate {
	list := make([]telemetry.KeyRate, 0, len(r.keys))
	refused := r.counts.Refused + r.counts.ShadowRefused // the keys of a shadow rule have what it would refuse
	for _, k := range r.keys {
		one := *k
		if refused > 0 {
			one.Share = min(1, float64(k.Refused)/float64(refused))
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b telemetry.KeyRate) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Passed, a.Passed), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(len(list), most)]
}

// keysPerRule is the maximum number of keys of a rule in a document: half by refused requests, half by units or, where
// there are none, by passed requests.
const keysPerRule = 20

// document returns the sum as one document.
func (s *sum) document() *document {
	out := &document{Record: telemetry.Record{At: s.from, Step: s.step, Total: s.total, Took: s.took},
		Marks: slices.Clone(s.marks)}
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		r := s.rules[name]
		out.Rules = append(out.Rules, telemetry.RuleRecord{Name: name, Counts: r.counts, Compared: r.compared,
			Distinct: r.distinct, Top: r.leading(), Classes: maps.Clone(r.classes)})
	}
	return out
}

// leading returns the keys of a document.
func (r *ruleSum) leading() []telemetry.KeyRate {
	list := r.top(len(r.keys))
	if len(list) <= keysPerRule {
		return list
	}
	refused, rest := list[:keysPerRule/2], list[keysPerRule/2:]
	slices.SortStableFunc(rest, func(a, b telemetry.KeyRate) int {
		return cmp.Or(cmp.Compare(max(b.Units, -b.Units), max(a.Units, -a.Units)), cmp.Compare(b.Passed, a.Passed))
	})
	return append(refused, rest[:keysPerRule-len(refused)]...)
}
