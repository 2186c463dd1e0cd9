package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
	"github.com/weirproject/weir/tools/internal/backtest"
	"github.com/weirproject/weir/tools/internal/backtest/page"
)

// A backtestFlags are the flags of backtest.
type backtestFlags struct {
	logFormat string
	maps      []string
	zone      string

	from, to   string
	since      time.Duration
	where      string
	spread     string
	retries    string
	good       string
	sweeps     []string
	propose    []string
	positives  string
	against    string
	maxRefused []string
	enough     int64
	maxUnread  string
	top        int
	format     string
	out        string
	setup      Reader
}

// Backtest is the command that replays access logs.
func Backtest(s *Host) *cobra.Command {
	var f backtestFlags
	command := &cobra.Command{
		Use:   "backtest [flags] RULES LOG…",
		Short: "Replay access logs through rules: who would have been refused",
		Long: `Replay access logs through rules, by the gate and the store of a server and the clock of the log,
and report what the rules would have refused. No server or Redis is asked, and nothing is changed.

RULES is a file, a directory or a URL, as for weir serve --config. Logs may be compressed with
gzip; several are merged by time; - is the standard input.

The exit code is 3 if the rules would refuse more than --max-refused, and 2 if nothing follows from
the log: it has too few requests, too many lines that cannot be read, or lines in disorder.`,
		Example: `  weir backtest weir.yaml access.log
  weir backtest --sweep login=5/1m..200/1m:12 --propose login weir.yaml access.log*
  weir backtest --format html --out report.html weir.yaml access.log
  weir backtest --against old/weir.yaml --max-refused 1% weir.yaml access.log`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return program.Usagef("name rules and a log, such as: weir backtest weir.yaml access.log")
			}
			return runBacktest(cmd.Context(), s, &f, args)
		},
	}
	f.add(s, command.Flags())
	return command
}

func (f *backtestFlags) add(s *Host, flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.logFormat, "log-format", "auto",
		"`FORMAT` of the log: auto, "+strings.Join(accesslog.Formats(), ", ")+",\n"+
			"or a template of nginx ($) or Apache (%)")
	flags.StringArrayVar(&f.maps, "map", nil, "for json: where the values are, such as `client=.ip,path=.uri,time=.ts`")
	flags.StringVar(&f.zone, "log-zone", "UTC", "time `ZONE` of times that do not say theirs, such as Europe/Berlin")
	flags.StringVar(&f.from, "from", "", "`TIME` of the first request, such as 2026-11-20 or 2026-11-20T09:00:00Z")
	flags.StringVar(&f.to, "to", "", "`TIME` before which the last request is")
	flags.DurationVar(&f.since, "since", 0, "only the last `TIME`, such as 24h, up to now")
	flags.StringVar(&f.where, "where", "", "only requests that meet a `CONDITION`, such as \"path=/login status<400\"")
	flags.StringVar(&f.spread, "spread", "even",
		"`WORD` for requests of one unit of the log's time: "+strings.Join(backtest.Spreads, ", "))
	flags.StringVar(&f.retries, "retries", "keep",
		"`WORD` for requests that the log says were answered\n429 or 503: keep or drop")
	flags.StringVar(&f.good, "good", "",
		"who is certainly legitimate: `FILE` of addresses, or a condition that one\nof their requests meets, such as "+
			"\"method=POST path=/login status=302\"")
	flags.StringArrayVar(&f.sweeps, "sweep", nil, "limits to try, `RULE=LIMIT..LIMIT:NUMBER`; repeatable")
	flags.StringSliceVar(&f.propose, "propose", nil,
		"compare three limits for `RULES`, or all, and propose one where good\nclients are known")
	flags.StringVar(&f.positives, "false-positives", "0.1%", "`SHARE` of the good clients that a proposal may refuse")
	flags.StringVar(&f.against, "against", "", "compare with the old rules in `RULES`")
	flags.StringSliceVar(&f.maxRefused, "max-refused", nil,
		"exit code 3 if more is refused: a `SHARE` such as 1%, or RULE=SHARE; repeatable")
	flags.Int64Var(&f.enough, "min-requests", 100,
		"for --max-refused: the least `NUMBER` of requests from which anything follows")
	flags.StringVar(&f.maxUnread, "max-unread", "5%",
		"for --max-refused: the largest `SHARE` of lines that may be unreadable")
	flags.IntVar(&f.top, "top", 10, "`NUMBER` of clients in the report")
	flags.StringVar(&f.format, "format", "text", "`FORMAT` of the report: text, json, or html, a page in one file")
	flags.StringVar(&f.out, "out", "", "write the report to `FILE`")
	f.setup = s.Settings(flags, "max_keys", "trusted_proxies", "client_header", "geo", "any_method", "path_form")
}

