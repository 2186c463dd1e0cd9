//go:build !race

package telemetry

import (
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// The race detector drops what a sync.Pool keeps, so allocations are not counted under it.

func TestVerdictAllocatesNothing(t *testing.T) {
	n := newNode(t, `
rules:
  - {name: user, key: [user], limit: fixed_window 1000/1h}
  - {name: all, limit: fixed_window 1000000/1h}
`, true)
	var v gate.Verdict
	users := []*rules.Request{{User: "a"}, {User: "b"}, {User: "c with a name of more than sixteen bytes"}}
	passed, refused := 0, 0
	if allocated := testing.AllocsPerRun(2000, func() {
		for _, r := range users {
			if n.gate.Decide(t.Context(), r, gate.Once, &v) != nil {
				t.Fatal(v.Err)
			}
			if v.Outcome == gate.Passed {
				passed++
			} else {
				refused++
			}
		}
	}); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
	if passed != 3000 || refused < 3000 || len(n.passes.events) == 0 || len(n.others.events) == 0 {
		t.Errorf("%d passed, %d refused, %d and %d samples", passed, refused, len(n.passes.events), len(n.others.events))
	}
}
