package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
)

// TestExplainPrintsShares: as in docs/reference/fair.md, and for the other reasons.
func TestExplainPrintsShares(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "fair.md"))
	if err != nil {
		t.Fatal(err)
	}
	limit := gate.ExplainedLimit{Name: "search", Member: "header.X-Tenant=4:acme", Weight: 3, Standing: &gate.Share{
		Own: 320, Share: 360, Weights: 5, Used: 540, Open: 400, Why: gate.WithinShare}}
	said := func() string {
		var b strings.Builder
		printShares(&b, "", &gate.ExplainedRule{Limits: []gate.ExplainedLimit{limit}})
		return b.String()
	}
	if text := said(); !strings.Contains(string(page), text) {
		t.Errorf("the page does not have %q", text)
	}
	limit.Standing.Others, limit.Floor = true, 10
	for why, want := range map[gate.ShareReason]string{gate.HasRoom: "granted, as there is room for all",
		gate.BeyondShare: "refused beyond its share", "": "refused, as the cost exceeds the limit",
		gate.IsFull: "refused, as the whole limit is used up except for the units left to others"} {
		limit.Standing.Why = why
		if text := said(); !strings.HasSuffix(text, ": "+want+"\n") || !strings.Contains(text, "beyond max_keys") {
			t.Errorf("%q is explained as %q", why, text)
		}
	}
}

func TestLatenciesAreSaidWithoutExponents(t *testing.T) {
	for seconds, want := range map[float64]string{0: "-", 0.000_012_34: "0.0123ms", 0.045_678: "45.7ms", 0.1234: "123ms",
		1.2345: "1234ms", 60: "60000ms"} {
		if got := shownSeconds(seconds); got != want {
			t.Errorf("%v s is %s, want %s", seconds, got, want)
		}
	}
}
