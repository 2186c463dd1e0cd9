//go:build unix

package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
)

// redisCLI types a line into redis-cli, as an operator would, with words in the shell's way.
func redisCLI(t *testing.T, redis *redistest.Server, line string) string {
	t.Helper()
	r := call{}.shell(t, "redis-cli -u "+redis.URL()+" "+line)
	if r.code != 0 || strings.HasPrefix(r.out, "ERR") {
		t.Fatalf("%s\n%v", line, r)
	}
	return strings.TrimSpace(r.out)
}

// hash is a rule a as a hash: this many requests an hour.
func hash(limit int) string {
	return fmt.Sprintf("HSET rate_limit_config:a limitType GLOBAL limitCount %d timeWindow 3600 strategy FIXED_WINDOW enabled true", limit)
}

const reloadAll = "PUBLISH rate_limit_config RELOAD_ALL"

// TestHashForAnyInterfaceCountsEachPath by itself at the gateway.
func TestHashForAnyInterfaceCountsEachPath(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redisCLI(t, redis, "HSET rate_limit_config:each limitType INTERFACE limitTarget '*' limitCount 2 timeWindow 3600 strategy FIXED_WINDOW enabled true ruleName 接口限流")
	p := gatewayBy(t, "--store", redis.URL(), "--rules", "redis")
	for _, one := range []struct {
		path string
		want int
	}{{"/a", 200}, {"/a", 200}, {"/a", 429}, {"/b", 200}, {"/b?page=2", 200}, {"/b", 429}, {"/a", 429}, {"/c", 200}} {
		if got := status(t, p.at("gateway")+one.path); got != one.want {
			t.Errorf("%s: %d, want %d", one.path, got, one.want)
		}
	}
	if _, _, body := get(t, p.at("gateway")+"/a"); !strings.Contains(body, `"label":"接口限流"`) {
		t.Errorf("the refusal does not have the rule's name for people: %s", body)
	}
	p.end()
}

// TestExplainReadsTheLedgerOfTheStore, as a server with that store does, and writes nothing there.
func TestExplainReadsTheLedgerOfTheStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	explain := func(args ...string) string {
		r := call{}.run(t, append([]string{"explain", "--store", redis.URL(), "--set", "server.store.timeout=5s", "--client", "203.0.113.9"}, args...)...)
		if r.code != 0 {
			t.Fatal(r)
		}
		return r.out
	}
	explain("--limit", "5/1m per client.ip", "http://example.com/")
	if keys := redisCLI(t, redis, "KEYS '*rules*'"); keys != "" {
		t.Errorf("explain wrote %s", keys)
	}
	p := call{}.serve(t, "--store", redis.URL())
	ann := operate(t, p)
	if r := ann.sets("name: kept\nlimit: 7/1h\n", "kept"); r.code != 0 {
		t.Fatal(r)
	}
	ann.does("block", "203.0.113.9", "--for", "1h")
	p.end()
	for _, out := range []string{explain("http://example.com/"), explain("--limit", "5/1m per client.ip", "http://example.com/")} {
		if !strings.Contains(out, "403 Forbidden") || !strings.Contains(out, redis.URL()) {
			t.Errorf("it prints\n%s", out)
		}
	}
	if out := explain("--ledger", "none", "--limit", "5/1m per client.ip", "http://example.com/"); strings.Contains(out, "403 Forbidden") {
		t.Errorf("without a ledger it prints\n%s", out)
	}
}

// TestInvalidHashesAreReported by a metric, by /readyz and by a reload, until they are corrected.
func TestInvalidHashesAreReported(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := call{}.serve(t, "--store", redis.URL(), "--rules", "redis")
	redisCLI(t, redis, "HSET rate_limit_config:good limitType IP limitTarget '*' limitCount 5 timeWindow 60 strategy GCRA enabled True ruleName 登录限流 priority 7")
	redisCLI(t, redis, "HSET rate_limit_config:bad limitType IP limitTarget 192.0.2.1 limitCount 5 timeWindow 60s strategy GCRA enabled true")
	redisCLI(t, redis, reloadAll)
	redistest.Await(t, "the good rule", func() bool {
		return strings.Contains(operate(t, p).does("rules", "list"), "good (登录限流)")
	})
	tells := func(want bool) func() bool {
		return func() bool {
			_, _, metrics := get(t, p.at("http")+"/metrics")
			_, _, ready := get(t, p.at("http")+"/readyz")
			request, err := http.NewRequestWithContext(t.Context(), "POST", p.at("http")+"/-/reload", nil)
			if err != nil {
				t.Fatal(err)
			}
			status, _, reload := do(t, request)
			const why = "timeWindow is "
			return strings.Contains(metrics, `weir_source_left_out{source="redis"} 1`) == want &&
				strings.Contains(metrics, `weir_source_good{source="redis"} 0`) == want &&
				strings.Contains(metrics, "weir_config_last_load_successful 0") == want &&
				strings.Contains(ready, why) == want && strings.Contains(reload, why) == want && (status == 422) == want &&
				strings.Contains(metrics, `weir_rule_info{label="登录限流",rule="good"} 1`)
		}
	}
	redistest.Await(t, "that it is told everywhere", tells(true))
	redisCLI(t, redis, "DEL rate_limit_config:bad")
	redisCLI(t, redis, reloadAll)
	redistest.Await(t, "that it is told nowhere", tells(false))
	p.end()
	if !strings.Contains(p.logs(), "priority") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}

