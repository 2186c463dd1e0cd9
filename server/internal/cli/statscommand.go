package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

func newStats(s *System) *cobra.Command {
	return s.command(&operatorCommand{
		use: "stats [RULE]", short: "Show the requests that rules of a running server refuse",
		args: argsBetween(0, 1, "at most the name of a rule"),
		long: `Show how many requests each rule has passed and refused on the nodes that share a store, the rules
with the most refusals first, or the keys of one rule. With --json all figures are printed, for
scripts; with --watch they are printed again and again, on a cleared screen in a terminal.

The exit code is 0, 1 if the server refuses or is not responding, and 2 for a usage error. With
--check it is 3 if an alert is firing, a node has a problem, or nodes have different rules.`,
		example: `  weir stats
  weir stats per-ip --last 15m
  weir stats --watch 5s
  weir stats --json --most 1000
  weir stats --check`,
		flags: [][2]string{{"last"}, {"node"}, {"check"}, {"watch"},
			{"most", "maximum `NUMBER` of rules, up to 1000, or of keys, up to 200"}},
		run: (*operator).stats,
	})
}

// figures is a request for a report of the last time.
func (o *operator) figures(path string, last time.Duration) *serverRequest {
	query := url.Values{"from": {last.String()}}
	if o.node != "" {
		query.Set("node", o.node)
	}
	if o.most > 0 {
		query.Set("most", strconv.Itoa(o.most))
	}
	return &serverRequest{method: http.MethodGet, path: "telemetry/" + path, query: query}
}

func (o *operator) checkLast() error {
	if o.last < time.Minute || o.last > 24*time.Hour {
		return program.Usagef("--last is %s; allowed: 1m to 24h", o.last)
	}
	return nil
}

// stats prints figures, with --watch until it is interrupted.
func (o *operator) stats(args []string) error {
	switch {
	case o.watch != 0 && (o.watch < time.Second || o.watch > time.Hour):
		return program.Usagef("--watch is %s; allowed: 1s to 1h", o.watch)
	case o.check && len(args) > 0:
		return program.Usagef("--check is about the whole server, but the argument %.80q names a rule", args[0])
	}
	if err := o.checkLast(); err != nil {
		return err
	}
	for {
		if o.watch > 0 && !o.json && program.IsTerminal(o.system.Out) {
			fmt.Fprint(o.system.Out, clearScreen)
		}
		if err := o.statsOnce(args); err != nil || o.watch == 0 {
			return err
		}
		select {
		case <-o.started.Done():
			return nil
		case <-time.After(o.watch):
		}
		o.again()
	}
}

// clearScreen moves the cursor of a terminal home and clears the rest of it.
const clearScreen = "\x1b[H\x1b[2J"

func (o *operator) statsOnce(args []string) error {
	if len(args) > 0 {
		return show(o, o.figures(rulePath(args[0]), o.last), printRule)
	}
	var answer telemetry.Overview
	text, err := o.send(o.figures("overview", o.last), &answer)
	if err == nil {
		err = o.print(text, func(w io.Writer) { printOverview(w, &answer) })
	}
	if err == nil && o.check && len(problems(&answer)) > 0 {
		err = &program.Exit{Code: program.Found}
	}
	return err
}

func printOverview(w io.Writer, a *telemetry.Overview) {
	c := &a.Total
	requests := c.Passed + c.Refused + c.Denied + c.Failed
	fmt.Fprintf(w, "%s to %s, %s, %s: %s refused, %s denied, %s failed, %s degraded\n", a.From.Format(time.RFC3339),
		a.To.Format(time.RFC3339), program.Count(len(a.Nodes), "node"), program.Count(int(requests), "request"),
		percent(c.Refused, requests), percent(c.Denied, requests), percent(c.Failed, requests),
		percent(c.Degraded, requests))
	for _, problem := range problems(a) {
		fmt.Fprintln(w, "! "+printable(problem))
	}
	fmt.Fprintln(w)
	row(w, "RULE", "MODE", "LIMIT", "PASSED", "REFUSED", "SHARE", "MOST REFUSED KEY")
	for i := range a.Rules {
		r := &a.Rules[i]
		worst := ""
		switch {
		case r.WorstKey != nil:
			worst = printable(keytext.Plain(r.WorstKey.Key))
		case r.Unwatched:
			worst = notWatched
		}
		passed, refused := requestsOf(r)
		row(w, r.Name+incomplete(r), r.Mode, strings.Join(r.Limits, ", "), passed, refused,
			percent(refused, passed+refused), worst)
	}
	if a.More > 0 {
		fmt.Fprintf(w, "and %s\n", program.Count(a.More, "more rule"))
	}
	printUnits(w, a.Rules)
}

