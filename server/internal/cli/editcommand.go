package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/weirproject/weir/server/internal/admin"
)

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
	o.again() // the timeout must not include the time in the editor
	if err := o.set(name, after, revision); err != nil {
		return o.kept(name, path, err)
	}
	return os.Remove(path)
}

// draft is the initial text of the editor, and its revision.
func (o *operator) draft(name string) (text string, revision int64, err error) {
	var r admin.Rule
	_, err = o.send(get(rulePath(name)), &r)
	switch {
	case isStatus(err, http.StatusNotFound):
		return fmt.Sprintf("name: %s\nkey: [client.ip]\nlimit: 100/1m\n", name), 0, nil
	case err != nil:
		return "", 0, err
	case r.YAML == "" && r.Revision > 0:
		return "", 0, fmt.Errorf("rule %q is disabled, and defined in %s: weir rules enable %[1]s", name, r.From)
	case r.Revision == 0:
		text := r.YAML
		if text == "" { // it cannot be written alone
			text = fmt.Sprintf("name: %s\nkey: [client.ip]\nlimit: [%s]\n", name, strings.Join(r.Limit, ", "))
		}
		return fmt.Sprintf("# This rule is defined in %s, which stays unchanged: your text here overrides it.\n%s",
			r.From, visible(text)), 0, nil
	}
	return textOf(&r), r.Revision, nil
}

// kept adds to an error how to continue with the text, which was not accepted.
func (o *operator) kept(name, path string, err error) error {
	fmt.Fprintf(o.system.Err, "weir: your text is kept in %s\n", path)
	if isStatus(err, http.StatusPreconditionFailed) {
		return fmt.Errorf("%w. weir rules get %[2]s prints the current text: make your change there, keep its "+
			"first line, and run weir rules set %[2]s FILE; or overwrite it with weir rules set %[2]s %[3]s "+
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
