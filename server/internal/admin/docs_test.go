//go:build unix

package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ruleset/ledger"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```")
	comment = regexp.MustCompile(` # (\d+)$`)
)

// TestExamplesOfDocs runs the lines of docs/reference/admin.md in its order, on a server with its
// rules, and compares the answer to the last line of each block with the JSON after it. The
// status is 200, or in a comment; a text that ends in … stands for whatever begins so.
func TestExamplesOfDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := fenced.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 11 || blocks[0][1] != "yaml" {
		t.Fatalf("%d blocks; want rules first", len(blocks))
	}
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	c := newWorld(t, blocks[0][2], backend, backend.Source()).start()
	for i := 1; i < len(blocks); i += 2 {
		if blocks[i][1] != "sh" || blocks[i+1][1] != "json" {
			t.Fatalf("a block of kind %s without its answer:\n%s", blocks[i][1], blocks[i][2])
		}
		var got, want any
		text := ""
		for line := range strings.Lines(blocks[i][2]) {
			text = c.curl(strings.TrimSpace(line))
		}
		if err := json.Unmarshal([]byte(blocks[i+1][2]), &want); err != nil {
			t.Fatalf("%v:\n%s", err, blocks[i+1][2])
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if d := differ("", want, got); d != "" {
			t.Errorf("%s%s\nthe server answers %s", blocks[i][2], d, text)
		}
	}
}

// curl runs a line of curl on the test's server.
func (c *client) curl(line string) string {
	c.t.Helper()
	want := "200"
	if found := comment.FindStringSubmatch(line); found != nil {
		want = found[1]
	}
	line = strings.Replace(strings.Replace(line, "localhost:8080", strings.TrimPrefix(c.url, "http://"), 1), "curl ",
		`curl -s -w '%{http_code}' `, 1)
	out, err := exec.CommandContext(c.t.Context(), "bash", "-c", line).Output()
	text, status := string(out[:max(0, len(out)-3)]), string(out[max(0, len(out)-3):])
	if err != nil || status != want {
		c.t.Errorf("%s\nanswers %s %v, want %s:\n%s", line, status, err, want, text)
	}
	return text
}

func differ(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok || len(got) != len(want) {
			return at + " has other members"
		}
		for name := range want {
			if d := differ(at+"."+name, want[name], got[name]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return at + " has other elements"
		}
		for i := range want {
			if d := differ(fmt.Sprint(at, "[", i, "]"), want[i], got[i]); d != "" {
				return d
			}
		}
		return ""
	case string:
		if short, ok := strings.CutSuffix(want, "…"); ok {
			if got, _ := got.(string); got != "" && strings.HasPrefix(got, short) {
				return ""
			}
		}
	}
	if want != got {
		return fmt.Sprintf("%s is %v, want %v", at, got, want)
	}
	return ""
}
