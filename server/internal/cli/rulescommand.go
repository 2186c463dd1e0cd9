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
	"unicode/utf8"

	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
)

// stateOf is the state of a rule in a word or two.
func stateOf(r *admin.Rule) string {
	if !r.Reverts.IsZero() {
		unconfirmed := *r
		unconfirmed.Reverts = time.Time{}
		return fmt.Sprintf("%s, reverts %s", stateOf(&unconfirmed), r.Reverts.UTC().Format(time.RFC3339))
	}
	switch {
	case !r.Enabled:
		return "disabled"
	case r.InForce && r.Mode == rules.Shadow:
		return "shadow"
	case r.InForce:
		return "in force"
	}
	return "not in force"
}

func (o *operator) listRules([]string) error {
	return show(o, get("rules"), func(w io.Writer, answer *admin.Rules) {
		row(w, "RULE", "LIMIT", "STATE", "FROM", "REVISION", "BY")
		for _, r := range answer.Rules {
			name := r.Name
			if r.Label != "" {
				name = fmt.Sprintf("%s (%s)", r.Name, printable(r.Label))
			}
			limits := strings.TrimSpace(r.Algorithm + " " + strings.Join(r.Limit, ", "))
			row(w, name, limits, stateOf(&r), r.From, r.Revision, r.Who)
		}
	})
}

func (o *operator) getRule(args []string) error {
	return show(o, get(rulePath(args[0])), func(w io.Writer, r *admin.Rule) {
		if r.Revision == 0 {
			fmt.Fprintf(w, "# %s, %s; it comes from %s and is not in the ledger\n%s", r.Name, stateOf(r), r.From,
				visible(r.YAML))
			return
		}
		fmt.Fprint(w, textOf(r))
	})
}

