package layers_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// simulated is three nodes for 20 seconds, without faults.
func simulated(text string, change ...func(*simulation)) *simulation {
	s := &simulation{rules: text, running: 3, timeout: 50 * time.Millisecond, duration: 20 * time.Second,
		latency: latency{time.Millisecond, 5 * time.Millisecond}, seed: 1}
	for _, one := range change {
		one(s)
	}
	if len(s.loads) == 0 {
		s.loads = []load{{rate: 500, keys: 20, zipf: 1}}
	}
	return s
}

func with(list ...load) func(*simulation) { return func(s *simulation) { s.loads = list } }

func meets(list ...fault) func(*simulation) { return func(s *simulation) { s.faults = list } }

// siteRule limits each client.
func siteRule(limit string) string {
	return "rules:\n  - {name: site, limit: " + limit + ", key: client.ip}\n"
}

// perSecond is a limit whose windows are the seconds of a result.
const perSecond = "fixed_window 10/1s epoch"

// between is a fault for ten seconds from the fifth.
func between(kind string) fault {
	return fault{kind: kind, from: 5 * time.Second, to: 15 * time.Second}
}

// TestWithoutFaultsAllLimitsAreExact: nothing is admitted beyond a limit, and nothing is refused that has room, for
// each algorithm, costs, several rules, bursts and latencies near the timeout.
func TestWithoutFaultsAllLimitsAreExact(t *testing.T) {
	all := make(map[string]*simulation)
	for _, limit := range []string{"10/s", "10/s burst 30", "fixed_window 10/1s", perSecond,
		"calendar 300/minute in Asia/Shanghai", "sliding_log 10/1s", "sliding_counter 10/1s slices 10",
		"[30/s, sliding_log 300/1m]"} {
		all[limit] = simulated(siteRule(limit))
	}
	all["costs and two rules"] = simulated(`rules:
  - {name: all, limit: 2000/s}
  - {name: cost, match: {path: /cost}, limit: sliding_log 30/1s, key: client.ip}
`, with(load{rate: 200, keys: 5, path: "/cost", cost: 3}, load{rate: 200, keys: 5, path: "/cost"},
		load{rate: 100, keys: 9}))
	all["bursts"] = simulated(siteRule("sliding_log 10/1s"), with(load{rate: 30, burst: 12, keys: 5}))
	all["slow"] = simulated(siteRule(perSecond), func(s *simulation) {
		s.latency, s.timeout = latency{20 * time.Millisecond, 60 * time.Millisecond}, time.Second
	})
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			r := s.run(t)
			if r.over != 0 || r.wronglyRefused != 0 || r.failed != 0 || r.degraded != 0 {
				t.Error(r)
			}
			if r.refused < r.requests/20 || r.admitted < r.requests/10 {
				t.Errorf("the load tests little: %v", r)
			}
			// The instants of requests at the store differ by the latency from those at the exact limiter.
			if off := r.admitted - r.exact; off < -r.exact/50 || off > r.exact/50 {
				t.Errorf("%d admitted, and %d by one exact limiter", r.admitted, r.exact)
			}
		})
	}
}

// TestPrefetchKeepsItsBound: at most nodes × share units pass beyond a bucket, and none beyond a window.
func TestPrefetchKeepsItsBound(t *testing.T) {
	prefetch := func(s *simulation) { s.lease = 0.2 }
	one := with(load{rate: 1000, keys: 1})
	r := simulated(siteRule("990/s burst 200"), one, prefetch).run(t)
	if r.worst > 3*40 || r.prefetched < r.requests/4 {
		t.Errorf("at most 3 × 40 units beyond are promised: %v", r)
	}
	if without := simulated(siteRule("990/s burst 200"), one).run(t); r.calls > without.calls/2 {
		t.Errorf("prefetch makes %d calls, and without it %d", r.calls, without.calls)
	}
	// Nodes hold units at the end of a burst, and the window is exhausted.
	waves := with(load{rate: 250, keys: 1, burst: 4})
	for _, limit := range []string{"fixed_window 400/1s epoch", "fixed_window 400/1s", "calendar 6000/minute"} {
		if r = simulated(siteRule(limit), waves, prefetch).run(t); r.over != 0 || r.prefetched == 0 || r.refused == 0 {
			t.Errorf("beyond %s: %v", limit, r)
		}
	}
}

