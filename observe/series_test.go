package observe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// manyRules returns n rules, each with a path of its own, numbered from first.
func manyRules(t *testing.T, first, n int) *rules.Set {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&text, " - {name: r%d, match: {path: /p%d}, limit: 1/1h}\n", first+i, first+i)
	}
	return gatetest.Rules(t, text.String())
}

// Rules without counts have no series; counted rules beyond the maximum share one, which never
// decreases.
func TestSeriesOfCountedRulesAreBounded(t *testing.T) {
	m, g := open(t, memstore.New())
	use := func(first, n int) {
		set := manyRules(t, first, n)
		if err := g.Swap(set); err != nil {
			t.Fatal(err)
		}
		m.Rules(set, time.Now())
	}
	ask := func(first, n int) {
		for i := range n {
			decide(t, g, from("192.0.2.1", fmt.Sprintf("/p%d", first+i)), gate.Once)
		}
	}
	use(0, 10_000)
	if text := expose(t, m); strings.Contains(text, "weir_decisions_total{") || len(text) > 40_000 {
		t.Errorf("nothing was counted, and /metrics has %d bytes:\n%s", len(text), grep(text, "weir_decisions_total{"))
	}
	ask(7, 1)
	says(t, m, `weir_decisions_total{outcome="passed",rule="r7"} 1`, `weir_decisions_total{outcome="refused",rule="r7"} 0`)
	ask(0, 3000)
	text := expose(t, m)
	if n := strings.Count(text, "weir_decisions_total{"); n != 2*2001 {
		t.Errorf("%d series, want two each of 2000 rules and of (other)", n)
	}
	says(t, m, `weir_decisions_total{outcome="refused",rule="r7"} 1`, `weir_decisions_total{outcome="passed",rule="(other)"} 1000`)
	ask(0, 3000)
	says(t, m, `weir_decisions_total{outcome="refused",rule="(other)"} 1000`)

	use(5000, 100) // replaces all counted rules
	says(t, m, `weir_decisions_total{outcome="passed",rule="(other)"} 1000`, `weir_decisions_total{outcome="refused",rule="(other)"} 1000`)
	ask(5000, 1)
	says(t, m, `weir_decisions_total{outcome="passed",rule="r5000"} 1`)
}