// textOf is a rule as its author wrote it, after a line that set reads. Control characters, which
// old rules may contain, are escaped for the terminal.
func textOf(r *admin.Rule) string {
	head := fmt.Sprintf("# revision %d, %s, by %s on %s%s\n", r.Revision, stateOf(r), r.Who,
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

// printable quotes a key with control characters, which a client may have sent to move the cursor of
// the terminal. Other keys are unchanged, so that bans lift accepts them.
func printable(key string) string {
	if !utf8.ValidString(key) || strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// shownKey is a key without the names of its components beside it.
func shownKey(key string) string { return printable(keytext.Described(key)) }

func rulePath(name string) string { return "rules/" + url.PathEscape(name) }

// seen is the given revision, or else the current one of the rule in the ledger; 0 if it is absent.
func (o *operator) seen(name string, given int64) (*int64, error) {
	if given > 0 {
		return &given, nil
	}
	var r admin.Rule
	_, err := o.send(get(rulePath(name)), &r)
	if isStatus(err, http.StatusNotFound) {
		err = nil
	}
	return &r.Revision, err
}

func (o *operator) setRule(args []string) error {
	body, err := o.input(args[1:])
	if err != nil {
		return err
	}
	return o.set(args[0], body, o.revision)
}

// revisionLine is the first line of the output of rules get.
var revisionLine = regexp.MustCompile(`^# revision ([1-9][0-9]{0,17}),[^\n]*\n`)

// set sets a rule from a text, if the rule is at the given revision, or at the revision in the first line of
// the text. Without a revision the rule must be new, because a blind write could overwrite the
// change of another operator.
func (o *operator) set(name string, body []byte, given int64) error {
	if head := revisionLine.FindSubmatch(body); head != nil {
		body = body[len(head[0]):]
		if n, err := strconv.ParseInt(string(head[1]), 10, 64); err == nil && given == 0 {
			given = n
		}
	}
	if o.force {
		given = 0
	}
	seen, err := o.seen(name, given)
	if err != nil {
		return err
	}
	if given == 0 && *seen > 0 && !o.force {
		return fmt.Errorf("rule %q is in the ledger at revision %d, and your text names no revision: "+
			"use weir rules edit %[1]s; or weir rules get %[1]s > FILE, change it, and weir rules set %[1]s FILE; "+
			"or --force", name, *seen)
	}
	query := o.query()
	if o.reverts != "" {
		query.Set("revert_after", o.reverts)
	}
	return o.change(serverRequest{method: http.MethodPut, path: rulePath(name), query: query,
		kind: "application/yaml", body: body, seen: seen})
}

// change makes a change after a dry run, which must not reset counts without --yes.
func (o *operator) change(r serverRequest) error {
	dry := r
	dry.seen, dry.query = nil, url.Values{"dry_run": {"true"}}
	if to := r.query.Get("to"); to != "" {
		dry.query.Set("to", to)
	}
	var would admin.Written
	if _, err := o.send(&dry, &would); err != nil {
		return err
	}
	for _, c := range would.Changes {
		if c.Counts == "anew" && !o.yes {
			printChanges(o.system.Err, &would)
			return fmt.Errorf("nothing was changed: counts would be reset; give --yes to reset them")
		}
	}
	return show(o, &r, printWritten)
}

// changeAt changes a rule at the revision of --revision, or the current one.
func (o *operator) changeAt(name string, r serverRequest) (err error) {
	if r.seen, err = o.seen(name, o.revision); err != nil {
		return err
	}
	return o.change(r)
}

func printChanges(w io.Writer, answer *admin.Written) {
	for _, c := range answer.Changes {
		fmt.Fprintln(w, c.Text)
	}
	if len(answer.Changes) == 0 {
		fmt.Fprintln(w, "no rule changes")
	}
}

func printWritten(w io.Writer, done *admin.Written) {
	printChanges(w, done)
	fmt.Fprintf(w, "revision %d, %s\n", done.Revision, inForce(done.InForce, done.Waiting))
	if !done.Reverts.IsZero() {
		fmt.Fprintf(w, "reverts %s, unless you run weir rules confirm %s\n", done.Reverts.UTC().Format(time.RFC3339),
			done.Name)
	}
}

// turnRule deletes, enables or disables a rule.
func (o *operator) turnRule(word, method, name string) error {
	seen, err := o.seen(name, o.revision)
	if err != nil {
		return err
	}
	path := rulePath(name)
	if method == http.MethodPost {
		path += "/" + word
	}
	return show(o, &serverRequest{method: method, path: path, query: o.query(), seen: seen}, printWritten)
}

func (o *operator) diffRules(args []string) error {
	body, err := o.input(args)
	if err != nil {
		return err
	}
	r := &serverRequest{method: http.MethodPost, path: "diff", kind: "application/yaml", body: body}
	if o.rule != "" {
		r.query = url.Values{"rule": {o.rule}}
	}
	return show(o, r, printChanges)
}

func (o *operator) history(args []string) error {
	r := get("history")
	r.query = url.Values{"most": {strconv.Itoa(o.most)}}
	if len(args) > 0 {
		r.query.Set("name", args[0])
	}
	return show(o, r, func(w io.Writer, answer *admin.History) {
		row(w, "REVISION", "WHEN", "WHO", "WHAT", "NAME", "WHY", "CHANGES")
		for _, c := range answer.History {
			var changes []string
			if c.Key != "" {
				changes = append(changes, "key "+shownKey(c.Key))
			}
			for _, one := range c.Changes {
				changes = append(changes, one.Text)
			}
			row(w, c.Revision, c.When.UTC().Format(time.RFC3339), c.Who, c.What, c.Name, printable(c.Why),
				strings.Join(changes, "; "))
		}
	})
}

func (o *operator) rollback(args []string) error {
	return o.changeAt(args[0], serverRequest{method: http.MethodPost, path: rulePath(args[0]) + "/rollback",
		query: o.query("to", args[1])})
}

func (o *operator) promote(args []string) error {
	r := serverRequest{method: http.MethodPost, path: rulePath(args[0]) + "/promote", query: o.query()}
	if o.dry {
		r.query = url.Values{"dry_run": {"true"}}
		return show(o, &r, printChanges)
	}
	return o.changeAt(args[0], r)
}

func (o *operator) restore([]string) error {
	query, did := o.query(), "written back"
	if o.forget {
		query.Set("forget", "true")
	}
	if o.dry {
		query.Set("dry_run", "true")
		did = "would be written back"
	}
	r := &serverRequest{method: http.MethodPost, path: "restore", query: query}
	return show(o, r, func(w io.Writer, answer *admin.Restored) {
		for _, name := range answer.Restored {
			fmt.Fprintf(w, "%s: %s\n", name, did)
		}
		fmt.Fprintf(w, "%d %s; changes up to revision %d had been lost; the ledger is at revision %d\n",
			len(answer.Restored), did, answer.Lost, answer.Revision)
	})
}

func (o *operator) compare(args []string) error {
	if o.keys < 0 || o.keys > 100 {
		return program.Usagef("--keys is %d; allowed: 0 to 100", o.keys)
	}
	return show(o, get(rulePath(args[0])+"/compare"), func(w io.Writer, c *admin.Comparison) {
		candidate := strings.Join(c.Candidate, ", ")
		if len(c.CandidateKey) > 0 {
			candidate += ", by " + strings.Join(c.CandidateKey, ", ")
		}
		fmt.Fprintf(w, "%s: %s\ncandidate: %s\nrequests to this server since %s:\n\n", c.Rule,
			strings.Join(c.Limit, ", "), candidate, c.Since.Format(time.RFC3339))
		all := c.BothGrant + c.NewlyRefused + c.NewlyGranted + c.BothRefuse
		fmt.Fprintln(w, "THE RULE\tTHE CANDIDATE\tREQUESTS\tSHARE\t")
		printShare(w, "grants\tgrants", c.BothGrant, all, "")
		printShare(w, "grants\trefuses", c.NewlyRefused, all, "newly refused")
		printShare(w, "refuses\tgrants", c.NewlyGranted, all, "no longer refused")
		printShare(w, "refuses\trefuses", c.BothRefuse, all, "")
		printKeys(w, "NEWLY REFUSED", c.RefusedKeys, o.keys)
		printKeys(w, "NO LONGER REFUSED", c.GrantedKeys, o.keys)
	})
}

func printShare(w io.Writer, decisions string, count, all int64, note string) {
	share := "-"
	if all > 0 {
		share = fmt.Sprintf("%.1f%%", 100*float64(count)/float64(all))
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", decisions, count, share, note)
}

func printKeys(w io.Writer, title string, list []admin.ChangedKey, most int) {
	if list = list[:min(len(list), most)]; len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tREQUESTS\n", title)
	for _, one := range list {
		count := fmt.Sprint(one.Count)
		if one.Over > 0 {
			count = fmt.Sprintf("%d to %d", one.Count-one.Over, one.Count)
		}
		fmt.Fprintf(w, "%s\t%s\n", shownKey(one.Key), count)
	}
}
