package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/audit"
	"github.com/weirproject/weir/rules"
)

// An auditCommand is weir audit query or tail, with its flags.
type auditCommand struct {
	system       *System
	store        string
	json         bool
	most         int
	since, until string
	filter       audit.Filter
	key          string
	hashKeyFile  string
}

// An auditRun handles the records of a command.
type auditRun func(*auditCommand, context.Context, audit.Reader) error

func newAudit(s *System) *cobra.Command {
	return groupOf("audit", "Search and follow the audit log",
		`Search and follow the audit log that weir serve --audit writes: refusals, bans, operators'
changes, changes of rules, store outages, and the costs of requests, which are printed with
--outcome cost or --request-id. It is read where it is written: from the Redis of
--store, which has the records of all nodes, or from a file.`,
		`  weir audit query --store redis://127.0.0.1:6379 --rule login --since 1h
  weir audit tail audit.log --outcome ban`,
		auditQuery(s), auditTail(s))
}

func auditQuery(s *System) *cobra.Command {
	a := &auditCommand{system: s}
	c := a.command("query [FILE]", "Print the records that match", (*auditCommand).query)
	c.Long = `Print the last records that match all filters, the oldest first. With a FILE its rotated
predecessors are read too.`
	c.Example = `  weir audit query --store redis://127.0.0.1:6379 --rule login --since 1h
  weir audit query audit.log --key 203.0.113.7 --json
  weir audit query audit.log --request-id 4bf92f3577b34da6a3ce929d0e0e4736`
	c.Flags().IntVar(&a.most, "most", 1000, "maximum `NUMBER` of records")
	c.Flags().StringVar(&a.since, "since", "", "only records since a `TIME` ago, such as 1h, or 2026-11-22T17:00:00Z")
	c.Flags().StringVar(&a.until, "until", "", "only records before a `TIME`, written like --since")
	return c
}

func auditTail(s *System) *cobra.Command {
	a := &auditCommand{system: s}
	c := a.command("tail [FILE]", "Print new records as they are written", (*auditCommand).tail)
	c.Long = `Print the last records that match all filters, and then new ones as they are written, until it
is interrupted.`
	c.Example = `  weir audit tail --store redis://127.0.0.1:6379
  weir audit tail audit.log --outcome refused --rule login`
	c.Flags().IntVar(&a.most, "most", 10, "`NUMBER` of records to begin with")
	return c
}

// command makes a command with the flags that both have.
func (a *auditCommand) command(use, short string, run auditRun) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: argsBetween(0, 1, "at most one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.system.fromEnvironment(cmd.Flags(), "store"); err != nil {
				return err
			}
			return a.run(cmd.Context(), args, run)
		}}
	flags := c.Flags()
	flags.StringVar(&a.store, "store", "", "`URL` of the Redis with the records, if no FILE is given (or WEIR_STORE)")
	flags.StringVar(&a.filter.Rule, "rule", "", "only records of the rule of this `NAME`")
	flags.StringVar(&a.key, "key", "", "only records of this `KEY`, or of one value of it, or of this client")
	flags.StringVar(&a.filter.Outcome, "outcome", "",
		"only records of this `KIND`: refused, denied, failed, ban, cost, rules,\noverride, block, allow, reset, "+
			"lift, degraded, recovered, alert or resolved")
	flags.StringVar(&a.filter.Node, "node", "", "only records of the node of this `NAME`")
	flags.StringVar(&a.filter.RequestID, "request-id", "",
		"only records of the request with this `ID`: the X-Request-Id of its response")
	flags.StringVar(&a.filter.Method, "method", "", "only records of requests with this `METHOD`")
	flags.StringVar(&a.filter.Path, "path", "", "only records of requests with this `PATH`; /a/* is all that begin so")
	flags.StringVar(&a.hashKeyFile, "hash-key-file", "",
		"`FILE` with the secret of hashed keys, to find one by --key (or WEIR_HASH_KEY)")
	flags.BoolVar(&a.json, "json", false, "print a line of JSON for each record")
	flags.SortFlags = false
	return c
}

// outcomes are the words that records have.
var outcomes = []string{"refused", "denied", "failed", "ban", "cost", "rules", "override", "block", "allow", "reset",
	"lift", "degraded", "recovered", "alert", "resolved"}

func (a *auditCommand) run(ctx context.Context, args []string, run auditRun) error {
	if err := a.complete(); err != nil {
		return err
	}
	reader, err := a.open(ctx, args)
	if err != nil {
		return err
	}
	defer reader.Close()
	return run(a, ctx, reader)
}

