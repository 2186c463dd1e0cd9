package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir/rules"
)

// A ruleView is a rule in the answers of the admin API.
type ruleView struct {
	Name, Label, From, Who, Why, YAML string
	InForce                           bool `json:"in_force"`
	Enabled                           bool
	Revision                          int64
	When                              time.Time
	Limit                             []string
	Algorithm, Mode                   string
}

// limits are the limits of the rule, with their algorithm.
func (r *ruleView) limits() string {
	return strings.TrimSpace(r.Algorithm + " " + strings.Join(r.Limit, ", "))
}

func (r *ruleView) state() string {
	switch {
	case r.InForce && r.Mode == string(rules.Shadow):
		return "shadow"
	case r.InForce:
		return "in force"
	case !r.Enabled:
		return "disabled"
	}
	return "not in force"
}

type changeView struct{ Rule, Counts, Text string }

// A writtenView is the answer to a change.
type writtenView struct {
	Name     string
	Revision int64
	Changes  []changeView
	InForce  bool `json:"in_force"`
	Waiting  string
}

func newRules(s *System) *cobra.Command {
	return group("rules", "Show and change the rules of a running server",
		`Show and change the rules of a running server. Changes are kept in its ledger, which overrides
rule files. The history records the author and reason of every change, and a rollback reverts
it. A change fails if another operator has changed the rule since it was read.`,
		`  weir rules list
  weir rules get login > login.rule
  weir rules set login login.rule --why "brute force"
  weir rules history login`,
		s.rulesList(), s.rulesGet(), s.rulesSet(), s.rulesEdit(), s.rulesTurn("delete", http.MethodDelete,
			"Delete a rule from the ledger; rollback restores it"),
		s.rulesTurn("enable", http.MethodPost, "Enable a rule of the ledger"),
		s.rulesTurn("disable", http.MethodPost, "Disable a rule of any source"),
		s.rulesDiff(), s.rulesHistory(), s.rulesRollback(), s.rulesCompare(), s.rulesPromote(),
		s.rulesRestore())
}

func (s *System) rulesList() *cobra.Command {
	f := new(operatorFlags)
	command := &cobra.Command{
		Use:     "list",
		Short:   "List the rules in force, and disabled rules of the ledger",
		Args:    noArgs,
		Example: "  weir rules list\n  weir rules list --json",
		RunE: s.operate(f, func(o *operator, _ []string) error {
			var answer struct {
				Revision int64
				Rules    []ruleView
			}
			text, err := o.send(adminRequest{method: http.MethodGet, path: "rules"}, &answer)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) {
				fmt.Fprintln(w, "RULE\tLIMIT\tSTATE\tFROM\tREVISION\tBY")
				for _, r := range answer.Rules {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.called(), dash(r.limits()), r.state(), r.From,
						dashZero(r.Revision), dash(r.Who))
				}
			})
		})}
	f.add(command.Flags())
	return command
}

// called is the rule's name and label.
func (r *ruleView) called() string {
	if r.Label == "" {
		return r.Name
	}
	return fmt.Sprintf("%s (%s)", r.Name, printable(r.Label))
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func dashZero(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func (s *System) rulesGet() *cobra.Command {
	f := new(operatorFlags)
	command := &cobra.Command{
		Use:     "get NAME",
		Short:   "Print a rule as its author wrote it",
		Args:    argsBetween(1, 1, "the name of a rule"),
		Example: "  weir rules get login",
		RunE: s.operate(f, func(o *operator, args []string) error {
			var r ruleView
			text, err := o.send(adminRequest{method: http.MethodGet, path: rulePath(args[0])}, &r)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) {
				if r.Revision == 0 {
					fmt.Fprintf(w, "# %s, %s; it comes from %s and is not in the ledger\n", r.Name, r.state(), r.From)
					return
				}
				fmt.Fprint(w, r.text())
			})
		})}
	f.add(command.Flags())
	return command
}

// text is the rule as its author wrote it, after a line that set reads. Control characters, which
// old rules may contain, are escaped for the terminal.
func (r *ruleView) text() string {
	head := fmt.Sprintf("# revision %d, %s, by %s on %s%s\n", r.Revision, r.state(), r.Who,
		r.When.Format(time.RFC3339), because(r.Why))
	if r.YAML == "" {
		return head + fmt.Sprintf("# it comes from %s; the ledger only disables it\n", r.From)
	}
	return head + visible(strings.TrimRight(r.YAML, "\n")) + "\n"
}

// visible escapes control characters as YAML does in double quotes.
func visible(text string) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case c == '\n' || !unicode.IsControl(c):
			b.WriteRune(c)
		case c == '\t':
			b.WriteString("        ")
		default:
			fmt.Fprintf(&b, "\\u%04x", c)
		}
	}
	return b.String()
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + printable(why)
}

func rulePath(name string) string { return "rules/" + url.PathEscape(name) }

