package gate_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// ends collects the ends of charges as texts.
type ends []string

func (e *ends) observe(c *gate.Counting) {
	id := ""
	if c.Origin != nil {
		id = fmt.Sprint(" ", c.Origin.Method, c.Origin.Path, c.Origin.Client)
	}
	*e = append(*e, fmt.Sprint(c.Rule.Name(), " ", c.Result, " ", c.Estimate, " ", c.Units, " ", c.Estimated, id))
}

func (e *ends) are(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(*e, want) {
		t.Errorf("ended\n%s\nwant\n%s", strings.Join(*e, "\n"), strings.Join(want, "\n"))
	}
	*e = nil
}

const metered = `
rules:
  - {name: tokens, unit: tokens, cost: {default: 8, settle: bytes}, limit: [fixed_window 100/1h, fixed_window 900/1d], candidate: {limit: fixed_window 200/1h}}
  - {name: tried, mode: shadow, cost: {default: 5, settle: bytes}, limit: fixed_window 100/1h}
  - {name: plain, limit: 100/1h}
  - {name: fixed, cost: 3, unit: credits, limit: 100/1h}
`

// openReceipt is of a granted request.
func openReceipt(t *testing.T, g *gate.Gate, settles bool) (receipt gate.Receipt, end func()) {
	t.Helper()
	ask, v := gate.Once, new(gate.Verdict)
	ask.Settles = settles
	request := &rules.Request{Method: "POST", Path: "/v1", Client: netip.MustParseAddr("192.0.2.1")}
	if err := g.Decide(t.Context(), request, ask, v); err != nil || v.Outcome != gate.Passed {
		t.Fatal(v.Outcome, err)
	}
	for i := range v.Len() {
		rule, _, _, _, ok := v.Counted(i)
		units, estimated := v.Units(i)
		want := map[string]string{"tokens": fmt.Sprint(8, settles), "tried": fmt.Sprint(5, settles), "plain": "0false", "fixed": "3false"}
		if got := fmt.Sprint(units, estimated); ok && strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want[rule.Name()], " ", "") {
			t.Errorf("units of %s: %s", rule.Name(), got)
		}
	}
	receipt = v.Receipt()
	return receipt, g.Open(receipt)
}

// TestEstimatesAreReservedUntilTheyAreSettled: each rule of a request counts once, whatever its limits and its candidate.
func TestEstimatesAreReservedUntilTheyAreSettled(t *testing.T) {
	var told ends
	g := open(t, memstore.New(), metered, gate.WithObserver(func(*gate.Verdict) {}), gate.WithCountObserver(told.observe))
	has := func(want string) {
		t.Helper()
		if got := fmt.Sprint(g.Reserved()); got != want {
			t.Errorf("reserved %s, want %s", got, want)
		}
	}
	first, endFirst := openReceipt(t, g, true)
	_, endSecond := openReceipt(t, g, true)
	has("map[tokens:16 tried:10]")
	if err := g.Settle(t.Context(), first, 3); err != nil {
		t.Fatal(err)
	}
	told.are(t, "tokens settled 8 3 true POST/v1192.0.2.1", "tried settled 5 3 true POST/v1192.0.2.1")
	has("map[tokens:8 tried:5]")
	endFirst()
	told.are(t)
	endSecond()
	endSecond()
	told.are(t, "tokens unsettled 8 8 true POST/v1192.0.2.1", "tried unsettled 5 5 true POST/v1192.0.2.1")
	has("map[]")

	third, end := openReceipt(t, g, false)
	has("map[]")
	end()
	told.are(t)
	if err := g.Settle(t.Context(), third, 9); err != nil {
		t.Fatal(err)
	}
	told.are(t, "tokens settled 8 9 false", "tried settled 5 9 false")
}

// TestStepsAreReserved: units that a stream has been charged for wait with the estimate.
func TestStepsAreReserved(t *testing.T) {
	var told ends
	g := open(t, memstore.New(), "rules: [{name: a, cost: {default: 3, settle: bytes}, charge: as_it_streams, limit: fixed_window 100/1d}]",
		gate.WithCountObserver(told.observe))
	ask, v := gate.Once, new(gate.Verdict)
	ask.Settles = true
	if err := g.Decide(t.Context(), &rules.Request{}, ask, v); err != nil {
		t.Fatal(err)
	}
	receipt := v.Receipt()
	end := g.Open(receipt)
	if _, _, err := g.ChargeStep(t.Context(), receipt, g.Rules().Rules()[0], 10, false); err != nil {
		t.Fatal(err)
	}
	if got := g.Reserved()["a"]; got != 13 {
		t.Errorf("%d are reserved, want 13", got)
	}
	end()
	told.are(t, "a unsettled 3 13 true invalid IP")
}

// TestRulesMayChangeWhileUnitsAreReserved: the units are those of the name, until they are settled.
func TestRulesMayChangeWhileUnitsAreReserved(t *testing.T) {
	var told ends
	g := open(t, memstore.New(), metered, gate.WithCountObserver(told.observe))
	receipt, end := openReceipt(t, g, true)
	for _, text := range []string{"rules: []", metered} {
		if err := g.Swap(compiled(t, text)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(g.Reserved()); got != "map[tokens:8 tried:5]" {
			t.Errorf("reserved %s", got)
		}
	}
	if err := g.Settle(t.Context(), receipt, 1); err != nil {
		t.Fatal(err)
	}
	end()
	told.are(t, "tokens settled 8 1 true invalid IP", "tried settled 5 1 true invalid IP")
	if got := fmt.Sprint(g.Reserved()); got != "map[]" {
		t.Errorf("reserved %s in the end", got)
	}
}

// TestUnitsThatComeBackAreTold: by count_if, and by reservations that are settled once.
func TestUnitsThatComeBackAreTold(t *testing.T) {
	var told ends
	g := open(t, memstore.New(), `
rules:
  - {name: failed, unit: tries, cost: {default: 2, settle: bytes}, count_if: {status: 401}, limit: fixed_window 100/1h}
  - {name: credits, unit: credits, limit: fixed_window 100/1h}
`, gate.WithCountObserver(told.observe))
	ask, v := gate.Once, new(gate.Verdict)
	ask.Settles = true
	decide := func(ask gate.Ask) gate.Receipt {
		t.Helper()
		if err := g.Decide(t.Context(), &rules.Request{}, ask, v); err != nil {
			t.Fatal(err)
		}
		return v.Receipt()
	}
	receipt := decide(ask)
	end := g.Open(receipt)
	if _, err := g.Respond(t.Context(), receipt, gate.Response{Status: 200}); err != nil {
		t.Fatal(err)
	}
	end()
	told.are(t, "failed given_back 2 0 true invalid IP")

	ask = gate.Ask{Times: 1, Claims: []weir.Claim{guard(t, "x")}}
	receipt = decide(ask)
	if err := g.SettleOnce(context.Background(), receipt[2], receipt[:2], 7); err != nil {
		t.Fatal(err)
	}
	told.are(t, "failed settled 2 7 false", "credits settled 1 7 false")
	if err := g.SettleOnce(context.Background(), receipt[2], receipt[:2], 7); err == nil {
		t.Error("settled twice")
	}
	told.are(t)
}
