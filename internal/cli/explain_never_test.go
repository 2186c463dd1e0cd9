//go:build unix

package cli_test

import (
	"strings"
	"testing"
)

// A cost that the limit can never hold is told as such, and as -1 in JSON.
func TestExplainTellsOfACostThatNeverFits(t *testing.T) {
	const text = "rules:\n  - {name: upload, key: [client.ip], cost: 9, limit: fixed_window 5/1h}\n"
	path := write(t, t.TempDir(), "rules.yaml", text)
	for flag, want := range map[string]string{
		"--json=false": "refuses: the cost is more than it can ever hold",
		"--json=true":  `"retry_after_us": -1`,
	} {
		r := call{}.run(t, "explain", "--config", path, flag, "--client", "203.0.113.9", "http://example.com/")
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%s: want %s:\n%v", flag, want, r)
		}
	}
}
