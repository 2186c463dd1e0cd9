package telemetry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/rules"
)

// rulesOf are rules with a key, each for one service.
func rulesOf(from, to int) string {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := from; i < to; i++ {
		fmt.Fprintf(&text, "  - {name: r%d, match: {service: s%d}, key: [user], limit: fixed_window 3/1h}\n", i, i)
	}
	return text.String()
}

// Of more rules than are watched, those with the most requests are, in the end.
func TestBusyRulesAreWatched(t *testing.T) {
	n := newNode(t, rulesOf(0, maxWatched+3), true)
	var v gate.Verdict
	ask := func(rule, times int) {
		for range times {
			n.gate.Decide(t.Context(), &rules.Request{Service: fmt.Sprint("s", rule), User: "a"}, gate.Once, &v)
		}
	}
	for i := range maxWatched + 3 {
		ask(i, 1)
	}
	if len(n.watched) != maxWatched || n.Watched()[fmt.Sprint("r", maxWatched)] {
		t.Fatalf("%d rules are watched", len(n.watched))
	}
	n.Cut(n.clock)
	for range 3 {
		for i := range maxWatched + 3 {
			ask(i, 1+i)
		}
		record := n.Cut(n.clock)
		if len(record.Rules) != maxWatched+3 {
			t.Fatalf("%d rules in a record", len(record.Rules))
		}
	}
	for i := range maxWatched + 3 {
		if got, want := n.Watched()[fmt.Sprint("r", i)], i >= 3; got != want {
			t.Errorf("rule %d is watched: %v", i, got)
		}
	}
}

// Each of ten thousand busy rules has its own counts in a record. Only those beyond MostRules are in one sum, the same in
// each record.
func TestCountsOfTenThousandRulesAreExact(t *testing.T) {
	const many = 10_000
	n := newNode(t, rulesOf(0, many), true)
	var v gate.Verdict
	for i := range many {
		for range 1 + i%3 {
			n.gate.Decide(t.Context(), &rules.Request{Service: fmt.Sprint("s", i), User: "a"}, gate.Once, &v)
		}
	}
	record := n.Cut(n.clock)
	if len(record.Rules) != many {
		t.Fatalf("%d rules in a record", len(record.Rules))
	}
	for _, one := range record.Rules {
		i, _ := strconv.Atoi(one.Name[1:])
		if one.Counts != (Counts{Passed: uint64(1 + i%3)}) {
			t.Fatalf("%s has %+v", one.Name, one.Counts)
		}
	}
}

