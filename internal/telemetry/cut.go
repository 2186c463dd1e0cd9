package telemetry

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirproject/weir/internal/tally"
)

const (
	maxTopBound = 20   // keys of a RuleRecord by refused and by passed requests
	minShare    = 1000 // a key with less than 1/1000 of the requests of its rule is not listed
)

// MostRules are the rules of a set that have their own counts in a Record: the first ones, so that it is the same
// rules in each interval and on all nodes. The counts of the others are in OtherRules.
const (
	MostRules  = 16384
	OtherRules = "(other)"
)

// counted has the values read from the counters of a rule.
type counted struct {
	name string
	n    tally.Counts
}

// Cut returns the counts since the last Cut, or New, and begins the next interval. The counts are exact: each
// request is counted once.
func (r *Recorder) Cut(at time.Time) *Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick(at)
	since := r.cut
	r.cut = at
	total, took := r.total, r.took
	rules := r.read()
	reserved := r.reserved(at.Sub(since))
	record := &Record{At: since, Step: at.Sub(since), Total: countsOf(r.total.Minus(total)),
		Took: r.took.Minus(took), Rules: r.records(rules, reserved)}
	for i := range record.Rules {
		record.Total.Bans += record.Rules[i].Counts.Bans
	}
	watched := make(map[string]*watched, len(r.watched))
	for _, w := range r.watched {
		watched[w.rule.Name()] = w
	}
	classes := r.classes()
	for i := range record.Rules {
		record.Rules[i].Classes = classes[record.Rules[i].Name]
		if w := watched[record.Rules[i].Name]; w != nil {
			r.keysOf(w, &record.Rules[i])
		}
	}
	for _, w := range r.watched {
		w.next(at.Unix())
	}
	r.makeRoom(rules)
	return record
}

// reserved returns the units of each rule that are reserved now, times the seconds of an interval.
func (r *Recorder) reserved(step time.Duration) map[string]uint64 {
	if r.Reserved == nil {
		return nil
	}
	list := make(map[string]uint64)
	for name, units := range r.Reserved() {
		list[name] = uint64(float64(units) * step.Seconds())
	}
	return list
}

// read returns the counts of rules since the last call, by name.
func (r *Recorder) read() map[string]tally.Counts {
	rules := make(map[string]tally.Counts)
	present := make(map[*tally.Rule]counted, len(r.before))
	r.total, r.took = r.Metrics.Read(func(name string, n *tally.Rule) {
		now := n.Read()
		if now == (tally.Counts{}) {
			return
		}
		present[n] = counted{name, now}
		if diff := now.Minus(r.before[n].n); diff != (tally.Counts{}) {
			rules[name] = rules[name].Plus(diff)
		}
	})
	for n, was := range r.before { // those of removed rules get the counts of decisions that were under way
		if _, is := present[n]; is {
			continue
		}
		if now := n.Read(); now != was.n {
			rules[was.name] = rules[was.name].Plus(now.Minus(was.n))
			present[n] = counted{was.name, now}
		}
	}
	r.before = present
	return rules
}

// classes returns the refusals of each class since the last call, by rule.
func (r *Recorder) classes() map[string]map[string]uint64 {
	since, now := make(map[string]map[string]uint64), make(map[string]map[string]uint64)
	for i := range *r.watching.Load() {
		rule := (*r.watching.Load())[i].rule
		if len(rule.Classes()) == 0 {
			continue
		}
		name := rule.Name()
		now[name] = r.Metrics.Refused(rule)
		for class, n := range now[name] {
			if diff := n - r.refusedBefore[name][class]; diff > 0 && diff <= n {
				if since[name] == nil {
					since[name] = make(map[string]uint64)
				}
				since[name][class] = diff
			}
		}
	}
	r.refusedBefore = now
	return since
}

