package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// An exceptionView is an exception in the answers of the admin API.
type exceptionView struct {
	ID, Kind, Rule, By string
	Values, Limit      []string
	Left, Who, Why     string
	Until              time.Time
	Revision           int64
	InForce            bool `json:"in_force"`
	Waiting            string
}

// An exceptionBody is the body of a request that makes an exception.
type exceptionBody struct {
	Kind   string   `json:"kind"`
	Rule   string   `json:"rule,omitempty"`
	By     string   `json:"by,omitempty"`
	Values []string `json:"values"`
	Limit  []string `json:"limit,omitempty"`
	For    string   `json:"for"`
	Why    string   `json:"why,omitempty"`
}

// An exceptionFlags are the flags of commands that make an exception.
type exceptionFlags struct {
	operatorFlags
	body exceptionBody
}

func (f *exceptionFlags) add(command *cobra.Command) {
	f.operatorFlags.add(command.Flags())
	f.writing(command.Flags())
	command.Flags().StringVar(&f.body.For, "for", "", "`TIME` after which the exception expires, such as 30m, 2h or 7d")
}

func newOverride(s *System) *cobra.Command {
	return group("override", "Override the limits of a key for a while; list and end exceptions",
		`Override the limits of a key for a while. Exceptions (overrides, blocks and allows) expire,
precede the rules of files, and are in force on all nodes of a ledger within a second.`,
		`  weir override set 203.0.113.7 --rule per-ip --limit 500/1m --for 2h --why "load test"
  weir override list`,
		s.overrideSet(), s.exceptionList(), s.exceptionDelete())
}

func (s *System) overrideSet() *cobra.Command {
	f := &exceptionFlags{body: exceptionBody{Kind: "override"}}
	command := &cobra.Command{
		Use:     "set KEY... --rule RULE --limit LIMIT --for TIME",
		Short:   "Override the limits of a key for a while",
		Args:    argsBetween(1, 8, "a value for each component of the rule's key"),
		Example: `  weir override set 203.0.113.7 --rule per-ip --limit 500/1m --for 2h --why "load test"`,
		RunE:    s.operate(&f.operatorFlags, f.run)}
	f.add(command)
	command.Flags().StringVar(&f.body.Rule, "rule", "", "`NAME` of the rule")
	command.Flags().StringArrayVar(&f.body.Limit, "limit", nil,
		"temporary `LIMIT` of the key, such as 500/1m; repeatable")
	return command
}

func newBlock(s *System) *cobra.Command {
	return s.listing("block", "Block a client for a while",
		`Block a client for a while: an address or a network, or with --by another value of a request.
With --rule only requests that match the rule are refused, by the rule's key.`,
		`  weir block 203.0.113.0/24 --for 1h --why "scanning"
  weir block mallory --by user --for 24h --why "stolen account"
  weir override list`)
}

func newAllow(s *System) *cobra.Command {
	return s.listing("allow", "Exempt a client from limits for a while",
		`Exempt a client from all rules for a while: an address or a network, or with --by another value
of a request. With --rule only that rule does not apply. A block takes precedence.`,
		`  weir allow 203.0.113.7 --for 30m --why "our load test"
  weir override list`)
}

// listing is the command block or allow.
func (s *System) listing(word, short, long, example string) *cobra.Command {
	f := &exceptionFlags{body: exceptionBody{Kind: word}}
	command := &cobra.Command{
		Use:     word + " VALUE --for TIME",
		Short:   short,
		Long:    long,
		Example: example,
		Args:    argsBetween(1, 1, "one address, network or value"), RunE: s.operate(&f.operatorFlags, f.run)}
	f.add(command)
	command.Flags().StringVar(&f.body.Rule, "rule", "", "`NAME` of the rule (default: all)")
	command.Flags().StringVar(&f.body.By, "by", "",
		"`COMPONENT` with the value, such as user or header.X-Api-Key\n(default: the rule's key, or client.ip)")
	return command
}

// run makes the exception. An existing one for the same values is shown and replaced, at the revision
// that was read, so that no unseen change is overwritten.
func (f *exceptionFlags) run(o *operator, args []string) error {
	b := f.body
	if b.For == "" {
		return usagef("--for is missing: give the duration of the exception, such as --for 2h")
	}
	b.Values, b.Why = args, f.why
	body, err := json.Marshal(&b)
	if err != nil {
		return err
	}
	old, err := o.same(&b)
	if err != nil {
		return err
	}
	var seen int64
	if old != nil {
		seen = old.Revision
		fmt.Fprintf(o.system.Err, "weir: this replaces %s, %s left, by %s%s\n", old.ID, old.Left, old.Who,
			because(old.Why))
	}
	var made exceptionView
	text, err := o.send(adminRequest{method: http.MethodPost, path: "exceptions", kind: "application/json",
		body: body, seen: &seen}, &made)
	if err != nil {
		return err
	}
	return o.print(text, func(w io.Writer) {
		fmt.Fprintf(w, "%s, until %s, %s\n", made.ID, made.Until.Format(time.RFC3339),
			inForce(made.InForce, made.Waiting))
	})
}

// same is the existing exception for the same values, or nil.
func (o *operator) same(b *exceptionBody) (*exceptionView, error) {
	var answer struct{ Exceptions []exceptionView }
	if _, err := o.send(adminRequest{method: http.MethodGet, path: "exceptions"}, &answer); err != nil {
		return nil, err
	}
	for i := range answer.Exceptions {
		e := &answer.Exceptions[i]
		if e.Kind == b.Kind && e.Rule == b.Rule && e.By == b.By && slices.Equal(e.Values, b.Values) {
			return e, nil
		}
	}
	return nil, nil
}

func (s *System) exceptionList() *cobra.Command {
	f := new(operatorFlags)
	command := &cobra.Command{
		Use:     "list",
		Short:   "List overrides, blocks and allows, by expiry",
		Args:    noArgs,
		Example: "  weir override list",
		RunE: s.operate(f, func(o *operator, _ []string) error {
			var answer struct{ Exceptions []exceptionView }
			text, err := o.send(adminRequest{method: http.MethodGet, path: "exceptions"}, &answer)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) {
				fmt.Fprintln(w, "ID\tKIND\tRULE\tVALUE\tLIMIT\tLEFT\tBY\tWHY\tSTATE")
				for _, e := range answer.Exceptions {
					value := strings.Join(e.Values, " ")
					if e.By != "" {
						value = e.By + " " + value
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Kind, dash(e.Rule), printable(value),
						dash(strings.Join(e.Limit, ", ")), e.Left, e.Who, dash(printable(e.Why)), inForce(e.InForce,
							e.Waiting))
				}
			})
		})}
	f.add(command.Flags())
	return command
}

func (s *System) exceptionDelete() *cobra.Command {
	f := new(operatorFlags)
	command := &cobra.Command{
		Use:     "delete ID",
		Short:   "End an exception before it expires",
		Args:    argsBetween(1, 1, "the ID of an exception from weir override list"),
		Example: "  weir override delete block-906ef93d1f --why \"the test is over\"",
		RunE: s.operate(f, func(o *operator, args []string) error {
			var e exceptionView
			path := "exceptions/" + url.PathEscape(args[0])
			if _, err := o.send(adminRequest{method: http.MethodGet, path: path}, &e); err != nil {
				return err
			}
			var done writtenView
			text, err := o.send(adminRequest{method: http.MethodDelete, path: path, query: o.reason(),
				seen: &e.Revision}, &done)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) { fmt.Fprintf(w, "%s is ended\n", e.ID) })
		})}
	f.add(command.Flags())
	f.writing(command.Flags())
	return command
}
