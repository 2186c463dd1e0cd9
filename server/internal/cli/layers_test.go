//go:build unix

package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const layered = `
server:
  nodes: 3
rules:
  - {name: few, match: {path: /few}, limit: fixed_window 6/1h}
  - {name: hot, match: {path: /hot}, limit: fixed_window 1000000/1h, lease_percent: 10}
  - {name: bounded, match: {path: /bounded}, limit: 5/1h, local_ceiling: 1.2}
`

// scripts is how many Redis has run.
func scripts(redis *redistest.Server) (calls int) {
	for line := range strings.Lines(redis.Do("INFO", "commandstats").(string)) {
		if text, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			fmt.Sscan(text, &calls)
		}
	}
	return calls
}

// granted is how many of n requests pass.
func granted(t *testing.T, url string, n int) (passed int) {
	t.Helper()
	for range n {
		if status(t, url) == 200 {
			passed++
		}
	}
	return passed
}

// TestLayersBeforeRedis: the load is high enough that each layer shows its effect.
func TestLayersBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "rules.yaml", layered), "--store", redis.URL(),
		"--gateway", "127.0.0.1:0", "--upstream", "demo")
	gateway := p.at("gateway")

	if n := granted(t, gateway+"/few", 6); n != 6 {
		t.Fatalf("granted %d of 6", n)
	}
	before := scripts(redis)
	if n := granted(t, gateway+"/few", 50); n != 0 || scripts(redis) > before+2 {
		t.Errorf("of 50 refusals %d passed, for %d scripts: they are to be remembered", n, scripts(redis)-before)
	}

	redistest.Await(t, "units of a hot key to be taken ahead", func() bool { // at the rate of a machine that is not busy
		before = scripts(redis)
		if n := granted(t, gateway+"/hot", 500); n != 500 {
			t.Errorf("of 500 requests of a hot key %d passed", n)
		}
		return scripts(redis) <= before+250
	})

	if n := granted(t, gateway+"/bounded", 4); n != 4 {
		t.Fatalf("granted %d of 4", n)
	}
	redis.Do("FLUSHALL") // a store that forgets
	if n := granted(t, gateway+"/bounded", 10); n != 2 {
		t.Errorf("a node that passed 4 of 5 passes %d more after the store has forgotten; 6 in all is its ceiling", n)
	}

	tellsOfLayers(t, p.at("http")+"/metrics")
	redis.Kill()
	// The share of a node is 2 of 6, and was used while Redis was there.
	if n := granted(t, gateway+"/few", 4); n != 0 {
		t.Errorf("the local store grants %d of what was used", n)
	}
	p.end()
}

// tellsOfLayers is what operators see of them when each has done something.
func tellsOfLayers(t *testing.T, url string) {
	t.Helper()
	var metrics string
	redistest.Await(t, "news to be heard", func() bool {
		_, _, metrics = get(t, url)
		return strings.Contains(metrics, "\nweir_recall_listening 1\n")
	})
	for name, nothing := range map[string]bool{
		"weir_breaker_state": true, "weir_breaker_turned_away_total": true, "weir_recall_evicted_total": true, "weir_recalled_total": false,
		"weir_lease_taken_total": false, "weir_ceiling_refused_total": false,
		"weir_coalesce_decisions_total": false, "weir_coalesce_requests_total": false, "weir_coalesce_trips_total": false,
	} {
		if !strings.Contains(metrics, "\n"+name+" ") || strings.Contains(metrics, "\n"+name+" 0\n") != nothing {
			t.Errorf("/metrics does not tell what %s should", name)
		}
	}
}

// TestNodesShareALimit: without Redis from the start, each of three nodes grants its share.
func TestNodesShareALimit(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "rules.yaml", layered), "--store", redis.URL(), "--gateway", "127.0.0.1:0", "--upstream", "demo")
	if n := granted(t, p.at("gateway")+"/few", 6); n != 2 {
		t.Errorf("one of three nodes grants %d of 6", n)
	}
	_, _, metrics := get(t, p.at("http")+"/metrics")
	if !strings.Contains(metrics, "\nweir_degraded_total 6\n") {
		t.Error("/metrics tells of none of 6 decisions without the store")
	}
	p.end()
}

// TestLayersCanBeLeftOut with server.without: then Redis is called for each refusal.
func TestLayersCanBeLeftOut(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := call{}.serve(t, "--limit", "fixed_window 1/1h", "--store", redis.URL(), "--set", "server.without=recall,coalesce,breaker,warm", "--set", "server.telemetry=off",
		"--gateway", "127.0.0.1:0", "--upstream", "demo")
	granted(t, p.at("gateway")+"/", 1)
	before := scripts(redis)
	if n := granted(t, p.at("gateway")+"/", 10); n != 0 || scripts(redis) != before+10 {
		t.Errorf("%d passed, for %d scripts", n, scripts(redis)-before)
	}
	p.end()
	for args, says := range map[string]string{
		"--set=server.without=recal": `server.without is "recal"; allowed: breaker, coalesce, recall, warm`,
		"--set=server.nodes=0":       `server.nodes is "0"; allowed: a whole number from 1 to 10000`,
	} {
		if r := (call{}.run(t, "serve", args)); r.code != 2 || !strings.Contains(r.err, says) {
			t.Errorf("%s: %v", args, r)
		}
	}
}
