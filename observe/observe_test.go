package observe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/storetest"
)

const someRules = `
rules:
  - {name: site, limit: fixed_window 1000/1h}
  - {name: ip, key: [client.ip], limit: [fixed_window 2/1h, fixed_window 100/1d]}
  - {name: admin, match: {path: /admin}, key: [user], on_missing: deny, limit: 5/1h}
  - {name: tried, key: [client.ip], mode: shadow, limit: [fixed_window 1/1h, fixed_window 100/1d]}
  - {name: paid, match: {path: /paid}, on_store_error: deny, limit: 5/1h}
`

// open returns an observed gate.
func open(t testing.TB, store weir.Store) (*observe.Metrics, *gate.Gate) {
	t.Helper()
	m, set := observe.New("v1.2.3"), gatetest.Rules(t, someRules)
	g := gatetest.Of(t, m.Store(store), set, gate.WithObserver(m.Verdict))
	m.Rules(set, time.UnixMilli(1_790_000_000_500))
	return m, g
}

func from(address, path string) *rules.Request {
	return &rules.Request{Path: path, Client: netip.MustParseAddr(address)}
}

func decide(t testing.TB, g *gate.Gate, r *rules.Request, ask gate.Ask) {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), r, ask, &v); err != nil && ask.Times >= 0 {
		t.Fatal(err)
	}
}

// expose returns the response of /metrics.
func expose(t testing.TB, m *observe.Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// says fails the test unless /metrics has these lines.
func says(t testing.TB, m *observe.Metrics, lines ...string) {
	t.Helper()
	text := expose(t, m)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("%q is not among:\n%s", line, grep(text, strings.Fields(name)[0]))
		}
	}
}

func grep(text, name string) (found string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			found += line
		}
	}
	return found
}

func TestVerdictsAreCounted(t *testing.T) {
	m, g := open(t, memstore.New())
	for range 3 {
		decide(t, g, from("192.0.2.1", "/"), gate.Once)
	}
	decide(t, g, from("192.0.2.9", "/admin"), gate.Once)
	decide(t, g, from("192.0.2.9", "/"), gate.Ask{})
	own := []weir.Claim{{Key: "secret", Limit: weir.MustLimit("chosen-by-a-caller", weir.PerHour(1)), Cost: 1}}
	for range 2 {
		decide(t, g, nil, gate.Ask{Times: 1, Claims: own})
	}
	own = []weir.Claim{{Key: "other", Limit: own[0].Limit, Cost: 1}}
	for range 2 {
		decide(t, g, nil, gate.Ask{Times: 1, Claims: own, ID: "order", Keep: time.Minute})
	}
	decide(t, g, nil, gate.Once)
	decide(t, g, from("192.0.2.9", "/"), gate.Ask{Times: -1})
	says(t, m,
		`weir_limit{limit="ip",rule="ip"} 2`,
		`weir_limit{limit="ip.2",rule="ip"} 100`,
		`weir_limit_period_seconds{limit="ip.2",rule="ip"} 86400`,
		`weir_decisions_total{outcome="passed",rule="site"} 2`,
		`weir_decisions_total{outcome="refused",rule="site"} 0`,
		`weir_decisions_total{outcome="passed",rule="ip"} 2`,
		`weir_decisions_total{outcome="refused",rule="ip"} 1`,
		`weir_decisions_total{outcome="denied",rule="admin"} 1`,
		`weir_decisions_total{outcome="shadow_passed",rule="tried"} 1`,
		`weir_decisions_total{outcome="shadow_refused",rule="tried"} 1`,
		`weir_decisions_total{outcome="passed",rule="(claims)"} 3`,
		`weir_decisions_total{outcome="refused",rule="(claims)"} 1`,
		`weir_verdicts_total{outcome="passed",reason="within_limits"} 4`,
		`weir_verdicts_total{outcome="passed",reason="repeated"} 1`,
		`weir_verdicts_total{outcome="passed",reason="no_rule"} 1`,
		`weir_verdicts_total{outcome="refused",reason="limit_exceeded"} 2`,
		`weir_verdicts_total{outcome="denied",reason="missing_key"} 1`,
		`weir_verdicts_total{outcome="failed",reason="bad_input"} 1`,
		`weir_looks_total 1`,
		`weir_decision_duration_seconds_count 11`,
		`weir_rules 5`,
		`weir_config_last_load_successful 1`,
		`weir_config_loaded_timestamp_seconds 1.7900000005e+09`,
		`weir_store_up 1`,
	)
	text := expose(t, m)
	for _, never := range []string{"192.0.2", "secret", "chosen-by-a-caller"} {
		if strings.Contains(text, never) {
			t.Errorf("/metrics tells %q", never)
		}
	}
	for _, want := range []string{`weir_build_info{goversion="go`, `version="v1.2.3"`, "go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics has no %q", want)
		}
	}
}

