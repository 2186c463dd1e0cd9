package telemetry

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

const tokenRules = `
rules:
  - {name: tokens, unit: tokens, key: [user], cost: {default: 100, settle: bytes}, limit: fixed_window 100000000/1h}
  - {name: credits, unit: USD/100, key: [user], cost: 5, limit: fixed_window 100000000/1h}
  - {name: plain, key: [user], limit: fixed_window 100000000/1h}
`

// begin decides a request whose cost is settled at its end.
func (n *node) begin(t testing.TB, user string) (receipt gate.Receipt, end func()) {
	t.Helper()
	ask, v := gate.Once, new(gate.Verdict)
	ask.Settles = true
	if err := n.gate.Decide(t.Context(), &rules.Request{User: user}, ask, v); err != nil || v.Outcome != gate.Passed {
		t.Fatal(v.Outcome, err)
	}
	receipt = v.Receipt()
	return receipt, n.gate.Open(receipt)
}

// spends is a request that costs so many units in the end.
func (n *node) spends(t testing.TB, user string, units int64) {
	t.Helper()
	receipt, end := n.begin(t, user)
	if err := n.gate.Settle(t.Context(), receipt, units); err != nil {
		t.Fatal(err)
	}
	end()
}

func (r *Record) of(t testing.TB, name string) *RuleRecord {
	t.Helper()
	i := slices.IndexFunc(r.Rules, func(one RuleRecord) bool { return one.Name == name })
	if i < 0 {
		t.Fatalf("no rule %s in %+v", name, r.Rules)
	}
	return &r.Rules[i]
}

// TestUnitsAreSpentWhenTheyAreSettled, and reserved until then; fixed costs are spent at once.
func TestUnitsAreSpentWhenTheyAreSettled(t *testing.T) {
	n := newNode(t, tokenRules, true)
	receipt, end := n.begin(t, "ann")
	n.spends(t, "bob", 30)
	n.clock = n.clock.Add(10 * time.Second)
	record := n.Cut(n.clock)
	if got, want := record.of(t, "tokens").Counts, (Counts{Passed: 2, Spent: 30, Estimated: 100, Settled: 30, Reserved: 1000}); got != want {
		t.Errorf("tokens: %+v", got)
	}
	if got, want := record.of(t, "credits").Counts, (Counts{Passed: 2, Spent: 10}); got != want {
		t.Errorf("credits: %+v", got)
	}
	if got, want := record.of(t, "plain").Counts, (Counts{Passed: 2}); got != want {
		t.Errorf("plain: %+v", got)
	}
	if record.Total.Spent != 0 {
		t.Errorf("units of several rules are added up: %+v", record.Total)
	}
	n.clock = n.clock.Add(5 * time.Second)
	if got := n.Cut(n.clock).of(t, "tokens").Counts; got != (Counts{Reserved: 500}) {
		t.Errorf("a rule with reserved units alone: %+v", got)
	}
	if err := n.gate.Settle(t.Context(), receipt, 450); err != nil {
		t.Fatal(err)
	}
	end()
	n.clock = n.clock.Add(time.Second)
	one := n.Cut(n.clock).of(t, "tokens")
	if want := (Counts{Spent: 450, Estimated: 100, Settled: 450}); one.Counts != want {
		t.Errorf("settled: %+v", one.Counts)
	}
	if len(one.Top) != 1 || one.Top[0].Key != "user=3:ann" || one.Top[0].Units != 450 {
		t.Errorf("keys: %+v", one.Top)
	}
}

// TestBiggestSpendersAreFound among more keys than are counted, although they have few requests.
func TestBiggestSpendersAreFound(t *testing.T) {
	n := newNode(t, tokenRules, true)
	random := rand.New(rand.NewPCG(1, 2))
	const keys, big = 12_000, 10
	for cut := range 8 {
		spent := make(map[string]int64)
		for range 10_000 {
			user := fmt.Sprint("user", random.IntN(keys))
			n.spends(t, user, 1+random.Int64N(100))
			if random.IntN(100) == 0 {
				user := fmt.Sprint("big", random.IntN(big))
				n.spends(t, user, 10_000)
				spent["user=4:"+user] += 10_000
			}
			if random.IntN(500) == 0 {
				n.pass(tick)
			}
		}
		top := n.Cut(n.clock).of(t, "tokens").Top
		slices.SortFunc(top, func(a, b KeyRate) int { return cmp.Compare(b.Units, a.Units) })
		if cut < 6 {
			continue // they become known
		}
		for _, k := range top[:min(big, len(top))] {
			if want := spent[k.Key]; want == 0 || k.Units < want*9/10 || k.Units > want {
				t.Errorf("cut %d: %s has %d units, want %d", cut, k.Key, k.Units, want)
			}
		}
		if len(top) < big {
			t.Errorf("cut %d: %d keys are listed", cut, len(top))
		}
	}
}

// TestUnitsOfKeysOutlastATable: units that are settled while the sample of keys shrinks are not lost.
func TestUnitsOfKeysOutlastATable(t *testing.T) {
	n := newNode(t, tokenRules, true)
	receipt, end := n.begin(t, "ann")
	for i := range 2 * large.keys {
		n.spends(t, fmt.Sprint("other", i), 1)
	}
	n.pass(tick)
	if err := n.gate.Settle(t.Context(), receipt, 100_000); err != nil {
		t.Fatal(err)
	}
	end()
	one := n.Cut(n.clock).of(t, "tokens")
	if i := slices.IndexFunc(one.Top, func(k KeyRate) bool { return k.Key == "user=3:ann" }); i < 0 || one.Top[i].Units != 100_000 {
		t.Errorf("ann is not among %+v", one.Top)
	}
}

// TestUnitsOfKeysMayComeBack in a later interval than that of their charge.
func TestUnitsOfKeysMayComeBack(t *testing.T) {
	n := newNode(t, tokenRules, true)
	var v gate.Verdict
	if err := n.gate.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	sum := n.Cut(n.clock).of(t, "tokens").Top[0].Units
	if err := n.gate.Settle(t.Context(), v.Receipt(), 30); err != nil {
		t.Fatal(err)
	}
	one := n.Cut(n.clock).of(t, "tokens")
	if sum += one.Top[0].Units; sum != 30 || one.Counts.Returned != 70 {
		t.Errorf("%d units in the end, %+v", sum, one.Counts)
	}
}
