// Package review describes how much a rule set lets through, which clients can avoid its rules, and how many keys it
// counts. It reads rules and calls no store.
package review

import (
	"fmt"
	"slices"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/rules"
)

// A Report is a review of a rule set.
type Report struct {
	File  string `json:"file"` // its name
	Rules []Rule `json:"rules"`
	// While says what holds when rules are counted by several processes, or without their store.
	While string `json:"while"`
	Notes []Note `json:"-"`
}

// A Rule has the facts about a rule that are known without traffic.
type Rule struct {
	Name    string   `json:"name"`
	Key     []string `json:"key,omitempty"` // none: all requests share one
	Limits  []string `json:"limits"`
	Minute  *int64   `json:"minute"` // the most units that one key gets in any minute; nil: there is no bound
	Hour    *int64   `json:"hour"`
	Day     *int64   `json:"day"`
	AtOnce  int64    `json:"at_once,omitempty"` // units held at once; 0: no bound
	Remarks []string `json:"remarks,omitempty"` // where the bounds do not hold
	Keys    Keys     `json:"keys"`
}

// A Note is an opinion about a rule, or with an empty name about the file.
type Note struct {
	Rule    string
	Message string
	more    []string // other rules with the same message
}

// Of reviews a rule set. The set is compiled from the file.
func Of(name string, file *rules.File, set *rules.Set) *Report {
	report := &Report{File: name, Rules: []Rule{}}
	most := bounds{"none": {}} // the limit of a rule that refuses all is a window of one unit, which is never charged
	for i, rule := range set.Rules() {
		if !rule.Enabled() {
			continue
		}
		s := &file.Rules[i]
		r := Rule{Name: rule.Name(), Key: rule.Components(), Keys: keysOf(rule, s)}
		most.fill(&r, rule, s)
		r.Remarks = append(r.Remarks, prefetched(set, rule)...)
		report.Rules = append(report.Rules, r)
	}
	report.While = while(set)
	report.avoidable(file, set)
	for i := range report.Notes {
		if n := &report.Notes[i]; len(n.more) > 0 {
			n.Message += " (likewise for " + few(n.more) + ")"
		}
	}
	return report
}

// note adds a note, or the rule to one that says the same.
func (r *Report) note(rule, message string) {
	i := slices.IndexFunc(r.Notes, func(n Note) bool { return n.Message == message })
	if i >= 0 {
		r.Notes[i].more = append(r.Notes[i].more, rule)
		return
	}
	r.Notes = append(r.Notes, Note{Rule: rule, Message: message})
}

// while says who counts.
func while(set *rules.Set) string {
	if set.Server().Store == "" || set.Server().Store == "memory" {
		return "each process with a store in memory grants as much by itself"
	}
	local := func(rule *rules.Rule) bool { return rule.Enabled() && rule.OnStoreError() == rules.Local }
	if !slices.ContainsFunc(set.Rules(), local) {
		return ""
	}
	if nodes := set.Server().Nodes; nodes > 1 {
		return fmt.Sprintf("while Redis does not answer, each process grants 1/%d of it (nodes: %d) by rules with "+
			"on_store_error: local; more processes than that grant more", nodes, nodes)
	}
	return "while Redis does not answer, each process grants as much by itself, by rules with on_store_error: local; " +
		"write nodes: N to divide it among N processes"
}

// prefetched are the bounds of a rule with units that nodes prefetch.
func prefetched(set *rules.Set, rule *rules.Rule) (list []string) {
	if rule.LeasePercent() == 0 {
		return nil
	}
	nodes := max(1, set.Server().Nodes)
	terms := layers.Terms{LeaseShare: float64(rule.LeasePercent()) / 100}
	for _, limit := range rule.Limits() {
		list = append(list, fmt.Sprintf("with %s that prefetch units: %s", program.Count(nodes, "node"),
			terms.Bound(limit, nodes)))
	}
	return list
}
