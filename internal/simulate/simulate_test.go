package simulate

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/rules"
)

// config is a simulation of rules: three nodes for 20 seconds, without faults.
func config(t *testing.T, text string, change ...func(*Config)) *Config {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{File: file, Running: 3, Nodes: 3, Prefetch: -1, Timeout: 50 * time.Millisecond,
		Duration: 20 * time.Second, Latency: Latency{time.Millisecond, 5 * time.Millisecond}, Seed: 1}
	for _, one := range change {
		one(c)
	}
	if len(c.Loads) == 0 {
		loads(t, "rate=500 keys=20 zipf=1")(c)
	}
	return c
}

func loads(t *testing.T, texts ...string) func(*Config) {
	return func(c *Config) {
		for _, text := range texts {
			l, err := ParseLoad(text)
			if err != nil {
				t.Fatal(err)
			}
			c.Loads = append(c.Loads, l)
		}
	}
}

func faults(t *testing.T, texts ...string) func(*Config) {
	return func(c *Config) {
		for _, text := range texts {
			f, err := ParseFault(text)
			if err != nil {
				t.Fatal(err)
			}
			c.Faults = append(c.Faults, f)
		}
	}
}

func simulate(t *testing.T, c *Config) *Result {
	t.Helper()
	result, err := c.Run(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Admitted+result.Refused+result.Failed+result.Denied != result.Requests || result.Requests == 0 {
		t.Fatalf("some requests have no outcome: %s", show(result))
	}
	return result
}

// show is a result without its seconds.
func show(r *Result) string {
	short := *r
	short.Seconds = nil
	text, _ := json.Marshal(short)
	return string(text)
}

func rule(limit string) string {
	return "rules:\n  - {name: site, limit: " + limit + ", key: client.ip}\n"
}

// windows is a limit whose windows are the seconds of a result.
const windows = "rules:\n  - {name: site, limit: fixed_window 10/1s epoch, key: client.ip}\n"

// Without faults nothing is admitted beyond a limit, and nothing is refused that has room.
func TestWithoutFaultsAllLimitsAreExact(t *testing.T) {
	for _, limit := range []string{"10/s", "10/s burst 30", "fixed_window 10/1s", "fixed_window 10/1s epoch",
		"calendar 300/minute in Asia/Shanghai", "sliding_log 10/1s", "sliding_counter 10/1s slices 10", "[30/s, sliding_log 300/1m]"} {
		t.Run(limit, func(t *testing.T) {
			r := simulate(t, config(t, rule(limit)))
			if r.OverAdmitted != 0 || r.WronglyRefused != 0 || r.Failed != 0 || r.Degraded != 0 {
				t.Error(show(r))
			}
			if r.Refused < r.Requests/10 || r.Admitted < r.Requests/10 {
				t.Errorf("the load tests little: %s", show(r))
			}
			// The instants of requests at the store differ by the latency from those at the exact limiter.
			if off := r.Admitted - r.Exact; off < -r.Exact/50 || off > r.Exact/50 {
				t.Errorf("%d admitted, and %d by one exact limiter", r.Admitted, r.Exact)
			}
		})
	}
}

// Costs, several rules, lists, prefetch and latencies near the timeout change nothing about that.
func TestWithoutFaultsEverythingElseIsExactToo(t *testing.T) {
	for name, c := range map[string]*Config{
		"costs and two rules": config(t, `rules:
  - {name: all, limit: 2000/s}
  - {name: cost, match: {path: /cost}, limit: sliding_log 30/1s, key: user}
  - {name: never, match: {path: /never}, limit: 1/s, key: user}
`, loads(t, "rate=200 keys=5 path=/cost user=u{n} cost=3", "rate=200 keys=5 path=/cost user=u{n} cost=1", "rate=100")),
		"bursts": config(t, rule("sliding_log 10/1s"), loads(t, "rate=50 burst=20 for=500ms every=4s keys=5")),
		"slow": config(t, rule("fixed_window 10/1s epoch"), func(c *Config) {
			c.Latency, c.Timeout = Latency{20 * time.Millisecond, 60 * time.Millisecond}, time.Second
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if r := simulate(t, c); r.OverAdmitted != 0 || r.WronglyRefused != 0 || r.Refused == 0 {
				t.Error(show(r))
			}
		})
	}
}

// docs/layers.md: with leases at most nodes × share units pass beyond a bucket, and none beyond a window.
func TestPrefetchKeepsItsBound(t *testing.T) {
	prefetch := func(c *Config) { c.Prefetch = 20 }
	one := loads(t, "rate=1000 keys=1")
	r := simulate(t, config(t, rule("990/s burst 200"), one, prefetch))
	if worst := r.Rules[0].Worst.Units; worst > 3*40 || r.Prefetched < r.Requests/4 {
		t.Errorf("%d units beyond, at most 3 × 40 are promised: %s", worst, show(r))
	}
	if without := simulate(t, config(t, rule("990/s burst 200"), one)); r.StoreCalls > without.StoreCalls/2 {
		t.Errorf("prefetch makes %d calls, and without it %d", r.StoreCalls, without.StoreCalls)
	}
	// Nodes hold units at the end of each other window, and the next one is exhausted.
	waves := loads(t, "rate=250 keys=1 burst=4 for=1s every=2s")
	for _, limit := range []string{"fixed_window 400/1s epoch", "fixed_window 400/1s", "calendar 12000/minute"} {
		if r = simulate(t, config(t, rule(limit), waves, prefetch)); r.OverAdmitted != 0 || r.Prefetched == 0 {
			t.Errorf("beyond %s: %s", limit, show(r))
		}
	}
}

// The fallback's bound: nodes × ⌈limit/nodes⌉ in each window of an outage, and the simulation comes to it.
func TestLocalFallbackReachesItsBoundAndNotMore(t *testing.T) {
	for _, kind := range []string{"down", "hang", "cut"} {
		r := simulate(t, config(t, windows, loads(t, "rate=300 keys=1"), faults(t, kind+" 5s..15s")))
		for i, s := range r.Seconds {
			switch {
			case i > 5 && i < 15 && s.Admitted != 3*4: // the shares of 10 among 3 are 4
				t.Errorf("%s: %d admitted in second %d of the outage, want 12", kind, s.Admitted, i)
			case (i < 5 || i > 16) && s.Admitted != 10:
				t.Errorf("%s: %d admitted in second %d, want 10", kind, s.Admitted, i)
			case s.Admitted > 10+12: // a switch: the limit, and at most each node's share
				t.Errorf("%s: %d admitted in second %d, at a switch", kind, s.Admitted, i)
			}
		}
	}
}

// A node that takes the whole limit for its share, the mistake of --nodes 1, is seen in the numbers.
func TestWrongNumberOfNodesShows(t *testing.T) {
	for nodes, want := range map[int]int64{1: 30, 2: 15, 3: 12, 6: 6} {
		r := simulate(t, config(t, windows, loads(t, "rate=300 keys=1"), faults(t, "down 5s..15s"),
			func(c *Config) { c.Nodes = nodes }))
		if got := r.Seconds[10].Admitted; got != want {
			t.Errorf("nodes %d: %d admitted in a second, want %d", nodes, got, want)
		}
	}
}

// Each policy does what its name says.
func TestPoliciesOfAnOutage(t *testing.T) {
	run := func(policy rules.StoreError) *Result {
		return simulate(t, config(t, windows, loads(t, "rate=300 keys=1"), faults(t, "down 5s..15s"),
			func(c *Config) { c.OnStoreError = policy }))
	}
	if s := run(rules.AllowAll).Seconds[10]; s.Admitted != s.Offered || s.Over != s.Offered-10 {
		t.Errorf("allow: %+v", s)
	}
	deny := run(rules.RefuseAll)
	if s := deny.Seconds[10]; s.Admitted != 0 || s.Failed != s.Offered {
		t.Errorf("deny: %+v", s)
	}
	// Nothing is charged while all fails, so that each failed request would have fitted, but in the first second.
	if deny.OverAdmitted != 0 || deny.FailedWithinLimits < deny.Failed-20 {
		t.Errorf("deny: %s", show(deny))
	}
}

// A layer that is left out is missed.
func TestLayersShow(t *testing.T) {
	run := func(without ...string) *Result {
		return simulate(t, config(t, rule("fixed_window 300/20s epoch"), loads(t, "rate=150 keys=3"),
			faults(t, "hang 8s..18s"), func(c *Config) { c.Without = without }))
	}
	all := run()
	if all.Recalled == 0 || all.BreakerOpened < 3 || all.Latency.P99 > 10_000 {
		t.Fatalf("the layers had nothing to do: %s", show(all))
	}
	if r := run("breaker"); r.Latency.P99 < 40_000 || r.BreakerOpened != 0 {
		t.Errorf("without the breaker nobody waits for a frozen Redis: %s", show(r))
	}
	if r := run("warm"); all.OverAdmitted > 40 || r.OverAdmitted < 200 {
		t.Errorf("without the warm copy %d beyond, with it %d", r.OverAdmitted, all.OverAdmitted)
	}
	if r := run("recall"); r.StoreCalls < all.StoreCalls*4/3 {
		t.Errorf("without the refusal cache %d calls, with it %d", r.StoreCalls, all.StoreCalls)
	}
}

// Units that Redis forgets are granted again, once.
func TestLossOfData(t *testing.T) {
	day := "rules:\n  - {name: site, limit: fixed_window 500/1h epoch, key: client.ip, on_store_error: deny}\n"
	over := func(lose string) int64 {
		r := simulate(t, config(t, day, loads(t, "rate=100 keys=1"), faults(t, "down 3s..4s"+lose)))
		return r.OverAdmitted
	}
	all, last, none := over(" lose=all"), over(" lose=1s"), over("")
	if none != 0 || last < 80 || last > 120 || all < 280 || all > 320 {
		t.Errorf("forgotten: all %d, of a second %d, none %d; want about 300, 100 and 0", all, last, none)
	}
}

// A second loss of data is on top of the first.
func TestLossesAddUp(t *testing.T) {
	day := "rules:\n  - {name: site, limit: fixed_window 900/1h epoch, key: client.ip, on_store_error: deny}\n"
	r := simulate(t, config(t, day, loads(t, "rate=100 keys=1"), faults(t, "down 3s..4s lose=1s", "down 8s..9s lose=2s")))
	if r.OverAdmitted < 260 || r.OverAdmitted > 340 {
		t.Errorf("%d admitted beyond, want about 100 + 200", r.OverAdmitted)
	}
}

// The same Config gives the same bytes, on any number of cores.
func TestRunsAreDetermined(t *testing.T) {
	run := func(seed uint64) string {
		c := config(t, "rules:\n  - {name: site, limit: 100/s, key: client.ip, lease_percent: 20}\n",
			faults(t, "error 2s..5s share=40%", "slow 4s..8s by=45ms nodes=1", "cut 6s..9s nodes=2", "hang 10s..12s"),
			func(c *Config) { c.Seed = seed }, loads(t, "rate=800 keys=10 zipf=1.2"))
		r := simulate(t, c)
		var b strings.Builder
		if err := (&Report{Config: c, Results: []*Result{r}}).Text(&b); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b.String() + string(text)
	}
	first := run(1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if run(1) != first {
		t.Error("two runs with one seed differ")
	}
	if run(2) == first {
		t.Error("the seed has no effect")
	}
}

// A simulation leaves no goroutine behind.
func TestGoroutinesEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	simulate(t, config(t, rule("100/s"), faults(t, "hang 2s..20s"), func(c *Config) { c.Prefetch = 20 }))
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, and %d after", before, after)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	_, err := config(t, rule("10/s")).Run(ctx, func() {
		if n++; n == 100 {
			cancel()
		}
	})
	if err != context.Canceled || n > 200 {
		t.Errorf("%v after %d requests", err, n)
	}
}