// TestLocalFallbackReachesItsBoundAndNotMore: nodes × ⌈limit/nodes⌉ in each window of an outage.
func TestLocalFallbackReachesItsBoundAndNotMore(t *testing.T) {
	for _, kind := range []string{down, hang, cut} {
		r := simulated(siteRule(perSecond), with(load{rate: 300, keys: 1}), meets(between(kind))).run(t)
		for i, s := range r.seconds {
			switch {
			case i > 5 && i < 15 && s.admitted != 3*4: // the shares of 10 among 3 are 4
				t.Errorf("%s: %d admitted in second %d of the outage, want 12", kind, s.admitted, i)
			case (i < 5 || i > 16) && s.admitted != 10:
				t.Errorf("%s: %d admitted in second %d, want 10", kind, s.admitted, i)
			case s.admitted > 10+12: // a switch: the limit, and at most each node's share
				t.Errorf("%s: %d admitted in second %d, at a switch", kind, s.admitted, i)
			}
		}
	}
}

// TestFaultsTogether: calls that fail in part, are late, or do not arrive from one node are decided all the same, and
// what is admitted beyond the limit has the bound of the fallback.
func TestFaultsTogether(t *testing.T) {
	r := simulated(siteRule(perSecond), with(load{rate: 300, keys: 1}), meets(
		fault{kind: failing, from: 2 * time.Second, to: 5 * time.Second, share: 0.4},
		fault{kind: slow, from: 4 * time.Second, to: 8 * time.Second, by: 45 * time.Millisecond, nodes: []int{1}},
		fault{kind: cut, from: 6 * time.Second, to: 9 * time.Second, nodes: []int{2}},
		fault{kind: hang, from: 10 * time.Second, to: 12 * time.Second})).run(t)
	if r.degraded == 0 || r.failed != 0 || r.opened == 0 {
		t.Errorf("the faults had no effect: %v", r)
	}
	for i, s := range r.seconds {
		if most := int64(10 + 12); s.admitted > most || i > 13 && s.admitted != 10 {
			t.Errorf("%d admitted in second %d, at most %d, and 10 after the faults", s.admitted, i, most)
		}
	}
}

// TestWrongNumberOfNodesShows: a node that takes the whole limit for its share is seen in what is admitted.
func TestWrongNumberOfNodesShows(t *testing.T) {
	for nodes, want := range map[int]int64{1: 30, 2: 15, 3: 12, 6: 6} {
		r := simulated(siteRule(perSecond), with(load{rate: 300, keys: 1}), meets(between(down)),
			func(s *simulation) { s.nodes = nodes }).run(t)
		if got := r.seconds[10].admitted; got != want {
			t.Errorf("nodes %d: %d admitted in a second, want %d", nodes, got, want)
		}
	}
}

// TestPoliciesOfAnOutage: each on_store_error does what its name says.
func TestPoliciesOfAnOutage(t *testing.T) {
	run := func(policy string) *result {
		return simulated(siteRule(perSecond+", on_store_error: "+policy), with(load{rate: 300, keys: 1}),
			meets(between(down))).run(t)
	}
	if s := run("allow").seconds[10]; s.admitted != s.offered || s.over != s.offered-10 {
		t.Errorf("allow: %+v", s)
	}
	deny := run("deny")
	if s := deny.seconds[10]; s.admitted != 0 || s.failed != s.offered {
		t.Errorf("deny: %+v", s)
	}
	// Nothing is charged while all fails, so that each failed request would have fitted, but while the breakers close.
	if deny.over != 0 || deny.failedWithinLimits < deny.failed*19/20 {
		t.Errorf("deny: %v", deny)
	}
}

