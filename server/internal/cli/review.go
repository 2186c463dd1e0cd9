package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/review"
)

// A reviewed is the output of check with --review, as JSON.
type reviewed struct {
	Findings []finding    `json:"findings"`
	Reviews  []fileReview `json:"reviews,omitempty"`
}

// A fileReview is the review of one file, directory or URL.
type fileReview struct {
	File string `json:"file"`
	*review.Report
}

// reviewOf reviews the rules of one name.
func reviewOf(name string, file *rules.File, set *rules.Set) (fileReview, []finding) {
	report := review.Of(file, set)
	for i := range report.Rules {
		r := &report.Rules[i]
		r.Remarks = append(r.Remarks, prefetched(set, r.Name)...)
	}
	var notes []finding
	for _, n := range report.Notes {
		f := finding{Severity: "note", File: name, Message: n.Message}
		if n.Rule != "" {
			f.Field = "rule " + n.Rule
		}
		f.text = "note: " + strings.Join(notEmpty(name, f.Field, n.Message), ": ")
		notes = append(notes, f)
	}
	return fileReview{name, report}, notes
}

func notEmpty(texts ...string) (list []string) {
	for _, text := range texts {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

// prefetched are the bounds of a rule with units that nodes prefetch.
func prefetched(set *rules.Set, name string) (list []string) {
	for _, rule := range set.Rules() {
		if rule.Name() != name || rule.LeasePercent() == 0 {
			continue
		}
		for _, limit := range rule.Limits() {
			nodes := max(1, set.Server().Nodes)
			list = append(list, fmt.Sprintf("with %s that prefetch units: %s", count(nodes, "node"),
				engine.LeaseTerms(rule).Bound(limit, nodes)))
		}
	}
	return list
}

// print prints the table of a review.
func (r *fileReview) print(out io.Writer) {
	if len(r.Rules) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s: the most that one key gets in any minute, hour and day, in the worst case\n", r.File)
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "  rule\tkey\tkeys\tlimit\tminute\thour\tday")
	for i := range r.Rules {
		rule := &r.Rules[i]
		key := cmp.Or(strings.Join(rule.Key, ", "), "all requests")
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", rule.Name, key, rule.Keys.Words,
			strings.Join(rule.Limits, ", "), bound(rule.Minute), bound(rule.Hour), bound(rule.Day))
	}
	table.Flush()
	for i := range r.Rules {
		for _, remark := range r.Rules[i].Remarks {
			fmt.Fprintf(out, "  %s: %s\n", r.Rules[i].Name, remark)
		}
	}
	if r.While != "" {
		fmt.Fprintf(out, "  %s\n", r.While)
	}
}

// bound is a number of units, or a dash without one.
func bound(n *int64) string {
	if n == nil {
		return "no bound"
	}
	return strconv.FormatInt(*n, 10)
}
