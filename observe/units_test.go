package observe_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
)

// TestUnitsAreCounted of metered rules: estimates when they are settled, and other costs at once.
func TestUnitsAreCounted(t *testing.T) {
	m := observe.New("v")
	set := gatetest.Rules(t, `rules:
  - {name: tokens, unit: tokens, cost: {default: 100, settle: bytes}, limit: fixed_window 10000/1h}
  - {name: money, unit: USD/1000000, cost: 7, limit: fixed_window 10000/1h}
  - {name: sized, cost: {from: query.n, max: 5, default: 2}, limit: fixed_window 10000/1h}
  - {name: plain, cost: 3, limit: fixed_window 10000/1h}
`)
	g := gatetest.Of(t, memstore.New(), set, gate.WithObserver(m.Verdict), gate.WithCountObserver(m.Counting))
	m.Rules(set, time.Unix(1, 0))
	ask, v := gate.Once, new(gate.Verdict)
	ask.Settles = true
	var ends []func()
	var receipts []gate.Receipt
	for range 2 {
		if err := g.Decide(t.Context(), &rules.Request{}, ask, v); err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, v.Receipt())
		ends = append(ends, g.Open(receipts[len(receipts)-1]))
	}
	says(t, m, `weir_units_total{rule="tokens",unit="tokens"} 0`, `weir_units_settled_total{rule="tokens",unit="tokens"} 0`,
		`weir_units_total{rule="money",unit="USD/1000000"} 14`, `weir_units_total{rule="sized",unit=""} 4`)
	if err := g.Settle(t.Context(), receipts[0], 30); err != nil {
		t.Fatal(err)
	}
	ends[0]()
	ends[1]()
	says(t, m, `weir_units_total{rule="tokens",unit="tokens"} 130`, `weir_units_estimated_total{rule="tokens",unit="tokens"} 100`,
		`weir_units_settled_total{rule="tokens",unit="tokens"} 30`)
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, v); err != nil {
		t.Fatal(err)
	}
	says(t, m, `weir_units_total{rule="tokens",unit="tokens"} 230`)
	if err := g.Settle(t.Context(), v.Receipt(), 90); err != nil {
		t.Fatal(err)
	}
	says(t, m, `weir_units_total{rule="tokens",unit="tokens"} 230`, `weir_units_returned_total{rule="tokens",unit="tokens"} 10`,
		`weir_units_settled_total{rule="tokens",unit="tokens"} 120`)
	if strings.Contains(expose(t, m), `weir_units_total{rule="plain"`) {
		t.Error("the units of a rule that always costs the same are counted")
	}
}
