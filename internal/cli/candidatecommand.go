package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// A comparisonView is the comparison of a rule and its candidate in the answers of the admin API.
type comparisonView struct {
	Rule             string
	Limit, Candidate []string
	CandidateKey     []string `json:"candidate_key"`
	Since            time.Time
	BothGrant        int64         `json:"both_grant"`
	NewlyRefused     int64         `json:"newly_refused"`
	NewlyGranted     int64         `json:"newly_granted"`
	BothRefuse       int64         `json:"both_refuse"`
	RefusedKeys      []changedView `json:"refused_keys"`
	GrantedKeys      []changedView `json:"granted_keys"`
}

type changedView struct {
	Key         string
	Count, Over int64
}

func (s *System) rulesCompare() *cobra.Command {
	f, keys := new(operatorFlags), 0
	command := &cobra.Command{
		Use:   "compare NAME",
		Short: "Compare a rule with its candidate",
		Args:  argsBetween(1, 1, "the name of a rule"),
		Long: `Show what a rule's candidate would change: the numbers of requests newly refused and no longer
refused, and their keys. Counts are of this server only, since the last change of the rule or
its candidate; add up the counts of all servers.`,
		Example: `  printf 'name: search\nkey: [client.ip]\nlimit: 30/1m\ncandidate: {limit: 20/1m}\n' | \
    weir rules set search
  weir rules compare search
  weir rules compare search --keys 3 --json`,
		RunE: s.operate(f, func(o *operator, args []string) error {
			if keys < 0 || keys > 100 {
				return usagef("--keys is %d; allowed: 0 to 100", keys)
			}
			var c comparisonView
			text, err := o.send(adminRequest{method: http.MethodGet, path: rulePath(args[0]) + "/compare"}, &c)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) { c.table(w, keys) })
		})}
	f.add(command.Flags())
	command.Flags().IntVar(&keys, "keys", 10, "maximum `NUMBER` of keys of each kind, up to 100")
	return command
}

func (c *comparisonView) table(w io.Writer, keys int) {
	candidate := strings.Join(c.Candidate, ", ")
	if len(c.CandidateKey) > 0 {
		candidate += ", by " + strings.Join(c.CandidateKey, ", ")
	}
	fmt.Fprintf(w, "%s: %s\ncandidate: %s\nrequests to this server since %s:\n\n", c.Rule,
		strings.Join(c.Limit, ", "), candidate, c.Since.Format(time.RFC3339))
	all := c.BothGrant + c.NewlyRefused + c.NewlyGranted + c.BothRefuse
	fmt.Fprintln(w, "THE RULE\tTHE CANDIDATE\tREQUESTS\tSHARE\t")
	for _, row := range []struct {
		live, then string
		count      int64
		note       string
	}{
		{"grants", "grants", c.BothGrant, ""},
		{"grants", "refuses", c.NewlyRefused, "newly refused"},
		{"refuses", "grants", c.NewlyGranted, "no longer refused"},
		{"refuses", "refuses", c.BothRefuse, ""},
	} {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", row.live, row.then, row.count, share(row.count, all), row.note)
	}
	changedKeys(w, "NEWLY REFUSED", c.RefusedKeys, keys)
	changedKeys(w, "NO LONGER REFUSED", c.GrantedKeys, keys)
}

func share(count, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(count)/float64(all))
}

func changedKeys(w io.Writer, title string, list []changedView, most int) {
	if list = list[:min(len(list), most)]; len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tREQUESTS\n", title)
	for _, one := range list {
		count := fmt.Sprint(one.Count)
		if one.Over > 0 {
			count = fmt.Sprintf("%d to %d", one.Count-one.Over, one.Count)
		}
		fmt.Fprintf(w, "%s\t%s\n", printable(one.Key), count)
	}
}

// printable quotes a key with control characters, which a client may have sent to move the cursor of
// the terminal. Other keys are unchanged, so that bans lift accepts them.
func printable(key string) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

func (s *System) rulesPromote() *cobra.Command {
	f, dry := new(changeFlags), false
	command := &cobra.Command{
		Use:   "promote NAME",
		Short: "Make a rule's candidate its limit",
		Args:  argsBetween(1, 1, "the name of a rule"),
		Long: `Make a rule's candidate its limit, with the candidate's algorithm and key if it has its own, and
remove the candidate. The rest of the rule stays as its author wrote it. The change is in the
history, and rollback reverts it. If the change resets counts, --yes is needed. A rule that is
not in the ledger must be promoted in its source: it is not copied to the ledger, because later
changes in the source would then have no effect.`,
		Example: `  weir rules promote search --dry-run
  weir rules promote search --why "nobody newly refused in a week"`,
		RunE: s.operate(&f.operatorFlags, func(o *operator, args []string) error {
			a := adminRequest{method: http.MethodPost, path: rulePath(args[0]) + "/promote", query: o.reason()}
			if dry {
				return o.wouldChange(a)
			}
			return o.changeAt(a, args[0], f.revision)
		})}
	f.add(command)
	command.Flags().BoolVar(&f.yes, "yes", false, "make the change even if it resets counts")
	command.Flags().BoolVar(&dry, "dry-run", false, "only show what would change")
	return command
}

// wouldChange prints the result of a dry run.
func (o *operator) wouldChange(a adminRequest) error {
	a.query = url.Values{"dry_run": {"true"}}
	var would writtenView
	text, err := o.send(a, &would)
	if err != nil {
		return err
	}
	return o.print(text, func(w io.Writer) { o.changes(w, would.Changes) })
}
