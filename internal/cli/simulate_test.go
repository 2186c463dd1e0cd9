package cli_test

import (
	"os"
	"strings"
	"testing"
)

// TestPageOfSimulations runs the commands of docs/simulate.md on the rules that it shows, and compares the output with
// the page.
func TestPageOfSimulations(t *testing.T) {
	t.Parallel()
	const name = "../../docs/simulate.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	file, _, _ := strings.Cut(rest, "```\n")
	dir := t.TempDir()
	write(t, dir, "weir.yaml", file)
	parts := strings.Split(string(page), "```sh\nweir ")
	for i, part := range parts[1:] {
		command, after, _ := strings.Cut(part, "```\n\n```text\n")
		shown, after, ok := strings.Cut(after, "```\n")
		r := call{dir: dir}.shell(t, "weir "+command)
		if r.code != 0 || !ok || !*update && r.out != shown {
			t.Errorf("%sexit %d\n%s%s\nthe page shows\n%s", command, r.code, r.out, r.err, shown)
		}
		parts[i+1] = command + "```\n\n```text\n" + r.out + "```\n" + after
	}
	if len(parts) < 3 {
		t.Error("the page has no commands")
	}
	if *update {
		if err := os.WriteFile(name, []byte(strings.Join(parts, "```sh\nweir ")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
