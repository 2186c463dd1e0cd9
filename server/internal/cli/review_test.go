package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPageOfReviews reviews the rules that docs/howto/reviewing-rules.md shows.
func TestPageOfReviews(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/howto/reviewing-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	file, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "```text\n")
	want, _, _ := strings.Cut(rest, "```\n")
	dir := t.TempDir()
	write(t, dir, "weir.yaml", file)
	r := (call{dir: dir}).run(t, "check", "--review", "weir.yaml")
	if *update {
		if err := os.WriteFile("../../../docs/howto/reviewing-rules.md", []byte(strings.Replace(string(page), want, r.out, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if r.code != 0 || r.out != want {
		t.Errorf("exit %d\n%s%s\nwant\n%s", r.code, r.out, r.err, want)
	}
}

// TestRulesOfTheRepositoryAreReviewed: the rule files for users have no findings but the notes that are listed here.
func TestRulesOfTheRepositoryAreReviewed(t *testing.T) {
	t.Parallel()
	notes := map[string]int{
		"../../../examples/llm/rules.yaml":   4, // it checks Authorization itself, and reads bodies; its preset is explained
		"../../../examples/api/rules.yaml":   1, // it has routes and users, which a gateway does not know
		"../../../examples/login/rules.yaml": 1, // likewise descriptors
	}
	files, err := filepath.Glob("../../../examples/*/rules.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "../../../deploy/gateway/weir.yaml") {
		r := call{}.run(t, "check", "--review", "--format", "json", file)
		var document struct {
			Findings []struct{ Severity, Message string }
			Reviews  []struct{ Rules []struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(r.out), &document); err != nil || r.code != 0 {
			t.Fatalf("%s: exit %d, %v\n%s", file, r.code, err, r.err)
		}
		if len(document.Findings) != notes[file] {
			t.Errorf("%s: %+v", file, document.Findings)
		}
		if len(document.Reviews[0].Rules) == 0 {
			t.Errorf("%s: no rule", file)
		}
	}
}
