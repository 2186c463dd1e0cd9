package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
)

// A keyView is a key in the answers of the admin API.
type keyView struct {
	Limits []struct {
		Limit      string
		Remaining  int64
		RetryAfter *float64 `json:"retry_after"`
		ResetAfter float64  `json:"reset_after"`
	}
	BannedFor float64 `json:"banned_for"`
}

func newKeys(s *System) *cobra.Command {
	return group("keys", "Show and reset the counts of a key",
		`Show the remaining quota of a key under a rule of a running server, and reset its counts. A key
is the values of the rule's key components, in order, or one text as weir bans list prints it.`,
		`  weir keys get 203.0.113.7 --rule per-ip
  weir keys get client.ip=11:203.0.113.7 --rule per-ip
  weir keys reset 203.0.113.7 --rule per-ip --why "a mistake of ours"`,
		s.keys("get", http.MethodGet, "keys", "Show the remaining quota of a key"),
		s.keys("reset", http.MethodPost, "keys/reset", "Reset the counts of a key"))
}

func (s *System) keys(word, method, path, short string) *cobra.Command {
	f, rule := new(operatorFlags), ""
	command := &cobra.Command{
		Use:     word + " KEY... --rule RULE",
		Short:   short,
		Args:    argsBetween(0, 8, "a value for each component of the rule's key"),
		Example: fmt.Sprintf("  weir keys %s 203.0.113.7 --rule per-ip", word),
		RunE: s.operate(f, func(o *operator, args []string) error {
			if rule == "" {
				return usagef("--rule is missing: give the name of the rule")
			}
			query := o.reason()
			query.Set("rule", rule)
			if len(args) == 1 {
				query.Set("key", args[0])
			} else if len(args) > 1 {
				query["value"] = args
			}
			var key keyView
			text, err := o.send(adminRequest{method: method, path: path, query: query}, &key)
			if err != nil {
				return err
			}
			return o.print(text, key.table)
		})}
	f.add(command.Flags())
	if method == http.MethodPost {
		f.writing(command.Flags())
	}
	command.Flags().StringVar(&rule, "rule", "", "`NAME` of the rule")
	return command
}

func (k *keyView) table(w io.Writer) {
	fmt.Fprintln(w, "LIMIT\tREMAINING\tRETRY AFTER\tRESET AFTER")
	for _, l := range k.Limits {
		retry := "never"
		if l.RetryAfter != nil {
			retry = fmt.Sprintf("%gs", *l.RetryAfter)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%gs\n", l.Limit, l.Remaining, retry, l.ResetAfter)
	}
	if k.BannedFor > 0 {
		fmt.Fprintf(w, "\nbanned for another %gs; weir bans lift ends the ban\n", k.BannedFor)
	}
}