// A load of a rule meets it, whatever it matches, and each client has a key.
func TestLoadOfARule(t *testing.T) {
	for _, text := range []string{
		"limit: 5/s, key: client.ip",
		"limit: 5/s, key: user, match: {method: [POST, PUT], host: '*.example.com', path: '/a/*/b/**'}",
		"limit: 5/s, key: path.id, match: {path: '/users/{id}/orders'}",
		"limit: 5/s, key: [header.x-api-key lower], match: {header: {X-Api-Key: '*', X-Plan: free}}",
		"limit: 5/s, key: [query.q, descriptor.d], match: {query: {q: '*'}, service: s, route: /r, user: '*'}",
		"limit: 5/s, key: cookie.session",
		"limit: 5/s, key: body.username",
	} {
		c := config(t, "rules:\n  - {name: one, "+text+"}\n", func(c *Config) { c.Duration = 5 * time.Second },
			loads(t, "rule=one rate=200 keys=4"))
		// Four keys are granted 10 at once or within the first second, and 5 in each other second.
		if r := simulate(t, c); r.Admitted < 4*25 || r.Admitted > 4*30 {
			t.Errorf("%s: %s", text, show(r))
		}
	}
}

// Without loads, each rule that is enforced has one.
func TestUsualLoads(t *testing.T) {
	c := config(t, `rules:
  - {name: a, match: {path: /a}, limit: 50/s, key: user}
  - {name: b, match: {path: /b}, limit: 5/s}
  - {name: off, match: {path: /c}, limit: 5/s, enabled: false}
  - {name: regex, match: {regex: {path: [x]}}, limit: 5/s}
`)
	c.Loads = nil
	r := simulate(t, c)
	if met := r.Rules[0].Matched && r.Rules[1].Matched && !r.Rules[2].Matched; !met || r.Requests < 3800 || r.Requests > 4200 {
		t.Error(show(r))
	}
	loads(t, "rule=regex")(c)
	if _, err := c.Run(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "describe the requests") {
		t.Error(err)
	}
	c.Loads = nil
	loads(t, "rule=none")(c)
	if _, err := c.Run(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "name of a rule") {
		t.Error(err)
	}
}

func TestRulesThatAreNotSimulated(t *testing.T) {
	for text, want := range map[string]string{
		rule("concurrency 5 ttl 30s"):                                                         "concurrency",
		"rules:\n  - {name: site, limit: 5/s, mode: shadow}\n":                                "no rule is enforced",
		"rules:\n  - {name: site, limit: 5/s, cost: 2}\n":                                     "",
		"rules:\n  - {name: site, limit: 4503599627370496/24h}\n":                             "too large",
		"rules:\n  - {name: site, limit: 5/s, match: {path: /elsewhere}}\n":                   "",
		"rules:\n  - {name: site, limit: 5/s, ban: {after: 5 refusals within 1m, for: 5m}}\n": "",
		"rules:\n  - {name: site, limit: 5/s, charge: full, cost: 3}\n":                       "",
		"rules:\n  - {name: site, limit: 5/s, key: client.ip, enforce_percent: 50}\n":         "",
		"rules:\n  - {name: site, limit: 5/s, key: header.X-Nobody, on_missing: deny}\n":      "",
	} {
		_, err := config(t, text).Run(context.Background(), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
