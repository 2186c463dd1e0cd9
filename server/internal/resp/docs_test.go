package resp_test

import (
	"os"
	"strings"
	"testing"
)

const prompt = "127.0.0.1:6380> "

// TestPageMatchesServer types what docs/reference/resp.md shows into the real redis-cli, with the rules
// that it shows, and compares what comes.
func TestPageMatchesServer(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/resp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n```yaml\n")
	shown, _, _ := strings.Cut(after, "```")
	h := openWith(t, shown)
	typed := 0
	for _, block := range strings.Split(string(text), "\n```text\n")[1:] {
		session, _, _ := strings.Cut(block, "```")
		for _, step := range strings.Split(session, prompt)[1:] {
			command, want, _ := strings.Cut(step, "\n")
			if got := h.cli(t, command+"\n"); strings.TrimSuffix(got, "\n\n") != strings.TrimSuffix(want, "\n") && got != want {
				t.Errorf("%s\nsays\n%s\nthe page says\n%s", command, got, want)
			}
			typed++
		}
	}
	if typed < 10 {
		t.Errorf("only %d commands were found", typed)
	}
}
