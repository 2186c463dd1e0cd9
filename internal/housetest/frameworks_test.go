package housetest

import (
	"strings"
	"testing"
)

// TestFrameworksAreShownAsTested: the adapters are modules outside the workspace, so the blocks of their page are not
// compiled from the page. Each is part of a test of an adapter.
func TestFrameworksAreShownAsTested(t *testing.T) {
	const page = "docs/howto/frameworks.md"
	text, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := files("_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, path := range paths {
		if within(path, "contrib") {
			source, err := read(path)
			if err != nil {
				t.Fatal(err)
			}
			tests.WriteString(unindented(source))
		}
	}
	shown := 0
	for _, b := range blocks(page, text) {
		if b.kind != "golang" && b.kind != "caddyfile" {
			continue
		}
		if shown++; !strings.Contains(tests.String(), unindented(b.text)) {
			t.Errorf("%s:%d: the block is no part of a test of an adapter in contrib", page, b.line)
		}
	}
	if shown < 4 {
		t.Errorf("%s shows %d adapters", page, shown)
	}
}

func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
