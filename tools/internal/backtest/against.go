package backtest

import (
	"cmp"
	"slices"

	"github.com/weirproject/weir/rules"
)

// A comparison compares the rules with other ones, the old rules.
type comparison struct {
	old      *other
	config   *Config
	both     int64
	newly    map[string]*Change // by the name of the rule that refuses
	examples []Different
	counts   map[[2]result]int
}

func newComparison(o *other, c *Config) *comparison {
	return &comparison{old: o, config: c, newly: make(map[string]*Change), counts: make(map[[2]result]int)}
}

// compare compares what becomes of the ith request of a batch.
func (x *comparison) compare(e *event, now result, i int) {
	before := x.old.results[i]
	switch {
	case now.stopped() == before.stopped():
		if now.stopped() {
			x.both++
		}
		return
	case now.stopped():
		x.change(nameIn(x.config.Set, now)).NewlyRefused++
	default:
		x.change(nameIn(x.config.Against, before)).NoLongerRefused++
	}
	pair := [2]result{before, now}
	if x.counts[pair]++; x.counts[pair] > 2 || len(x.examples) >= 4*maxExamples {
		return // each kind of difference has its examples
	}
	target := e.raw
	if e.query != "" {
		target += "?" + e.query
	}
	x.examples = append(x.examples, Different{Line: e.line, File: "", Time: timeOf(e.time), Client: nameOf(e.id),
		Target: target[:min(len(target), 200)], Old: nameIn(x.config.Against, before), New: nameIn(x.config.Set, now)})
	x.examples[len(x.examples)-1].file = e.file
}

func (x *comparison) change(rule string) *Change {
	if x.newly[rule] == nil {
		x.newly[rule] = &Change{Rule: rule}
	}
	return x.newly[rule]
}

// nameIn is the rule that stops a request; "passed" if no rule does.
func nameIn(set *rules.Set, r result) string {
	switch i := r.rule(); {
	case !r.stopped():
		return "passed"
	case i < 0:
		return listOfFile
	default:
		return set.Rules()[i].Name()
	}
}

// listOfFile stands for the deny list of a file where rules are named.
const listOfFile = "(deny list)"

// result is the comparison in the report.
func (x *comparison) result(stats *stats, files []File) *Against {
	a := &Against{Rules: x.config.AgainstName, Total: x.old.count, BothRefused: x.both, Examples: x.examples,
		ByRule: []Change{}}
	for i := range a.Examples {
		if file := int(a.Examples[i].file); file < len(files) {
			a.Examples[i].File = files[file].Name
		}
	}
	weight := stats.clientCounts.table.weight()
	for i := range stats.clientCounts.table.items {
		a.Total.Clients += weight
		if stats.clientCounts.table.items[i].v.has(x.old.bit) {
			a.Total.ClientsRefused += weight
		}
	}
	for _, change := range x.newly {
		a.NewlyRefused += change.NewlyRefused
		a.NoLongerRefused += change.NoLongerRefused
		a.ByRule = append(a.ByRule, *change)
	}
	slices.SortFunc(a.ByRule, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.NewlyRefused+b.NoLongerRefused, a.NewlyRefused+a.NoLongerRefused),
			cmp.Compare(a.Rule, b.Rule))
	})
	return a
}