func TestMetricNamesFollowPrometheus(t *testing.T) {
	m, g := open(t, memstore.New())
	decide(t, g, from("192.0.2.1", "/"), gate.Once)
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestCountsContinueAcrossRuleSets(t *testing.T) {
	m, g := open(t, memstore.New())
	decide(t, g, from("192.0.2.1", "/admin"), gate.Once)
	decide(t, g, from("192.0.2.1", "/"), gate.Once)
	other := gatetest.Rules(t, `rules: [{name: new, limit: 5/1h}, {name: ip, key: [client.ip], limit: fixed_window 9/1h}]`)
	if err := g.Swap(other); err != nil {
		t.Fatal(err)
	}
	decide(t, g, from("192.0.2.1", "/"), gate.Once) // before the metrics know the rules
	m.Rules(other, time.Now())
	decide(t, g, from("192.0.2.1", "/"), gate.Once)
	says(t, m,
		`weir_decisions_total{outcome="passed",rule="ip"} 3`,
		`weir_decisions_total{outcome="passed",rule="new"} 1`,
		`weir_decisions_total{outcome="passed",rule="(unknown)"} 1`, // of new, before its name was known
		`weir_rules 2`)
	if text := expose(t, m); strings.Contains(text, `rule="admin"`) || strings.Contains(text, `rule="tried"`) {
		t.Error("rules that are gone are still told of")
	}
	m.RulesFailed()
	says(t, m, `weir_config_last_load_successful 0`, `weir_rules 2`)
}

// The series are those of the rules in force, independent of earlier rules and of callers' claims.
func TestSeriesAreBounded(t *testing.T) {
	m, g := open(t, memstore.New())
	series := func() int {
		n, err := testutil.GatherAndCount(m.Registry(), "weir_decisions_total")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var first int
	for i := range 50 {
		set := gatetest.Rules(t, fmt.Sprintf(`rules: [{name: r%d, key: [user], limit: 5/1h}]`, i))
		if err := g.Swap(set); err != nil {
			t.Fatal(err)
		}
		m.Rules(set, time.Now())
		claim := weir.Claim{Key: "k", Limit: weir.MustLimit(fmt.Sprint("own", i), weir.PerHour(9)), Cost: 1}
		decide(t, g, &rules.Request{User: fmt.Sprint("u", i)}, gate.Ask{Times: 1, Claims: []weir.Claim{claim}})
		if i == 0 {
			first = series()
		}
	}
	if last := series(); last != first {
		t.Errorf("%d series, %d at first", last, first)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m, g := open(t, memstore.New())
	var v gate.Verdict
	if err := g.Decide(t.Context(), from("192.0.2.1", "/"), gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { m.Verdict(&v) }); n > 0 {
		t.Errorf("%v allocations a verdict", n)
	}
	store := m.Store(memstore.New())
	claims, decisions := []weir.Claim{{Key: "k", Limit: weir.MustLimit("l", weir.PerSecond(1)), Cost: 1}}, make([]weir.Decision, 1)
	if n := testing.AllocsPerRun(1000, func() { store.Decide(t.Context(), claims, 1, decisions) }); n > 0 {
		t.Errorf("%v allocations a call of the store", n)
	}
}

// A flaky store returns the configured error.
type flaky struct {
	weir.Store
	err error
}

func (f *flaky) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Store.Decide(ctx, claims, times, decisions)
}

func TestStoreCallsAreTimed(t *testing.T) {
	store := &flaky{Store: memstore.New()}
	m, g := open(t, store)
	r := from("192.0.2.1", "/")
	says(t, m, `weir_store_up 1`, `weir_store_errors_total{operation="decide"} 0`, `weir_store_duration_seconds_count{operation="charge"} 0`)
	store.err = weir.ErrUnavailable
	decide(t, g, r, gate.Once)
	// One call: shadow rules are skipped when the store fails.
	says(t, m, `weir_store_up 0`, `weir_store_errors_total{operation="decide"} 1`, `weir_store_duration_seconds_count{operation="decide"} 1`)
	decide(t, g, from("192.0.2.1", "/paid"), gate.Once)
	says(t, m, `weir_decisions_total{outcome="failed",rule="paid"} 1`, `weir_verdicts_total{outcome="failed",reason="store_failed"} 1`, `weir_degraded_total 2`)
	store.err = &weir.InputError{Field: "key"}
	decide(t, g, r, gate.Ask{Times: -1})
	says(t, m, `weir_store_up 0`, `weir_store_errors_total{operation="decide"} 2`)
	store.err = nil
	decide(t, g, r, gate.Once)
	says(t, m, `weir_store_up 1`, `weir_degraded_total 2`)

	// A canceled request is no failure of the store.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store.err = context.Canceled
	var v gate.Verdict
	if err := g.Decide(ctx, r, gate.Once, &v); err == nil {
		t.Error("no error of the context")
	}
	says(t, m, `weir_store_up 1`, `weir_store_errors_total{operation="decide"} 2`)
}

func TestHealth(t *testing.T) {
	m := observe.New("v1")
	ready := func(code int, body string) {
		t.Helper()
		get(t, m.Ready(), code, body)
		get(t, m.Live(), 200, `{"status":"alive"}`)
	}
	ready(503, `{"status":"starting: no rules are loaded yet"}`)
	store := &flaky{Store: memstore.New()}
	watched := m.Store(store)
	m.RulesFailed()
	ready(503, `{"status":"starting: no rules are loaded yet","degraded":["the last load of rules failed; the previous rules are in force"]}`)
	m.Rules(gatetest.Rules(t, someRules), time.Now())
	ready(200, `{"status":"ready"}`)
	claims := []weir.Claim{{Key: "k", Limit: weir.MustLimit("l", weir.PerSecond(1)), Cost: 1}}
	store.err = weir.ErrUnavailable
	watched.Decide(t.Context(), claims, 1, nil)
	ready(200, `{"status":"ready","degraded":["the last store call failed; on_store_error of each rule decides while the store does not respond"]}`)
	store.err = nil
	watched.Decide(t.Context(), claims, 1, nil)
	m.RulesFailed()
	ready(200, `{"status":"ready","degraded":["the last load of rules failed; the previous rules are in force"]}`)
	m.Incomplete(true)
	ready(503, `{"status":"starting: not all rules are loaded yet","degraded":["the last load of rules failed; the previous rules are in force"]}`)
	m.Incomplete(false)
	m.Rules(gatetest.Rules(t, someRules), time.Now())
	ready(200, `{"status":"ready"}`)
	m.RulesFailed()
	m.Stopping()
	ready(503, `{"status":"stopping","degraded":["the last load of rules failed; the previous rules are in force"]}`)
}

func get(t *testing.T, h http.Handler, code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != code || w.Body.String() != body+"\n" {
		t.Errorf("%d %s, want %d %s", w.Code, w.Body, code, body)
	}
}

func subject(t testing.TB, clock func() weir.Instant) storetest.Handle {
	return storetest.Handle{Store: observe.New("v1").Store(memstore.New(memstore.WithClock(clock)))}
}

func TestStore(t *testing.T) { storetest.Run(t, subject) }

func TestVectors(t *testing.T) { storetest.Vectors(t, subject) }

// TestBansAreCounted checks bans by rule, and refusals with a reason of their own.
func TestBansAreCounted(t *testing.T) {
	m := observe.New("v")
	set := gatetest.Rules(t, `rules: [{name: login, key: [client.ip], limit: fixed_window 1/1h, ban: {after: 2 refusals within 1h, for: 1h}}, {name: none, limit: 100/1s}]`)
	g := gatetest.Of(t, memstore.New(), set, gate.WithObserver(m.Verdict))
	m.Rules(set, time.Unix(1, 0))
	for range 5 {
		decide(t, g, from("192.0.2.1", "/"), gate.Once)
	}
	says(t, m,
		`weir_bans_total{rule="login"} 1`,
		`weir_decisions_total{outcome="passed",rule="login"} 1`,
		`weir_decisions_total{outcome="refused",rule="login"} 4`,
		`weir_verdicts_total{outcome="refused",reason="limit_exceeded"} 2`,
		`weir_verdicts_total{outcome="refused",reason="banned"} 2`,
	)
	if text := expose(t, m); strings.Contains(text, `weir_bans_total{rule="none"}`) {
		t.Error("a rule without a ban counts bans")
	}
}

// TestRefusedRequestIsNoFailureOfTheStore: the shadow rule that follows it is not asked.
func TestRefusedRequestIsNoFailureOfTheStore(t *testing.T) {
	m := observe.New("v")
	set := gatetest.Rules(t, `rules: [{name: ip, limit: fixed_window 1/1h}, {name: tried, mode: shadow, limit: 100/1s}]`)
	g := gatetest.Of(t, m.Store(memstore.New()), set, gate.WithObserver(m.Verdict))
	m.Rules(set, time.Unix(1, 0))
	decide(t, g, from("192.0.2.1", "/"), gate.Once)
	decide(t, g, from("192.0.2.1", "/"), gate.Once)
	says(t, m, `weir_decisions_total{outcome="refused",rule="ip"} 1`, `weir_store_up 1`, `weir_store_errors_total{operation="batch"} 0`)
}

// TestCandidatesAreCounted checks that decisions of candidates count apart from those of their
// rules.
func TestCandidatesAreCounted(t *testing.T) {
	m := observe.New("v")
	set := gatetest.Rules(t, `rules: [{name: ip, key: [client.ip], limit: fixed_window 3/1h, candidate: {limit: fixed_window 2/1h}}, {name: none, limit: 100/1s}]`)
	g := gatetest.Of(t, memstore.New(), set, gate.WithObserver(m.Verdict))
	m.Rules(set, time.Unix(1, 0))
	for range 5 {
		decide(t, g, from("192.0.2.1", "/"), gate.Once)
	}
	says(t, m,
		`weir_candidate_total{candidate="granted",live="granted",rule="ip"} 2`,
		`weir_candidate_total{candidate="refused",live="granted",rule="ip"} 1`,
		`weir_candidate_total{candidate="granted",live="refused",rule="ip"} 0`,
		`weir_candidate_total{candidate="refused",live="refused",rule="ip"} 2`,
		`weir_decisions_total{outcome="passed",rule="ip"} 3`,
		`weir_decisions_total{outcome="refused",rule="ip"} 2`,
		`weir_decisions_total{outcome="passed",rule="none"} 3`,
	)
	for _, never := range []string{`weir_candidate_total{candidate="granted",live="granted",rule="none"}`, `outcome="shadow_`, "192.0.2"} {
		if strings.Contains(expose(t, m), never) {
			t.Errorf("/metrics tells %s", never)
		}
	}
}

// TestUnfinishedRequestsAreCounted: by rule, once for several leases of a rule.
func TestUnfinishedRequestsAreCounted(t *testing.T) {
	m := observe.New("v")
	set := gatetest.Rules(t, `rules:
  - {name: held, limit: [concurrency 5 ttl 1h, concurrency 9 ttl 1h], hold_until: done}
  - {name: released, limit: concurrency 5 ttl 1h}
  - {name: counted, count_if: {status: [401]}, limit: sliding_log 9/1h}
`)
	g := gatetest.Of(t, memstore.New(), set, gate.WithObserver(m.Verdict), gate.WithCountObserver(m.Counting))
	m.Rules(set, time.Unix(1, 0))
	var v gate.Verdict
	if err := g.Decide(t.Context(), from("192.0.2.1", "/"), gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	receipt := v.Receipt()
	rest, err := g.Respond(t.Context(), receipt, gate.Response{})
	if err != nil || len(rest) != len(receipt) {
		t.Fatalf("%d of %d charges are left, %v", len(rest), len(receipt), err)
	}
	if left := g.Hold(receipt); len(left) != 2 {
		t.Errorf("%d charges are left to release, want the lease of one rule and the count of another", len(left))
	}
	says(t, m, `weir_unfinished_total{rule="held"} 1`, `weir_unfinished_total{rule="counted"} 1`)
	if text := expose(t, m); strings.Contains(text, `weir_unfinished_total{rule="released"}`) {
		t.Error("a rule that needs no response counts unfinished requests")
	}
}

// TestRefusalsByClass: a class that goes with a change of the rule has no series any more.
func TestRefusalsByClass(t *testing.T) {
	m := observe.New("test")
	rule := func(classes string) *rules.Set {
		set := gatetest.Rules(t, "rules: [{name: all, limit: fixed_window 10/1h, reserve: {by: user, classes: "+classes+"}}]")
		m.Rules(set, time.Now())
		return set
	}
	set := rule("{a: 0%, b: 50%}")
	g := gatetest.Of(t, m.Store(memstore.New()), set, gate.WithObserver(m.Verdict))
	for range 8 {
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{User: "b"}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.Refused(set.Rules()[0]); got["b"] != 3 || got["a"] != 0 || len(got) != 2 {
		t.Errorf("refused %v, want 3 of b", got)
	}
	set = rule("{b: 50%, c: 60%}")
	if got := m.Refused(set.Rules()[0]); got["b"] != 3 || len(got) != 2 {
		t.Errorf("after a change refused %v, want 3 of b, and c", got)
	}
	n, err := testutil.GatherAndCount(m.Gatherer(), "weir_class_refusals_total")
	if n != 2 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}
