package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/cli/top"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/telemetry"
)

func newStats(s *System) *cobra.Command {
	return s.command(&operatorCommand{
		use: "stats [RULE]", short: "Show the requests that rules of a running server refuse",
		args: argsBetween(0, 1, "at most the name of a rule"),
		long: `Show how many requests each rule has passed and refused on the nodes that share a store, the rules
with the most refusals first, or the keys of one rule. With --json all figures are printed, for
scripts.

The exit code is 0, 1 if the server refuses or is not responding, and 2 for a usage error. With
--check it is 3 if an alert is firing, a node has a problem, or nodes have different rules.`,
		example: `  weir stats
  weir stats per-ip --last 15m
  weir stats --json --most 1000
  weir stats --check`,
		flags: [][2]string{{"last"}, {"node"}, {"check"},
			{"most", "maximum `NUMBER` of rules, up to 1000, or of keys, up to 200"}},
		run: (*operator).stats,
	})
}

func newTop(s *System) *cobra.Command {
	return s.command(&operatorCommand{
		use: "top", short: "Show the refusals of a running server live, in the terminal",
		long: `Show in the terminal which rules refuse requests, and of whom: the overview of the console. Enter
shows the keys of a rule, s sorts, / filters, t chooses the period, p pauses, q quits. NO_COLOR is
respected. weir stats prints the same figures for scripts.`,
		example: `  weir top --every 10s
  weir top --server http://10.0.0.5:8080 --last 1h`,
		flags: [][2]string{{"last"}, {"every"}},
		run:   func(o *operator, _ []string) error { return o.top() },
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
		return usagef("--last is %s; allowed: 1m to 24h", o.last)
	}
	return nil
}

func (o *operator) stats(args []string) error {
	if err := o.checkLast(); err != nil {
		return err
	}
	if len(args) > 0 {
		if o.check {
			return usagef("--check is about the whole server, but the argument %.80q names a rule", args[0])
		}
		return show(o, o.figures(rulePath(args[0]), o.last), printRule)
	}
	var answer telemetry.Overview
	text, err := o.send(o.figures("overview", o.last), &answer)
	if err == nil {
		err = o.print(text, func(w io.Writer) { printOverview(w, &answer) })
	}
	if err == nil && o.check && len(top.Problems(&answer)) > 0 {
		err = &exit{code: exitAlert}
	}
	return err
}

func printOverview(w io.Writer, a *telemetry.Overview) {
	c := &a.Total
	requests := c.Passed + c.Refused + c.Denied + c.Failed
	fmt.Fprintf(w, "%s to %s, %s, %s: %s refused, %s denied, %s failed, %s degraded\n", a.From.Format(time.RFC3339),
		a.To.Format(time.RFC3339), count(len(a.Nodes), "node"), count(int(requests), "request"),
		top.Percent(c.Refused, requests), top.Percent(c.Denied, requests), top.Percent(c.Failed, requests),
		top.Percent(c.Degraded, requests))
	for _, problem := range top.Problems(a) {
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
			worst = top.NotWatched
		}
		passed, refused := top.Requests(r)
		row(w, r.Name+top.Incomplete(r), r.Mode, strings.Join(r.Limits, ", "), passed, refused,
			top.Percent(refused, passed+refused), worst)
	}
	if a.More > 0 {
		fmt.Fprintf(w, "and %s\n", count(a.More, "more rule"))
	}
}

func printRule(w io.Writer, r *telemetry.RuleReport) {
	passed, refused := top.Requests(&r.RuleSummary)
	fmt.Fprintf(w, "%s%s, %s, %s: %d of %s refused (%s), about %s\n\n", r.Name, top.Incomplete(&r.RuleSummary),
		r.Mode, strings.Join(r.Limits, ", "),
		refused, count(int(passed+refused), "request"), top.Percent(refused, passed+refused),
		count(int(r.Distinct), "key"))
	if r.Unwatched {
		fmt.Fprintln(w, top.NotWatched)
	}
	row(w, "KEY", "PASSED", "REFUSED", "OF ALL REFUSED")
	for i := range r.Top {
		k := &r.Top[i]
		row(w, printable(keytext.Plain(k.Key)), k.Passed, k.Refused, top.Percent(k.Refused, refused))
	}
}

// A reader reads reports for top, each request with a timeout of its own.
type reader struct{ *operator }

// Overview implements top.Source.
func (r reader) Overview(ctx context.Context, last time.Duration) (*telemetry.Overview, error) {
	a := new(telemetry.Overview)
	return a, r.read(ctx, r.figures("overview", last), a)
}

// Rule implements top.Source.
func (r reader) Rule(ctx context.Context, name string, last time.Duration) (*telemetry.RuleReport, error) {
	a := new(telemetry.RuleReport)
	return a, r.read(ctx, r.figures(rulePath(name), last), a)
}

func (r reader) read(ctx context.Context, request *serverRequest, into any) error {
	one := *r.operator
	one.ctx, one.cancel = context.WithTimeout(ctx, one.timeout)
	defer one.cancel()
	_, err := one.send(request, into)
	return err
}

func (o *operator) top() error {
	if err := o.checkLast(); err != nil {
		return err
	}
	if o.every < time.Second || o.every > time.Hour {
		return usagef("--every is %s; allowed: 1s to 1h", o.every)
	}
	ctx, stop := signal.NotifyContext(o.started, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	first, err := reader{o}.Overview(ctx, o.last) // before the screen is cleared, so that the error stays
	if err != nil {
		return err
	}
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("weir top needs a terminal (%w); weir stats prints the same figures", err)
	}
	defer screen.Fini()
	top.Run(ctx, screen, reader{o}, top.Options{Server: o.server.base, Every: o.every, Last: o.last, First: first})
	return nil
}