func runBacktest(ctx context.Context, s *Host, f *backtestFlags, args []string) error {
	shares, err := f.shares()
	if err != nil {
		return err
	}
	if _, err := parseShare("--max-unread", f.maxUnread); err != nil {
		return err
	}
	if !slices.Contains([]string{"text", "json", "html"}, f.format) {
		return program.Usagef("--format is %.80q; allowed: text, json, html", f.format)
	}
	c, err := f.config(ctx, s, args)
	if err != nil {
		return err
	}
	for i := range shares {
		if err := shares[i].check(c); err != nil {
			return err
		}
	}
	report, err := backtest.Run(ctx, c)
	if err != nil {
		return err
	}
	if err := f.write(s, report); err != nil {
		return err
	}
	if len(shares) == 0 {
		return nil
	}
	if err := f.conclusive(shares, report); err != nil {
		return usage(err)
	}
	return exceeded(shares, report)
}

// write prints the report.
func (f *backtestFlags) write(s *Host, report *backtest.Report) (err error) {
	out := s.Out
	if f.out != "" {
		file, err := os.Create(f.out)
		if err != nil {
			return err
		}
		defer func() {
			if closed := file.Close(); err == nil {
				err = closed
			}
		}()
		out = file
	}
	switch f.format {
	case "json":
		return program.PrintJSON(out, report)
	case "html":
		return page.Write(out, report)
	}
	return report.Text(out, f.out == "" && program.IsTerminal(s.Out) && os.Getenv("NO_COLOR") == "")
}

// config checks the flags and reads the rules, before the log is read.
func (f *backtestFlags) config(ctx context.Context, s *Host, args []string) (*backtest.Config, error) {
	setup, err := f.setup(ctx, args[0], false)
	if err != nil {
		return nil, err
	}
	c := &backtest.Config{Name: args[0], File: setup.File, Set: setup.Set, Clients: setup.Clients, Form: setup.Form,
		AnyMethod: setup.AnyMethod, Geo: setup.Geo, MaxKeys: setup.MaxKeys, Top: f.top}
	if c.Open, err = f.open(s, args[1:]); err != nil {
		return nil, err
	}
	for _, step := range []func(*backtest.Config) error{f.times, f.words, f.conditions, f.limits} {
		if err := step(c); err != nil {
			return nil, usage(err)
		}
	}
	if f.against != "" {
		setup, err := f.setup(ctx, f.against, true)
		if err != nil {
			return nil, err
		}
		c.AgainstName, c.Against = f.against, setup.Set
	}
	return c, nil
}

// usage is an error in the use of the command line.
func usage(err error) error { return &program.Exit{Code: program.Usage, Err: err} }

// times sets the times between which requests are.
func (f *backtestFlags) times(c *backtest.Config) (err error) {
	if c.From, err = parseTime("--from", f.from); err != nil {
		return err
	}
	if c.To, err = parseTime("--to", f.to); err != nil {
		return err
	}
	switch {
	case f.since < 0:
		return fmt.Errorf("--since is %v; allowed: a time such as 24h", f.since)
	case f.since > 0 && f.from != "":
		return fmt.Errorf("--since and --from are both the first time; give one of them")
	case f.since > 0:
		c.From = time.Now().Add(-f.since)
	}
	if !c.To.IsZero() && !c.From.Before(c.To) {
		return fmt.Errorf("--to is %s, which is not after the first time, %s", f.to, c.From.Format(time.RFC3339))
	}
	return nil
}

func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, "2006-01-02 15:04",
		time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is %.80q; allowed: a time such as 2026-11-20, \"2026-11-20 09:00\" (UTC) or "+
		"2026-11-20T09:00:00+01:00", flag, text)
}

// words sets the flags with a few values.
func (f *backtestFlags) words(c *backtest.Config) error {
	spread := slices.Index(backtest.Spreads, f.spread)
	if spread < 0 {
		return fmt.Errorf("--spread is %.80q; allowed: %s", f.spread, strings.Join(backtest.Spreads, ", "))
	}
	c.Spread = backtest.Spread(spread)
	if f.retries != "keep" && f.retries != "drop" {
		return fmt.Errorf("--retries is %.80q; allowed: keep, drop", f.retries)
	}
	c.DropRetries = f.retries == "drop"
	if f.top < 0 || f.top > 1000 {
		return fmt.Errorf("--top is %d; allowed: 0 to 1000", f.top)
	}
	var err error
	c.FalsePositives, err = parseShare("--false-positives", f.positives)
	return err
}

func parseShare(flag, text string) (float64, error) {
	number, isPercent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		share /= 100
	}
	if err != nil || !(share >= 0 && share <= 1) {
		return 0, program.Usagef("%s is %.80q; allowed: a share from 0%% to 100%%, such as 0.1%%", flag, text)
	}
	return share, nil
}

