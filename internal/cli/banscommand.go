package cli

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func newBans(s *System) *cobra.Command {
	return group("bans", "Show and lift bans",
		`Show the keys that rules of a running server have banned, and lift bans. Bans are kept in the
store: they hold on all nodes that share it, and are lifted on all.`,
		`  weir bans list
  weir bans lift login 203.0.113.7 --why "a mistake of ours"`,
		s.bansList(), s.bansLift())
}

func (s *System) bansList() *cobra.Command {
	f := new(operatorFlags)
	command := &cobra.Command{
		Use:   "list",
		Short: "List the bans in force",
		Args:  noArgs,
		Long: `List up to 1,000 bans in force: those in the store, and those that this server imposed locally
while the store was down.`,
		Example: "  weir bans list\n  weir bans list --json",
		RunE: s.operate(f, func(o *operator, _ []string) error {
			var answer struct {
				Bans []struct {
					Rule, Key, Length string
					From, Until       time.Time
					Local             bool
				}
			}
			text, err := o.send(adminRequest{method: http.MethodGet, path: "bans"}, &answer)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) {
				fmt.Fprintln(w, "RULE\tKEY\tFROM\tUNTIL\tFOR\tWHERE")
				for _, b := range answer.Bans {
					where := "all nodes"
					if b.Local {
						where = "this node"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", b.Rule, printable(b.Key),
						b.From.Format(time.RFC3339), b.Until.Format(time.RFC3339), b.Length, where)
				}
			})
		})}
	f.add(command.Flags())
	return command
}

func (s *System) bansLift() *cobra.Command {
	f, values := new(operatorFlags), []string(nil)
	command := &cobra.Command{
		Use:   "lift RULE [KEY]",
		Short: "Lift a ban on all nodes, and forget earlier bans",
		Args:  argsBetween(1, 2, "the name of a rule and a key"),
		Long: `Lift a ban on all nodes, and forget earlier bans: the next one is as long as a first. The counts
of the rule's limits stay; weir keys reset resets those. KEY is the value of a key with one
component, or a key from weir bans list; or give the values in order with --value, once for
each component.`,
		Example: `  weir bans lift login 203.0.113.7 --why "a mistake of ours"
  weir bans lift login client.ip=11:203.0.113.7`,
		RunE: s.operate(f, func(o *operator, args []string) error {
			if (len(args) == 2) == (len(values) > 0) {
				return usagef("give a KEY, such as 203.0.113.7 or one from weir bans list, or --value VALUE for " +
					"each component " +
					"of the rule's key")
			}
			query := o.reason()
			query.Set("rule", args[0])
			if len(args) == 2 {
				query.Set("key", args[1])
			} else {
				query["value"] = values
			}
			var answer struct {
				Rule, Key string
				Banned    bool `json:"was_banned"`
			}
			text, err := o.send(adminRequest{method: http.MethodPost, path: "bans/lift", query: query}, &answer)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) {
				if !answer.Banned {
					fmt.Fprintf(w, "%s was not banned by %s; its counts towards a ban are reset\n",
						printable(answer.Key), answer.Rule)
					return
				}
				fmt.Fprintf(w, "%s is no longer banned by %s\n", printable(answer.Key), answer.Rule)
			})
		})}
	f.add(command.Flags())
	f.writing(command.Flags())
	command.Flags().StringArrayVar(&values, "value", nil, "`VALUE` of a component of the rule's key; repeatable")
	return command
}