func TestRulesBeyondTheMostAreInOneSum(t *testing.T) {
	n := newNode(t, rulesOf(0, MostRules+2), true)
	var v gate.Verdict
	for _, i := range []int{0, MostRules - 1, MostRules, MostRules + 1} {
		n.gate.Decide(t.Context(), &rules.Request{Service: fmt.Sprint("s", i), User: "a"}, gate.Once, &v)
	}
	got := ""
	for _, r := range n.Cut(n.clock).Rules {
		got += fmt.Sprintln(r.Name, r.Counts.Passed)
	}
	if want := fmt.Sprintln(OtherRules, 2) + fmt.Sprintln("r0", 1) + fmt.Sprintln(fmt.Sprint("r", MostRules-1), 1); got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// Counts of decisions stay exact, and those of keys go on, when rules are replaced.
func TestReplacedRules(t *testing.T) {
	n := newNode(t, rulesOf(0, 2), true)
	var v gate.Verdict
	ask := func(rule, times int) {
		for range times {
			n.gate.Decide(t.Context(), &rules.Request{Service: fmt.Sprint("s", rule), User: "a"}, gate.Once, &v)
		}
	}
	replace := func(text string) {
		set := gatetest.Rules(t, text)
		if err := n.gate.Swap(set); err != nil {
			t.Fatal(err)
		}
		n.Rules(set)
		n.metrics.Rules(set, n.clock)
	}
	ask(0, 1)
	n.Cut(n.clock)
	ask(0, 1)
	ask(1, 2)
	replace(rulesOf(1, 3)) // r0 is removed
	ask(1, 3)
	ask(2, 1)
	record := n.Cut(n.clock)
	got := ""
	for _, r := range record.Rules {
		got += fmt.Sprintln(r.Name, r.Counts.Passed, r.Counts.Refused, r.Distinct)
	}
	if want := "r0 1 0 0\nr1 3 2 1\nr2 1 0 1\n"; got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// Counts of keys stay when a limit is changed; their use of a window is of one limit alone.
func TestCountsOfKeysOutliveTheirLimit(t *testing.T) {
	const before = `rules: [{name: a, key: [user], limit: fixed_window 3/1m}]`
	n := newNode(t, before, true)
	var v gate.Verdict
	n.ask(t, "ann", &v)
	n.pass(tick) // ends the first window, which is not whole
	already := n.watched[0].use.sum
	for range 3 {
		n.ask(t, "ann", &v)
	}
	n.pass(tick)
	set := gatetest.Rules(t, strings.Replace(before, "3/1m", "5/1m", 1))
	if err := n.gate.Swap(set); err != nil {
		t.Fatal(err)
	}
	n.Rules(set)
	n.metrics.Rules(set, n.clock)
	n.ask(t, "ann", &v)
	n.pass(2 * time.Minute)
	top := n.Cut(n.clock).Rules[0].Top
	if len(top) != 1 || top[0].Passed != 4 || top[0].Refused != 1 {
		t.Errorf("%+v", top)
	}
	if use := n.watched[0].use.sum - already; math.Abs(use-1.0/5) > 1e-9 {
		t.Errorf("the use is %v of the limit, not 1 of 5", use)
	}
}

// A key without requests is forgotten after the second generation, and its place is free again.
func TestIdleKeysAreForgotten(t *testing.T) {
	n := newNode(t, `rules: [{name: user, key: [user], limit: fixed_window 3/1m}]`, true)
	var v gate.Verdict
	for i := range 10_000 {
		n.ask(t, fmt.Sprint("old", i), &v)
		if i%500 == 0 {
			n.pass(tick)
		}
	}
	for range 3 {
		n.pass(generation * time.Second)
		n.Cut(n.clock)
		n.ask(t, "new", &v)
	}
	distinct := n.Cut(n.clock).Rules[0].Distinct
	if w := n.watched[0]; distinct != 1 || len(w.entries) != 1 || w.level != 0 {
		t.Errorf("%d keys, %d entries at level %d", distinct, len(w.entries), w.level)
	}
}

func TestMetricsOfKeys(t *testing.T) {
	n := newNode(t, `
rules:
  - {name: user, key: [user], limit: fixed_window 4/1m}
  - {name: busy, key: [user], limit: concurrency 9 ttl 30s}
`, true)
	var v gate.Verdict
	for user, times := range map[string]int{"a": 1, "b": 4, "c": 8} {
		for range times {
			n.ask(t, user, &v)
		}
	}
	n.pass(time.Minute)
	want := `
# HELP weir_telemetry_rules Rules whose keys are counted, at most 256.
# TYPE weir_telemetry_rules gauge
weir_telemetry_rules 2
# HELP weir_telemetry_samples_total Decisions drawn for the statistics of keys and the console, by kind: passed, or refused, denied and failed.
# TYPE weir_telemetry_samples_total counter
weir_telemetry_samples_total{kind="passed"} 9
weir_telemetry_samples_total{kind="refused"} 4
# HELP weir_key_utilization Windows of keys by the units that were asked for, as a part of the rule's first limit: 1 is the limit. Estimated from a sample of keys, for the 256 rules with most requests.
# TYPE weir_key_utilization histogram
weir_key_utilization_bucket{rule="user",le="0.1"} 0
weir_key_utilization_bucket{rule="user",le="0.25"} 1
weir_key_utilization_bucket{rule="user",le="0.5"} 1
weir_key_utilization_bucket{rule="user",le="0.75"} 1
weir_key_utilization_bucket{rule="user",le="0.9"} 1
weir_key_utilization_bucket{rule="user",le="1"} 2
weir_key_utilization_bucket{rule="user",le="1.25"} 2
weir_key_utilization_bucket{rule="user",le="2"} 3
weir_key_utilization_bucket{rule="user",le="5"} 3
weir_key_utilization_bucket{rule="user",le="10"} 3
weir_key_utilization_bucket{rule="user",le="+Inf"} 3
weir_key_utilization_sum{rule="user"} 3.25
weir_key_utilization_count{rule="user"} 3
`
	if err := testutil.CollectAndCompare(n.Recorder, strings.NewReader(want), "weir_key_utilization",
		"weir_telemetry_rules", "weir_telemetry_samples_total"); err != nil {
		t.Error(err)
	}
}
