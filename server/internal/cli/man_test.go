package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// request is a line that troff interprets.
var request = regexp.MustCompile(`^\.(TH|SH|PP|TP|B|BR|nf|fi)( |$)`)

// TestManualPages: each command has a page with the text of its help, in which nothing of the text is a request.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if r := (call{dir: dir}).run(t, "man", "--dir", "man1"); r.code != 0 {
		t.Fatal(r)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man1", "weir*.1"))
	if err != nil || len(pages) < 40 {
		t.Fatal(pages, err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		command := strings.Split(strings.TrimSuffix(filepath.Base(name), ".1"), "-")[1:]
		if filepath.Base(name) == "weir-verify-proxy.1" {
			command = []string{"verify-proxy"}
		}
		if r := (call{}).run(t, append([]string{"man"}, command...)...); r.code != 0 || r.out != string(page) {
			t.Errorf("weir man %q differs from its file: %v", command, r)
		}
		for line := range strings.Lines(string(page)) {
			if (line[0] == '.' || line[0] == '\'') && !request.MatchString(strings.TrimSpace(line)) {
				t.Errorf("%s: troff would interpret %q", name, line)
			}
			if at := strings.IndexFunc(line, func(r rune) bool { return r > '~' }); at >= 0 {
				t.Errorf("%s: %q is not ASCII", name, line[at:])
			}
		}
		help := (call{}).run(t, append(command, "--help")...).out
		for _, flag := range flagLine.FindAllStringSubmatch(help, -1) {
			if shown := `\fB\-\-` + strings.ReplaceAll(flag[1], "-", `\-`) + `\fR`; flag[1] != "help" && !strings.Contains(string(page), shown) {
				t.Errorf("%s has no flag --%s", name, flag[1])
			}
		}
	}
	if r := (call{}).run(t, "man", "nothing"); r.code != 2 || !strings.Contains(r.err, "is no command") {
		t.Error(r)
	}
}