// revision is the given revision, or else the current one of the rule in the ledger; 0 if it is absent.
func (o *operator) revision(name string, given int64) (*int64, error) {
	if given > 0 {
		return &given, nil
	}
	var r ruleView
	_, err := o.send(adminRequest{method: http.MethodGet, path: rulePath(name)}, &r)
	if isStatus(err, http.StatusNotFound) {
		err = nil
	}
	return &r.Revision, err
}

// A changeFlags are the flags of commands that change a rule.
type changeFlags struct {
	operatorFlags
	revision int64
}

func (f *changeFlags) add(command *cobra.Command) {
	f.operatorFlags.add(command.Flags())
	f.writing(command.Flags())
	command.Flags().Int64Var(&f.revision, "revision", 0,
		"expected revision `NUMBER` of the rule: the change fails if it is another\n(default: the current one when "+
			"the command starts)")
}

func (s *System) rulesSet() *cobra.Command {
	f, force := new(changeFlags), false
	command := &cobra.Command{
		Use:   "set NAME [FILE]",
		Short: "Set a rule from a file",
		Args:  argsBetween(1, 2, "the name of a rule and a file"),
		Long: `Set a rule from a file or the standard input: one rule, as in the list of a rule file. It is
checked first, together with all rules in force. If the change resets counts, --yes is needed.

A rule in the ledger is replaced only if it is still at the revision that the text was made
from: that in its first line, if the text came from weir rules get ("# revision 7, …"), or that
of --revision. weir rules edit does all these steps.`,
		Example: `  printf 'name: login\nkey: [client.ip]\nlimit: 5/1m\n' > login.rule
  weir rules set login login.rule --why "brute force"
  weir rules get login | sed 's/limit: .*/limit: 4\/1m/' | weir rules set login`,
		RunE: s.operate(&f.operatorFlags, func(o *operator, args []string) error {
			body, err := o.input(args[1:])
			if err != nil {
				return err
			}
			return o.set(args[0], body, f.revision, force)
		})}
	f.add(command)
	command.Flags().Lookup("revision").Usage = "revision `NUMBER` that the text was made from: the change fails if " +
		"it is\nanother (default: that in the first line of the text)"
	command.Flags().BoolVar(&f.yes, "yes", false, "make the change even if it resets counts")
	command.Flags().BoolVar(&force, "force", false, "replace the rule whatever its revision")
	return command
}

// revisionLine is the first line of the output of rules get.
var revisionLine = regexp.MustCompile(`^# revision ([1-9][0-9]{0,17}),[^\n]*\n`)

// set sets a rule from a text, if the rule is at the given revision, or at that in the first line of
// the text. Without a revision the rule must be new, because a blind write could overwrite the
// change of another operator.
func (o *operator) set(name string, body []byte, given int64, force bool) error {
	if head := revisionLine.FindSubmatch(body); head != nil {
		body = body[len(head[0]):]
		if n, err := strconv.ParseInt(string(head[1]), 10, 64); err == nil && given == 0 {
			given = n
		}
	}
	if force {
		given = 0
	}
	seen, err := o.revision(name, given)
	if err != nil {
		return err
	}
	if given == 0 && *seen > 0 && !force {
		return fmt.Errorf("rule %q is in the ledger at revision %d, and your text names no revision: "+
			"use weir rules edit %[1]s; or weir rules get %[1]s > FILE, change it, and weir rules set %[1]s FILE; "+
			"or --force",
			name, *seen)
	}
	return o.change(adminRequest{
		method: http.MethodPut,
		path:   rulePath(name),
		kind:   "application/yaml",
		body:   body,
		query:  o.reason(),
	}, seen)
}

// changeAt changes a rule at the given revision; 0: the current one.
func (o *operator) changeAt(a adminRequest, name string, given int64) error {
	seen, err := o.revision(name, given)
	if err != nil {
		return err
	}
	return o.change(a, seen)
}

// change makes a change after a dry run, which must not reset counts without --yes.
func (o *operator) change(a adminRequest, seen *int64) error {
	dry := a
	dry.query = url.Values{"dry_run": {"true"}}
	if to := a.query.Get("to"); to != "" {
		dry.query.Set("to", to)
	}
	var would writtenView
	if _, err := o.send(dry, &would); err != nil {
		return err
	}
	anew := false
	for _, c := range would.Changes {
		anew = anew || c.Counts == "anew"
	}
	if anew && !o.yes {
		o.changes(o.system.Err, would.Changes)
		return fmt.Errorf("nothing was changed: counts would be reset; give --yes to reset them")
	}
	a.seen = seen
	return o.write(a)
}

func (o *operator) changes(w io.Writer, list []changeView) {
	for _, c := range list {
		fmt.Fprintln(w, c.Text)
	}
	if len(list) == 0 {
		fmt.Fprintln(w, "no rule changes")
	}
}

