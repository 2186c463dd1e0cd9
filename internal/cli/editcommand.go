package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
)

func (s *System) rulesEdit() *cobra.Command {
	f := new(changeFlags)
	command := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change a rule in your editor",
		Args:  argsBetween(1, 1, "the name of a rule"),
		Long: `Change a rule in $VISUAL, $EDITOR or vi. If another operator has changed it meanwhile, or your
text has a mistake, the text is kept in a file and the next command is suggested. A new rule
starts as a template.`,
		Example: "  weir rules edit login --why \"still too many\"",
		RunE:    s.operate(&f.operatorFlags, func(o *operator, args []string) error { return o.edit(args[0]) })}
	f.operatorFlags.add(command.Flags())
	f.writing(command.Flags())
	command.Flags().BoolVar(&f.yes, "yes", false, "make the change even if it resets counts")
	return command
}

// edit opens a rule in the editor, and sets it to the result.
func (o *operator) edit(name string) error {
	before, revision, err := o.draft(name)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "weir-*.yaml")
	if err != nil {
		return err
	}
	path := file.Name()
	_, err = file.WriteString(before)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = o.system.editor(path)
	}
	var after []byte
	if err == nil {
		after, err = os.ReadFile(path)
	}
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(after)) == 0 || string(after) == before {
		fmt.Fprintln(o.system.Err, "weir: nothing was changed")
		return os.Remove(path)
	}
	o.cancel() // the timeout must not include the time in the editor
	o.ctx, o.cancel = context.WithTimeout(o.started, o.timeout)
	if err := o.set(name, after, revision, false); err != nil {
		return o.kept(name, path, err)
	}
	return os.Remove(path)
}

// draft is the initial text of the editor, and its revision.
func (o *operator) draft(name string) (text string, revision int64, err error) {
	var r ruleView
	_, err = o.send(adminRequest{method: http.MethodGet, path: rulePath(name)}, &r)
	switch {
	case isStatus(err, http.StatusNotFound):
		return fmt.Sprintf("name: %s\nkey: [client.ip]\nlimit: 100/1m\n", name), 0, nil
	case err != nil:
		return "", 0, err
	case r.YAML == "" && r.Revision > 0:
		return "", 0, fmt.Errorf("rule %q is disabled, and defined in %s: weir rules enable %[1]s", name, r.From)
	case r.Revision == 0:
		return fmt.Sprintf("# This rule is defined in %s, which stays unchanged: your text here overrides it.\n"+
			"name: %s\nkey: [client.ip]\nlimit: [%s]\n",
			r.From, name, strings.Join(r.Limit, ", ")), 0, nil
	}
	return r.text(), r.Revision, nil
}

// kept adds to an error how to continue with the text, which was not accepted.
func (o *operator) kept(name, path string, err error) error {
	fmt.Fprintf(o.system.Err, "weir: your text is kept in %s\n", path)
	if isStatus(err, http.StatusPreconditionFailed) {
		return fmt.Errorf("%w. weir rules get %[2]s prints the current text: make your change there, keep its "+
			"first line, "+
			"and run weir rules set %[2]s FILE; or overwrite it with weir rules set %[2]s %[3]s "+
			"--force", err, name, path)
	}
	return fmt.Errorf("%w. Continue with: weir rules set %s %s", err, name, path)
}

// editor runs the editor of the user.
func (s *System) editor(path string) error {
	words := strings.Fields(s.lookup("VISUAL"))
	if len(words) == 0 {
		words = strings.Fields(s.lookup("EDITOR"))
	}
	if len(words) == 0 {
		words = []string{"vi"}
	}
	command := exec.Command(words[0], append(words[1:], path)...)
	command.Stdin, command.Stdout, command.Stderr, command.Env = s.In, s.Out, s.Err, s.Environ
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w; nothing was changed; set EDITOR to another editor", strings.Join(words, " "),
			path, err)
	}
	return nil
}

func (s *System) rulesRestore() *cobra.Command {
	f, forget, dry := new(operatorFlags), false, false
	command := &cobra.Command{
		Use:   "restore",
		Short: "Restore lost changes of the ledger in Redis",
		Args:  noArgs,
		Long: `Restore changes that the ledger in Redis has lost: its keys were deleted or evicted, or a replica
without the newest changes took over. Servers that read the ledger before keep it in force,
report the loss in /readyz and in their metrics, and refuse changes until it is resolved. Run
this command on one of them: it writes back its rules and exceptions in force, each as a new
change. Later changes are not overwritten. With --forget nothing is written back, and the
current content of the ledger is in force on all servers.`,
		Example: `  weir rules restore --dry-run
  weir rules restore --why "the cache evicted it"`,
		RunE: s.operate(f, func(o *operator, _ []string) error {
			query := o.reason()
			for name, on := range map[string]bool{"forget": forget, "dry_run": dry} {
				if on {
					query.Set(name, "true")
				}
			}
			return o.restore(query, dry)
		})}
	f.add(command.Flags())
	f.writing(command.Flags())
	command.Flags().BoolVar(&forget, "forget", false, "accept the loss")
	command.Flags().BoolVar(&dry, "dry-run", false, "only show what would be written back")
	return command
}

func (o *operator) restore(query url.Values, dry bool) error {
	var answer struct {
		Restored       []string
		Revision, Lost int64
	}
	text, err := o.send(adminRequest{method: http.MethodPost, path: "restore", query: query}, &answer)
	if err != nil {
		return err
	}
	return o.print(text, func(w io.Writer) {
		did := "written back"
		if dry {
			did = "would be written back"
		}
		for _, name := range answer.Restored {
			fmt.Fprintf(w, "%s: %s\n", name, did)
		}
		fmt.Fprintf(w, "%d %s; changes up to revision %d had been lost; the ledger is at revision %d\n",
			len(answer.Restored), did, answer.Lost, answer.Revision)
	})
}