// records are the records of the rules, sorted by name.
func (r *Recorder) records(rules map[string]tally.Counts, reserved map[string]uint64) []RuleRecord {
	for name := range reserved {
		rules[name] = rules[name].Plus(tally.Counts{}) // it is listed too
	}
	folded := make(map[string]bool)
	places := *r.watching.Load()
	for i := MostRules; i < len(places); i++ {
		folded[places[i].rule.Name()] = true
	}
	list := make([]RuleRecord, 0, len(rules))
	rest := RuleRecord{Name: OtherRules}
	for name, n := range rules {
		one := RuleRecord{Name: name, Counts: countsOf(n), Compared: comparisonOf(n)}
		one.Counts.Reserved = reserved[name]
		if !folded[name] {
			list = append(list, one)
			continue
		}
		rest.Counts.Add(&one.Counts)
		rest.Compared.Add(&one.Compared)
	}
	if rest.Counts != (Counts{}) {
		list = append(list, rest)
	}
	slices.SortFunc(list, func(a, b RuleRecord) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func countsOf(n tally.Counts) Counts {
	return Counts{Passed: n[tally.Passed], Refused: n[tally.Refused], Denied: n[tally.Denied], Failed: n[tally.Failed],
		ShadowPassed: n[tally.ShadowPassed], ShadowRefused: n[tally.ShadowRefused], Degraded: n[tally.Degraded],
		Bans: n[tally.Bans], Spent: n[tally.Units+tally.Spent], Returned: n[tally.Units+tally.Back],
		Estimated: n[tally.Units+tally.Estimated], Settled: n[tally.Units+tally.Settled]}
}

func comparisonOf(n tally.Counts) Comparison {
	c := n[tally.Compared:]
	return Comparison{Both: c[0], NewlyRefused: c[1], NewlyGranted: c[2], Neither: c[3]}
}

// requests are the requests that a limit decided.
func (c *Counts) requests() uint64 { return c.Passed + c.Refused + c.ShadowPassed + c.ShadowRefused }

// Add adds the counts of another interval, rule or node.
func (c *Counts) Add(o *Counts) {
	c.Passed += o.Passed
	c.Refused += o.Refused
	c.Denied += o.Denied
	c.Failed += o.Failed
	c.ShadowPassed += o.ShadowPassed
	c.ShadowRefused += o.ShadowRefused
	c.Degraded += o.Degraded
	c.Bans += o.Bans
	c.Spent += o.Spent
	c.Returned += o.Returned
	c.Estimated += o.Estimated
	c.Settled += o.Settled
	c.Reserved += o.Reserved
}

// Add adds the counts of another interval or node.
func (c *Comparison) Add(o *Comparison) {
	c.Both += o.Both
	c.NewlyRefused += o.NewlyRefused
	c.NewlyGranted += o.NewlyGranted
	c.Neither += o.Neither
}

// keysOf fills the number of keys and the top ones of an interval.
func (r *Recorder) keysOf(w *watched, record *RuleRecord) {
	var list []*entry
	distinct := 0.0
	least, dear := record.Counts.requests()/minShare, record.Counts.Spent/minShare
	for i := range w.entries {
		e := &w.entries[i]
		distinct += w.weight(e)
		if (e.sum() >= max(1, least) || max(e.spent, -e.spent) > int64(dear)) && e.key != "" {
			list = append(list, e)
		}
	}
	record.Distinct = uint64(distinct)
	seen := make(map[*entry]bool, 2*maxTopBound)
	for _, count := range []func(*entry) int64{
		func(e *entry) int64 { return int64(e.refused) },
		func(e *entry) int64 { return int64(e.passed) },
		func(e *entry) int64 { return max(e.spent, -e.spent) },
	} {
		slices.SortFunc(list, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(count(b), count(a)), cmp.Compare(a.key, b.key))
		})
		for _, e := range list[:min(maxTopBound, len(list))] {
			if count(e) <= 0 || seen[e] {
				continue
			}
			seen[e] = true
			key, hidden := r.shown(e.key)
			record.Top = append(record.Top, KeyRate{Key: key, Hidden: hidden, Passed: uint64(e.passed),
				Refused: uint64(e.refused), Units: e.spent})
		}
	}
}

// Watched are the names of the rules with counted keys.
func (r *Recorder) Watched() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make(map[string]bool, len(r.watched))
	for _, w := range r.watched {
		names[w.rule.Name()] = true
	}
	return names
}

// makeRoom ends the watch of the rule with the fewest requests in an interval, if a rule that is not watched had
// more.
func (r *Recorder) makeRoom(rules map[string]tally.Counts) {
	if len(r.watched) < maxWatched {
		return
	}
	requests := func(name string) uint64 {
		c := countsOf(rules[name])
		return c.requests()
	}
	least := slices.MinFunc(r.watched, func(a, b *watched) int {
		return cmp.Compare(requests(a.rule.Name()), requests(b.rule.Name()))
	})
	places := *r.watching.Load()
	var comes *place
	most := requests(least.rule.Name())
	for i := range places {
		p := &places[i]
		if n := requests(p.rule.Name()); p.table.Load() == nil && p.keyed && n > most {
			comes, most = p, n
		}
	}
	if comes == nil {
		return
	}
	least.place.table.Store(nil)
	r.watched[slices.Index(r.watched, least)] = newWatched(comes, r.Metrics.Of(comes.rule), least.scale, r.cut.Unix())
}