// TestLayersShow: a layer that is left out is missed.
func TestLayersShow(t *testing.T) {
	run := func(without ...string) *result {
		return simulated(siteRule("fixed_window 300/20s epoch"), with(load{rate: 150, keys: 3}),
			meets(fault{kind: hang, from: 8 * time.Second, to: 18 * time.Second}),
			func(s *simulation) { s.without = without }).run(t)
	}
	all := run()
	if all.recalled == 0 || all.opened < 3 {
		t.Fatalf("the layers had nothing to do: %v", all)
	}
	if r := run("breaker"); r.late < 5*all.late || r.opened != 0 {
		t.Errorf("without the breaker %d wait for a frozen Redis, with it %d", r.late, all.late)
	}
	if r := run("warm"); all.over > 40 || r.over < 200 {
		t.Errorf("without the warm copy %d beyond, with it %d", r.over, all.over)
	}
	if r := run("recall"); r.calls < all.calls*4/3 {
		t.Errorf("without the refusal cache %d calls, with it %d", r.calls, all.calls)
	}
}

// TestLossOfData: units that Redis forgets are granted again, once for each loss.
func TestLossOfData(t *testing.T) {
	over := func(limit int, lose ...time.Duration) int64 {
		rule := siteRule(fmt.Sprintf("fixed_window %d/1h epoch, on_store_error: deny", limit))
		s := simulated(rule, with(load{rate: 100, keys: 1}))
		for i, l := range lose {
			from := time.Duration(3+5*i) * time.Second
			s.faults = append(s.faults, fault{kind: down, from: from, to: from + time.Second, lose: l})
		}
		return s.run(t).over
	}
	for _, c := range []struct {
		limit int
		lose  []time.Duration
		want  int64
	}{{500, []time.Duration{0}, 0}, {500, []time.Duration{time.Second}, 100}, {500, []time.Duration{time.Hour}, 300},
		{900, []time.Duration{time.Second, 2 * time.Second}, 300}} {
		if got := over(c.limit, c.lose...); got < c.want*4/5 || got > c.want*6/5 {
			t.Errorf("%v forgotten: %d admitted beyond, want about %d", c.lose, got, c.want)
		}
	}
}

// TestTableOfPolicies compares the table of docs/why/failures-measured.md with a simulation.
func TestTableOfPolicies(t *testing.T) {
	page, err := os.ReadFile("../docs/why/failures-measured.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"local", "allow", "deny"} {
		s := simulated(fmt.Sprintf(`rules:
  - {name: login, match: {path: /login}, key: client.ip, limit: fixed_window 6/1m, on_store_error: %[1]s}
  - {name: site, key: client.ip, limit: 50/s burst 100, on_store_error: %[1]s}
`, policy), with(load{rate: 300, keys: 10, zipf: 1}, load{rate: 5, keys: 20, path: "/login"}),
			meets(fault{kind: down, from: 20 * time.Second, to: 40 * time.Second, lose: time.Second}))
		s.duration, s.latency = time.Minute, latency{250 * time.Microsecond, 2500 * time.Microsecond}
		r := s.run(t)
		for i, got := range []int64{r.admitted, r.over, r.refused, r.wronglyRefused, r.failed} {
			want := cell(t, string(page), "| `"+policy+"` |", i)
			if tolerance := want/20 + r.requests/500; got < want-tolerance || got > want+tolerance {
				t.Errorf("%s: figure %d is %d, and the page says %d: %v", policy, i, got, want, r)
			}
		}
	}
}

// cell is a number of the row of a table that begins with a text.
func cell(t *testing.T, page, row string, i int) (n int64) {
	_, rest, ok := strings.Cut(page, "\n"+row)
	line, _, _ := strings.Cut(rest, "\n")
	cells := strings.Split(line, "|")
	if !ok || len(cells) <= i {
		t.Fatalf("docs/why/failures-measured.md has no row %s with %d figures", row, i+1)
	}
	if _, err := fmt.Sscan(strings.ReplaceAll(cells[i], ",", ""), &n); err != nil {
		t.Fatalf("%s: %q: %v", row, cells[i], err)
	}
	return n
}