// printUnits prints what metered rules have spent, if there are any.
func printUnits(w io.Writer, all []telemetry.RuleSummary) {
	isMetered := func(r telemetry.RuleSummary) bool { return r.Units != nil }
	if !slices.ContainsFunc(all, isMetered) {
		return
	}
	fmt.Fprintln(w)
	row(w, "RULE", "SPENT", "RESERVED NOW", "ESTIMATED OF SETTLED")
	for i := range all {
		r := &all[i]
		if !isMetered(*r) {
			continue
		}
		ratio, unit := "", unitOf(r.Units)
		if r.Counts.Settled > 0 {
			ratio = strconv.FormatFloat(float64(r.Counts.Estimated)/float64(r.Counts.Settled), 'f', 1, 64) + " ×"
		}
		row(w, r.Name, unit.Text(spentOf(r)), unit.Text(r.Units.Reserved), ratio)
	}
}

func unitOf(u *telemetry.Units) rules.Unit { return rules.Unit{Name: u.Name, Scale: u.Scale} }

// spentOf is the number of units that stay spent.
func spentOf(r *telemetry.RuleSummary) int64 {
	return max(0, int64(r.Counts.Spent)-int64(r.Counts.Returned))
}

func printRule(w io.Writer, r *telemetry.RuleReport) {
	passed, refused := requestsOf(&r.RuleSummary)
	fmt.Fprintf(w, "%s%s, %s, %s: %d of %s refused (%s), about %s\n\n", r.Name, incomplete(&r.RuleSummary),
		r.Mode, strings.Join(r.Limits, ", "),
		refused, program.Count(int(passed+refused), "request"), percent(refused, passed+refused),
		program.Count(int(r.Distinct), "key"))
	if r.Unwatched {
		fmt.Fprintln(w, notWatched)
	}
	row(w, "KEY", "PASSED", "REFUSED", "OF ALL REFUSED")
	for i := range r.Top {
		k := &r.Top[i]
		row(w, printable(keytext.Plain(k.Key)), k.Passed, k.Refused, percent(k.Refused, refused))
	}
	printSpenders(w, r)
}

// printSpenders prints the keys that have spent most, of a metered rule.
func printSpenders(w io.Writer, r *telemetry.RuleReport) {
	if r.Units == nil {
		return
	}
	unit, top, spent := unitOf(r.Units), slices.Clone(r.Top), spentOf(&r.RuleSummary)
	fmt.Fprintf(w, "\n%s spent, %s reserved now\n\n", unit.Text(spent), unit.Text(r.Units.Reserved))
	row(w, "BIGGEST SPENDERS", "SPENT", "OF ALL")
	slices.SortStableFunc(top, func(a, b telemetry.KeyRate) int { return cmp.Compare(b.Units, a.Units) })
	for i := range top {
		if k := &top[i]; k.Units > 0 {
			row(w, printable(keytext.Plain(k.Key)), unit.Text(k.Units), percent(uint64(k.Units), uint64(spent)))
		}
	}
}

// problems are the alerts that are firing, and the problems of nodes, in sentences.
func problems(o *telemetry.Overview) (list []string) {
	for i := range o.Alerts {
		a := &o.Alerts[i]
		list = append(list, fmt.Sprintf("%s, since %s", a.Text, a.Since.UTC().Format("15:04:05Z")))
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !n.StoreUp {
			list = append(list, n.Name+": the store is not responding")
		}
		for _, problem := range n.Problems {
			list = append(list, n.Name+": "+problem)
		}
	}
	differs := func(n telemetry.Node) bool { return n.Revision != o.Nodes[0].Revision }
	if slices.ContainsFunc(o.Nodes, differs) {
		list = append(list, "nodes have different rules in force")
	}
	return list
}

// notWatched stands for the keys of a rule that is not one of the busiest.
const notWatched = "keys not watched: 256 busier rules"

// incomplete is added to the name of a rule if its counts may be among other rules'.
func incomplete(r *telemetry.RuleSummary) string {
	if r.Folded {
		return " (counts in (other))"
	}
	return ""
}

// requestsOf counts the requests that the rule passed and refused, or as a shadow rule would have.
func requestsOf(r *telemetry.RuleSummary) (passed, refused uint64) {
	if r.Mode == string(rules.Shadow) {
		return r.Counts.ShadowPassed, r.Counts.ShadowRefused
	}
	return r.Counts.Passed, r.Counts.Refused
}

// percent is a part of a whole, or 0 %. A small part differs from zero, and almost all from all.
func percent(of, whole uint64) string {
	share := float64(of) / float64(max(1, whole))
	switch {
	case share > 0 && share < 0.001:
		return "<0.1%"
	case share > 0.999 && share < 1:
		return ">99.9%"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + "%"
}
