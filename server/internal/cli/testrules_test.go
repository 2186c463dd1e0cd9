package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPagesRulesAreTested runs the tests of the rules in the pages and of the examples. The rules of the pages are copied
// into the files of tests, which begin with the name of their page, or of both its languages, whose comments differ; or the
// page shows the whole file.
func TestPagesRulesAreTested(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/tests/*.test.yaml")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		first, rest, _ := strings.Cut(string(text), "\n")
		tests := strings.Index(rest, "\ntests:\n")
		if start := strings.Index(rest, "\nstart:"); start >= 0 && start < tests {
			tests = start
		}
		if tests < 0 {
			t.Fatalf("%s has no tests", name)
		}
		pages := strings.TrimSuffix(strings.TrimPrefix(first, "# The rules are those of "), ".")
		for _, page := range strings.Split(pages, " and ") {
			text, err := os.ReadFile(filepath.Join("../../..", page))
			shown, whole, rules := uncommented(string(text)), uncommented("```yaml\n"+rest+"```"), uncommented("```yaml\n"+rest[:tests+1]+"```")
			if err != nil || !strings.Contains(shown, rules) && !strings.Contains(shown, whole) {
				t.Errorf("%s: %s has no such block of rules: %v", name, page, err)
			}
		}
	}
	examples, err := filepath.Glob("../../../examples/*/*.test.yaml")
	if err != nil || len(examples) < 3 {
		t.Fatal(examples, err)
	}
	if r := (call{}).run(t, append([]string{"test"}, append(files, examples...)...)...); r.code != 0 {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
}

var comment = regexp.MustCompile(`(?m)(^| +)# .*\n`)

func uncommented(text string) string { return comment.ReplaceAllString(text, "\n") }

// TestPageOfTests runs the file that docs/howto/testing-rules.md shows, and one with another limit, whose failure it shows.
func TestPageOfTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/howto/testing-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	file, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "```text\n")
	failure, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	outage, _, _ := strings.Cut(rest, "```\n")
	dir := t.TempDir()
	write(t, dir, "outage.test.yaml", outage)
	if r := (call{dir: dir}).run(t, "test", "outage.test.yaml"); r.code != 0 || !strings.Contains(outage, "store: down") {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	write(t, dir, "login.test.yaml", file)
	if r := (call{dir: dir}).run(t, "test", "login.test.yaml"); r.code != 0 {
		t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
	}
	write(t, dir, "login.test.yaml", strings.Replace(file, "5/1m", "3/1m", 1))
	r := call{dir: dir}.run(t, "test", "login.test.yaml")
	if r.code != 1 || failure == "" || !strings.HasPrefix(r.out, failure) {
		t.Errorf("exit %d\n%s\nwant\n%s", r.code, r.out, failure)
	}
}