// complete checks the flags, and makes the filter of them.
func (a *auditCommand) complete() (err error) {
	if word := a.filter.Outcome; word != "" && !slices.Contains(outcomes, word) {
		return program.Usagef("--outcome is %.80q; allowed: %s", word, strings.Join(outcomes, ", "))
	}
	if a.most < 1 || a.most > 1_000_000 {
		return program.Usagef("--most is %d; allowed: 1 to 1000000", a.most)
	}
	if a.filter.Since, err = timeOf("since", a.since); err != nil {
		return err
	}
	if a.filter.Until, err = timeOf("until", a.until); err != nil {
		return err
	}
	secret, err := a.system.secret("--hash-key-file", a.hashKeyFile, a.system.warn)
	if a.filter.Key = a.key; secret != "" && a.key != "" && !strings.HasPrefix(a.key, "hashed:") {
		a.filter.Digest = audit.Hashed.Redact(a.key, []byte(secret))
	}
	return err
}

// timeOf reads a time, or a duration before now.
func timeOf(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, program.Usagef(
			"--%s is %.80q; allowed: a time ago with its unit, such as 90m, or 2026-11-22T17:00:00Z",
			flag, text)
	}
	return at, nil
}

func (a *auditCommand) open(ctx context.Context, args []string) (audit.Reader, error) {
	switch {
	case len(args) == 1 && strings.Contains(args[0], "://"):
		return nil, program.Usagef(
			"the argument is a URL; give it as --store, or in WEIR_STORE, where other users do not " +
				"see its password")
	case len(args) == 1:
		return audit.OpenFile(args[0])
	case a.store == "" || a.store == engine.Memory:
		return nil, program.Usagef(
			"give the FILE of weir serve --audit FILE, or --store with the Redis of --audit redis")
	}
	reader, err := audit.OpenStream(ctx, a.store, engine.AuditStream)
	if err != nil {
		return nil, fmt.Errorf("--store %s: %w", engine.Masked(a.store), err)
	}
	return reader, nil
}

func (a *auditCommand) query(ctx context.Context, reader audit.Reader) error {
	list, err := reader.Last(ctx, &a.filter, a.most)
	if err != nil {
		return err
	}
	return a.print(list, true)
}

// tailEvery is the interval at which new records are looked for.
const tailEvery = 300 * time.Millisecond

func (a *auditCommand) tail(ctx context.Context, reader audit.Reader) error {
	list, err := reader.Last(ctx, &a.filter, a.most)
	for heading := true; err == nil; heading = false {
		if err := a.print(list, heading); err != nil {
			return err
		}
		time.Sleep(tailEvery)
		list, err = reader.Next(ctx, &a.filter)
	}
	return err
}

func (a *auditCommand) print(list []audit.Record, heading bool) error {
	if a.json {
		encoder := json.NewEncoder(a.system.Out)
		encoder.SetEscapeHTML(false)
		for i := range list {
			if err := encoder.Encode(&list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(a.system.Out, 0, 8, 2, ' ', 0)
	if heading {
		row(table, "TIME", "NODE", "OUTCOME", "RULE", "KEY", "WAIT", "COST", "CLIENT", "REQUEST", "REQUEST ID", "ACTOR",
			"REASON")
	}
	for i := range list {
		printRecord(table, &list[i])
	}
	return table.Flush()
}

func printRecord(w io.Writer, r *audit.Record) {
	wait, why := "", r.Reason
	switch {
	case r.Wait < 0:
		wait = "never"
	case r.Wait > 0:
		wait = r.Wait.Round(time.Millisecond).String()
	}
	if r.Text != "" {
		why = r.Text
	}
	row(w, r.At.Format("2006-01-02T15:04:05.000Z07:00"), printable(r.Node), r.Outcome, r.Rule, shownKey(r.Key),
		wait, costOf(r), r.Client, printable(strings.TrimSpace(r.Method+" "+r.Path)), printable(r.RequestID),
		printable(r.Actor), printable(why))
}

// costOf is the cost of a request and its estimate; of one that did not pass, the units that it asked for.
func costOf(r *audit.Record) string {
	unit, _ := rules.ParseUnit(r.Unit)
	switch {
	case r.Outcome == telemetry.AuditCost && r.Cost == r.Estimate:
		return unit.Text(r.Cost)
	case r.Outcome == telemetry.AuditCost:
		return fmt.Sprintf("%s of %s", unit.Number(r.Cost), unit.Text(r.Estimate))
	case r.Estimate > 0:
		return unit.Text(r.Estimate)
	}
	return ""
}