// write makes a change and prints the result.
func (o *operator) write(a adminRequest) error {
	var done writtenView
	text, err := o.send(a, &done)
	if err != nil {
		return err
	}
	return o.print(text, func(w io.Writer) {
		o.changes(w, done.Changes)
		fmt.Fprintf(w, "revision %d, %s\n", done.Revision, inForce(done.InForce, done.Waiting))
	})
}

func inForce(is bool, waiting string) string {
	if is {
		return "in force"
	}
	return "not in force yet: " + waiting
}

func (s *System) rulesTurn(word, method, short string) *cobra.Command {
	f := new(changeFlags)
	command := &cobra.Command{
		Use:     word + " NAME",
		Short:   short,
		Args:    argsBetween(1, 1, "the name of a rule"),
		Example: fmt.Sprintf("  weir rules %s login --why \"the attack is over\"", word),
		RunE: s.operate(&f.operatorFlags, func(o *operator, args []string) error {
			seen, err := o.revision(args[0], f.revision)
			if err != nil {
				return err
			}
			path := rulePath(args[0])
			if method == http.MethodPost {
				path += "/" + word
			}
			return o.write(adminRequest{method: method, path: path, query: o.reason(), seen: seen})
		})}
	f.add(command)
	return command
}

func (s *System) rulesDiff() *cobra.Command {
	f, rule := new(operatorFlags), ""
	command := &cobra.Command{
		Use:   "diff [FILE]",
		Short: "Show the changes that a rule file would make",
		Args:  argsBetween(0, 1, "a file"),
		Long: `Show what a rule file, or the standard input, would change if it replaced the rules in force:
rules added and removed, changed numbers, and counts that would be reset. With --rule the file
is a single rule, and all others stay as they are.`,
		Example: `  weir rules diff weir.yaml
  printf 'name: login\nkey: [client.ip]\nlimit: 3/1m\n' | weir rules diff --rule login`,
		RunE: s.operate(f, func(o *operator, args []string) error {
			body, err := o.input(args)
			if err != nil {
				return err
			}
			a := adminRequest{method: http.MethodPost, path: "diff", kind: "application/yaml", body: body}
			if rule != "" {
				a.query = url.Values{"rule": {rule}}
			}
			var answer writtenView
			text, err := o.send(a, &answer)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) { o.changes(w, answer.Changes) })
		})}
	f.add(command.Flags())
	command.Flags().StringVar(&rule, "rule", "", "`NAME` of the rule, if the file is a single rule")
	return command
}

func (s *System) rulesHistory() *cobra.Command {
	f, most := new(operatorFlags), 0
	command := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show the history of changes",
		Args:  argsBetween(0, 1, "the name of a rule"),
		Long: `Show changes with their time, author and reason: of one rule and its keys, of one exception,
or of all. The newest is first.`,
		Example: "  weir rules history\n  weir rules history login --most 10",
		RunE: s.operate(f, func(o *operator, args []string) error {
			query := url.Values{"most": {fmt.Sprint(most)}}
			if len(args) > 0 {
				query.Set("name", args[0])
			}
			var answer struct {
				History []struct {
					Revision             int64
					Name, What, Who, Why string
					Key                  string // that it was done to
					When                 time.Time
					Changes              []changeView
				}
			}
			text, err := o.send(adminRequest{method: http.MethodGet, path: "history", query: query}, &answer)
			if err != nil {
				return err
			}
			return o.print(text, func(w io.Writer) {
				fmt.Fprintln(w, "REVISION\tWHEN\tWHO\tWHAT\tNAME\tWHY\tCHANGES")
				for _, c := range answer.History {
					var changes []string
					if c.Key != "" {
						changes = append(changes, "key "+printable(c.Key))
					}
					for _, one := range c.Changes {
						changes = append(changes, one.Text)
					}
					fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Revision, c.When.Format(time.DateTime),
						c.Who, c.What, c.Name, dash(printable(c.Why)), dash(strings.Join(changes, "; ")))
				}
			})
		})}
	f.add(command.Flags())
	command.Flags().IntVar(&most, "most", 50, "maximum `NUMBER` of changes, up to 1000")
	return command
}

func (s *System) rulesRollback() *cobra.Command {
	f := new(changeFlags)
	command := &cobra.Command{
		Use:     "rollback NAME REVISION",
		Short:   "Restore a rule to a revision of its history",
		Args:    argsBetween(2, 2, "the name of a rule and a revision"),
		Example: "  weir rules rollback login 1 --why \"too strict\"",
		RunE: s.operate(&f.operatorFlags, func(o *operator, args []string) error {
			query := o.reason()
			query.Set("to", args[1])
			return o.changeAt(adminRequest{method: http.MethodPost, path: rulePath(args[0]) + "/rollback",
				query: query}, args[0], f.revision)
		})}
	f.add(command)
	command.Flags().BoolVar(&f.yes, "yes", false, "make the change even if it resets counts")
	return command
}
