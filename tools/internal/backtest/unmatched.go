package backtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/rules"
)

// unmatched counts the requests that meet each condition of the rules without a match so far.
type unmatched struct {
	config *Config
	stats  *stats
	rules  []int // their indices
	set    *rules.Set
	parts  []conditionCount // in the order of set; their rules' order is that of rules
	values values
	buffer []*rules.Rule
	seen   int64
}

// A conditionCount is how many requests meet a condition of a rule.
type conditionCount struct {
	rules.Condition
	rule int
	met  int64
}

// maxProbed bounds the rules with counted conditions.
const maxProbed = 200

func newUnmatched(c *Config, s *stats) *unmatched {
	u := &unmatched{config: c, stats: s}
	for i := range s.rules {
		if s.rules[i].rule.Enabled() && len(u.rules) < maxProbed {
			u.rules = append(u.rules, i)
		}
	}
	return u
}

// observe counts a batch, after the rules have matched it. Most rules match some request of the first batch, and cost
// no time from then on.
func (u *unmatched) observe(events []event) {
	still := slices.DeleteFunc(slices.Clone(u.rules), func(i int) bool { return u.stats.rules[i].count.Requests > 0 })
	if len(still) != len(u.rules) || u.set == nil && len(still) > 0 {
		u.rules = still
		u.probe()
	}
	u.seen += int64(len(events))
	if len(u.parts) == 0 {
		return
	}
	var r rules.Request
	for i := range events {
		e := &events[i]
		e.request(&r)
		if r.Attributes == nil {
			u.values.Request = webvalues.Request{Host: e.host, RawQuery: e.query, Fields: &e.fields}
			r.Attributes = &u.values
		}
		u.config.Set.SetRoute(&r)
		u.buffer = u.set.Match(&r, u.buffer[:0])
		for _, rule := range u.buffer {
			u.parts[rule.Index()].met++
		}
	}
}

// probe makes a rule of each condition.
func (u *unmatched) probe() {
	old := u.parts
	u.parts = nil
	file := &rules.File{Server: rules.Server{PathForm: u.config.File.PathForm}}
	for _, i := range u.rules {
		for _, c := range u.config.File.Rules[i].Match.Conditions() {
			part := conditionCount{Condition: c, rule: i}
			before := slices.IndexFunc(old, func(o conditionCount) bool { return o.rule == i && o.Name == c.Name })
			if before >= 0 {
				part.met = old[before].met
			}
			u.parts = append(u.parts, part)
			file.Rules = append(file.Rules, rules.Spec{Name: fmt.Sprint("condition-", len(u.parts)), Match: c.Match,
				Limit: []string{"1/1s"}})
		}
	}
	set, err := rules.Compile(file)
	if err != nil { // the conditions of a set that was compiled; without them the notes lack a reason
		u.parts = nil
		return
	}
	u.set = set
}

// notes say why rules did not match.
func (u *unmatched) notes(n *readCounts, list *noteList) {
	for _, i := range u.rules {
		name := u.stats.rules[i].rule.Name()
		if u.stats.rules[i].count.Requests > 0 || u.seen == 0 {
			continue
		}
		var why []string
		for _, c := range u.parts {
			if c.rule == i {
				why = append(why, fmt.Sprintf("%s = %s: %s", c.Name, shortened(c.Want, 60), grouped(c.met)))
			}
		}
		if len(why) == 0 {
			continue
		}
		list.add("unmatched", "rule", name, "of", grouped(u.seen), "why", strings.Join(why, ", "))
		m := &u.config.File.Rules[i].Match
		if len(m.Host) > 0 {
			list.counted(n.noHost, "lacking", "what", "host", "share", percent(n.noHost, n.replayed), "rule", name)
		}
		if len(m.User) > 0 {
			list.counted(n.noUser, "lacking", "what", "user", "share", percent(n.noUser, n.replayed), "rule", name)
		}
	}
}