// TestLayers: a ledger beats hashes, and hashes beat the file.
func TestLayers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	book, err := redissource.OpenLedger(redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	ann := ledger.Author{Who: "ann"}
	file := write(t, t.TempDir(), "weir.yaml", "server: {store: \""+redis.URL()+"\"}\nrules: [{name: a, limit: fixed_window 5/1h}, {name: b, match: {path: /b}, limit: 5/1h}]\n")
	p := gatewayBy(t, "--config", file, "--set", "server.store.timeout=5s", "--rules", "redis", "--ledger", "redis")
	p.obeys(5)
	redisCLI(t, redis, hash(6))
	redisCLI(t, redis, reloadAll)
	p.obeys(6)
	p.logged(`rule \"a\" of redis replaces that of config`)
	first, err := book.Set(t.Context(), "a", "name: a\nlimit: fixed_window 7/1h\n", 0, ann)
	if err != nil {
		t.Fatal(err)
	}
	p.obeys(7)
	p.logged(`rule \"a\" of ledger replaces that of redis`)
	replace(t, file, "server: {store: \""+redis.URL()+"\"}\nrules: [{name: a, limit: fixed_window 8/1h}, {name: c, limit: fixed_window 9/1h}]\n")
	redistest.Await(t, "the file's other rule", func() bool { return policy(t, p) == `"a";q=7;w=3600, "c";q=9;w=3600` })
	explained := call{}.run(t, "explain", "--config", file, "--rules", "redis", "--ledger", "redis", "http://example.com/")
	if explained.code != 0 || !strings.Contains(explained.out, "7/1h") || !strings.Contains(explained.out, "9/1h") {
		t.Error(explained)
	}
	second, err := book.Disable(t.Context(), "a", first, ann)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the end of the rule, wherever it is from", func() bool { return policy(t, p) == `"c";q=9;w=3600` })
	if _, err := book.Delete(t.Context(), "a", second, ann); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the hash's rule", func() bool { return strings.HasPrefix(policy(t, p), `"a";q=6;`) })
	p.counts(`weir_source_rules{source="config"} 2`)
	p.counts(`weir_source_rules{source="ledger"} 0`)
	p.end()
}

// TestSeveralHashes: the later of two Redis wins, and both are read under other keys, at another channel and refresh.
func TestSeveralHashes(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	for limit, redis := range []*redistest.Server{one, two} {
		redis.Do(strings.Fields(strings.Replace(hash(5+limit), "rate_limit_config:", "limits/", 1))...)
	}
	p := gatewayBy(t, "--rules", one.URL(), "--rules", two.URL(), "--set", "server.rules.prefix=limits/", "--set", "server.rules.channel=limits",
		"--set", "server.rules.refresh=200ms")
	p.obeys(6)
	redisCLI(t, one, "HSET limits/b limitType GLOBAL limitCount 9 timeWindow 3600 strategy FIXED_WINDOW enabled true")
	redisCLI(t, one, "PUBLISH limits RELOAD_ALL")
	redistest.Await(t, "the other rule", func() bool { return strings.Contains(policy(t, p), `"b";q=9;`) })
	redisCLI(t, one, "HSET limits/b limitCount 8") // and nobody says so
	redistest.Await(t, "a reading without a message", func() bool { return strings.Contains(policy(t, p), `"b";q=8;`) })
	p.end()
}

// TestRedisIsDownAtTheStart: the file's rules in force, and the server is not ready
// before those of Redis are.
func TestRedisIsDownAtTheStart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	file := write(t, t.TempDir(), "weir.yaml", ruleA(5))
	p := gatewayBy(t, "--config", file, "--rules", redis.URL(), "--set", "server.rules.wait=100ms")
	p.obeys(5)
	if code, _, body := get(t, p.at("http")+"/readyz"); code != 503 || !strings.Contains(body, "not all rules are loaded yet") {
		t.Errorf("readyz: %d %s", code, body)
	}
	p.logged("some rule sources are not in force yet: the server is not ready")
	redis.Restart()
	redisCLI(t, redis, hash(6))
	redistest.Await(t, "the server to be ready", func() bool { return status(t, p.at("http")+"/readyz") == 200 })
	redisCLI(t, redis, reloadAll)
	p.obeys(6)
	redis.Kill()
	p.counts(`weir_source_up{source="redis"} 0`)
	if code := status(t, p.at("http")+"/readyz"); code != 200 { // it was ready, and has its rules
		t.Errorf("readyz: %d", code)
	}
	p.end()
}

// TestWrongPasswordOfRulesEndsTheStart: unlike a Redis that is down, it will not appear later.
func TestWrongPasswordOfRulesEndsTheStart(t *testing.T) {
	t.Parallel()
	redis := redistest.StartACL(t, "weir", "a-password")
	url := strings.Replace(redis.URL(), "redis://", "redis://weir:another@", 1)
	r := call{env: []string{"WEIR_RULES=" + url}}.run(t, "serve", "--http", "127.0.0.1:0")
	if r.code != 1 || !strings.Contains(r.err, "WRONGPASS") || strings.Contains(r.err, "another") {
		t.Error(r)
	}
}