// conditions sets --where and --good.
func (f *backtestFlags) conditions(c *backtest.Config) (err error) {
	if f.where != "" {
		if c.Where, err = backtest.ParseCondition("--where", f.where, c.Form); err != nil {
			return err
		}
	}
	if f.good == "" {
		return nil
	}
	c.Good = new(backtest.Legitimate)
	file, err := os.Open(f.good)
	if err != nil {
		if strings.ContainsAny(f.good, "=<>") {
			c.Good.Condition, err = backtest.ParseCondition("--good", f.good, c.Form)
		}
		return err
	}
	defer file.Close()
	c.Good.Networks, err = backtest.ReadNetworks(f.good, io.LimitReader(file, 64<<20))
	return err
}

// limits sets the limits that are tried or proposed.
func (f *backtestFlags) limits(c *backtest.Config) error {
	for _, text := range f.sweeps {
		sweep, err := backtest.ParseSweep("--sweep", text, c.File)
		if err != nil {
			return err
		}
		c.Sweeps = append(c.Sweeps, sweep)
	}
	return c.SetPropose("--propose", f.propose)
}

// open returns the function that opens the logs. The standard input is kept in a temporary file if it is read twice.
func (f *backtestFlags) open(s *Host, names []string) (func(pass, passes int) (backtest.Source, error), error) {
	options := accesslog.Options{Format: f.logFormat, Map: strings.Join(f.maps, ",")}
	var err error
	if options.Zone, err = time.LoadLocation(f.zone); err != nil {
		return nil, program.Usagef("--log-zone is %.80q; allowed: a time zone such as Europe/Berlin", f.zone)
	}
	var kept *os.File
	return func(pass, passes int) (backtest.Source, error) {
		o := options
		o.Progress = program.Bar(s.Err, pass, passes)
		in := s.In
		if passes > 1 && slices.Contains(names, "-") {
			if kept == nil {
				if kept, err = keepInput(s.In); err != nil {
					return nil, err
				}
			}
			if _, err := kept.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			in = kept
		}
		return accesslog.Open(names, in, o)
	}, nil
}

// keepInput copies the standard input to a file that is deleted already.
func keepInput(in io.Reader) (*os.File, error) {
	file, err := os.CreateTemp("", "weir-backtest-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	_, err = io.Copy(file, in)
	return file, err
}

// A share is the most that may be refused.
type share struct {
	rule string // "": of all requests
	most float64
	text string
}

func (f *backtestFlags) shares() (list []share, err error) {
	for _, text := range f.maxRefused {
		one := share{text: text}
		value := text
		if rule, rest, ok := strings.Cut(text, "="); ok {
			one.rule, value = rule, rest
		}
		if one.most, err = parseShare("--max-refused", value); err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

func (x *share) check(c *backtest.Config) error {
	if x.rule == "" || slices.ContainsFunc(c.Set.Rules(), func(r *rules.Rule) bool { return r.Name() == x.rule }) {
		return nil
	}
	return program.Usagef("--max-refused names the rule %.80q, which the rules do not have", x.rule)
}

// conclusive is an error if the report proves nothing: a gate must not pass on a log that is empty, unread, left
// out or in disorder, nor for a rule without a match.
func (f *backtestFlags) conclusive(shares []share, report *backtest.Report) error {
	log := &report.Log
	most, err := parseShare("--max-unread", f.maxUnread)
	switch {
	case err != nil:
		return err
	case float64(log.Unread) > most*float64(log.Lines):
		return fmt.Errorf("%d of %d lines of the log could not be read, more than --max-unread %s; nothing follows "+
			"for --max-refused", log.Unread, log.Lines, f.maxUnread)
	case log.Requests < f.enough:
		return fmt.Errorf("%d requests were decided, fewer than --min-requests %d; nothing follows for --max-refused",
			log.Requests, f.enough)
	}
	for i := range report.Limits {
		if one := &report.Limits[i]; one.Severe && one.Code == "late" {
			return errors.New(one.Text)
		}
	}
	for i := range report.ByRule {
		rule := &report.ByRule[i]
		named := slices.ContainsFunc(shares, func(one share) bool { return one.rule == rule.Name })
		if named && rule.Requests == 0 {
			return fmt.Errorf("the rule %s matched no request; nothing follows for --max-refused", rule.Name)
		}
	}
	return nil
}

// exceeded reports shares that are exceeded.
func exceeded(shares []share, report *backtest.Report) error {
	for _, one := range shares {
		count, what := report.Total, "the rules"
		for i := range report.ByRule {
			if report.ByRule[i].Name == one.rule {
				count, what = report.ByRule[i].Count, "the rule "+one.rule
			}
		}
		if refused := count.Stopped(); float64(refused) > one.most*float64(count.Requests) {
			return &program.Exit{Code: program.Found,
				Err: fmt.Errorf("%s would refuse %d of %d requests, more than --max-refused %s",
					what, refused, count.Requests, one.text)}
		}
	}
	return nil
}
