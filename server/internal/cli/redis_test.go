//go:build unix

package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const byPolicy = `
rules:
  - {name: shared, match: {path: /shared}, limit: fixed_window 100000/1h}
  - {name: local, match: {path: /local}, limit: fixed_window 2/1h, on_store_error: local}
  - {name: allow, match: {path: /allow}, limit: fixed_window 1/1h, on_store_error: allow}
  - {name: deny, match: {path: /deny}, limit: fixed_window 100000/1h, on_store_error: deny}
`

func status(t *testing.T, url string) int {
	t.Helper()
	code, _, _ := get(t, url)
	return code
}

func TestTwoServersShareOneRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var servers []*process
	for range 2 {
		servers = append(servers, call{}.serve(t, "--limit", "fixed_window 4/1h", "--store", redis.URL(),
			"--gateway", "127.0.0.1:0", "--upstream", "demo"))
	}
	for i, want := range []int{200, 200, 200, 200, 429, 429} {
		if got := status(t, servers[i%2].at("gateway")+"/"); got != want {
			t.Errorf("request %d: %d, want %d", i+1, got, want)
		}
	}
	live := call{}.run(t, "explain", "--limit", "fixed_window 4/1h", "--store", redis.URL(), "--set", "server.store.timeout=5s", "http://example.com/")
	if live.code != 0 || !strings.Contains(live.out, "429 Too Many Requests: refused by limit") || !strings.Contains(live.out, "with the counts of "+redis.URL()) {
		t.Error(live)
	}
	for _, p := range servers {
		p.end()
	}
}

// TestRedisIsNotThereYet: the server starts all the same, and finds Redis when it comes.
func TestRedisIsNotThereYet(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "rules.yaml", byPolicy), "--store", redis.URL(),
		"--gateway", "127.0.0.1:0", "--upstream", "demo", "--resp", "127.0.0.1:0")
	gateway := p.at("gateway")
	for path, want := range map[string]int{"/deny": 503, "/allow": 200, "/local": 200, "/none": 200} {
		if got := status(t, gateway+path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	const forget = `{"request": {"path": "/deny"}}`
	if status, _, body := post(t, p.at("http")+"/v1/reset", forget); status != 503 {
		t.Errorf("reset: %d %s", status, body)
	}
	if !strings.Contains(p.logs(), "Redis is not responding: rules apply their on_store_error until it does") {
		t.Errorf("the logs are\n%s", p.logs())
	}
	redistest.Await(t, "the breaker to open", func() bool {
		status(t, gateway+"/deny")
		return strings.Contains(p.logs(), "circuit breaker opened: Redis is not responding")
	})
	redis.Restart()
	redistest.Await(t, "deny to pass", func() bool { return status(t, gateway+"/deny") == 200 })
	redistest.Await(t, "all to be let in", func() bool { return strings.Contains(p.logs(), "circuit breaker closed: Redis is responding again") })
	for _, actual := range []string{"500", "9"} { // more than the estimate, and less
		_, _, body := post(t, p.at("http")+"/v1/reserve", `{"claims": [{"name": "llm", "limit": "10000/1h", "key": "user:42"}], "cost": 100}`)
		found := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(body)
		if found == nil {
			t.Fatalf("reserve: %s", body)
		}
		if status, _, body := post(t, p.at("http")+"/v1/settle", `{"token": "`+found[1]+`", "actual": `+actual+`}`); status != 200 {
			t.Errorf("settle: %d %s", status, body)
		}
	}
	if status, _, body := post(t, p.at("http")+"/v1/reset", forget); status != 200 {
		t.Errorf("reset: %d %s", status, body)
	}
	p.end()
	if !strings.Contains(p.logs(), "connected to Redis") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}

// TestWrongPasswordOfTheStoreEndsTheStart: unlike a Redis that is down, it will not appear later.
func TestWrongPasswordOfTheStoreEndsTheStart(t *testing.T) {
	t.Parallel()
	redis := redistest.StartACL(t, "weir", "a-password")
	url := strings.Replace(redis.URL(), "redis://", "redis://weir:another@", 1)
	r := call{env: []string{"WEIR_STORE=" + url}}.run(t, "serve", "--http", "127.0.0.1:0")
	if r.code != 1 || !strings.Contains(r.err, "WRONGPASS") || strings.Contains(r.err, "another") {
		t.Error(r)
	}
}

func TestAdviceOnRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--requirepass", "not-very-secret")
	p := call{}.serve(t, "--store", strings.Replace(redis.URL(), "redis://", "redis://:not-very-secret@", 1))
	p.end()
	if !strings.Contains(p.logs(), "the command line shows a password in a URL") {
		t.Errorf("the logs are\n%s", p.logs())
	}
	if !strings.Contains(p.logs(), "maxmemory-policy allkeys-lru") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}
