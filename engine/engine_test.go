package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/gate"
	wiring "github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

// perHour is a rule file with a limit per user and hour.
func perHour(limit int) string {
	return fmt.Sprintf("rules: [{name: per-user, key: [user], limit: fixed_window %d/1h}]\n", limit)
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func ruleFile(t *testing.T, text string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "rules.yaml"), text)
}

// A lines is a log.
type lines struct{ redistest.Log }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) has(text string) bool { return strings.Contains(l.String(), text) }

func open(t *testing.T, c engine.Config) *engine.Engine {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Store != "" {
		c.Timeout = 5 * time.Second // on a busy machine
	}
	e, err := engine.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// decide is the verdict about a request of a user.
func decide(t *testing.T, e *engine.Engine, user string) *gate.Verdict {
	t.Helper()
	v := new(gate.Verdict)
	request := &rules.Request{User: user, Method: "GET", Path: "/"}
	if err := e.Decide(t.Context(), request, gate.Once, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// granted is the number of granted requests of a user, of n.
func granted(t *testing.T, e *engine.Engine, user string, n int) (granted int) {
	t.Helper()
	for range n {
		if decide(t, e, user).Outcome == gate.Passed {
			granted++
		}
	}
	return granted
}

// limitOf waits until a limit per user and hour is in force, which is asked for a new user each time.
func limitOf(t *testing.T, e *engine.Engine, want int) {
	t.Helper()
	user := 0
	redistest.Await(t, fmt.Sprint("a limit of ", want), func() bool {
		user++
		v := decide(t, e, fmt.Sprint("limit-", want, "-", user))
		return v.Len() == 1 && v.At(0).Decision.Remaining == int64(want-1)
	})
}

func TestMiddlewareFollowsTheRuleFile(t *testing.T) {
	file := ruleFile(t, "rules: [{name: per-ip, key: [client.ip], limit: fixed_window 1/1h}]")
	log := new(lines)
	e := open(t, engine.Config{Rules: file, Log: log.logger(), TrustedProxies: []string{"127.0.0.1"}})
	limited, err := e.Middleware(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	status := func(client string) int {
		r, _ := http.NewRequest("GET", server.URL, nil)
		r.Header.Set("X-Forwarded-For", client)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if a, b, c := status("192.0.2.1"), status("192.0.2.1"), status("192.0.2.2"); a != 200 || b != 429 || c != 200 {
		t.Errorf("statuses %d, %d, of another client %d", a, b, c)
	}
	first := e.Status()
	write(t, file, "rules: [{name: per-ip, key: [client.ip], limit: fixed_window 3/1h}]")
	redistest.Await(t, "the new limit", func() bool { return status("192.0.2.1") == 200 })
	redistest.Await(t, "its status, which is published after it is in force", func() bool {
		return e.Status().Sources[0].Revision != first.Sources[0].Revision
	})
	second := e.Status()
	if !second.Loaded.After(first.Loaded) {
		t.Errorf("loaded %v, then %v", first.Loaded, second.Loaded)
	}
	write(t, file, "rules: [{name: per-ip, limit: many}]")
	if err := e.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "many") {
		t.Errorf("reload of an invalid file: %v", err)
	}
	now := e.Status()
	if s := now.Sources[0]; s.Err == nil || s.Revision != second.Sources[0].Revision || now.Rules != 1 {
		t.Errorf("the last valid rules are not in force: %+v", now)
	}
	if status("192.0.2.1") != 200 || status("192.0.2.1") != 429 {
		t.Error("the last valid limit does not decide")
	}
	if !log.has("rules are invalid: the last valid rules stay in force") {
		t.Errorf("logged:\n%s", log.String())
	}
}

func TestADirectoryIsOneRuleSet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "rules: [{name: a, limit: 1/1h}]")
	write(t, filepath.Join(dir, "b.yaml"), "rules: [{name: b, limit: 1/1h}]")
	if s := open(t, engine.Config{Rules: dir}).Status(); s.Rules != 2 || len(s.Sources) != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestAURLIsReadWithItsTokenAgainAndAgain(t *testing.T) {
	var limit atomic.Int64
	limit.Store(5)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, perHour(int(limit.Load())))
	}))
	defer server.Close()
	c := engine.Config{Rules: server.URL, RulesTokenFile: write(t, filepath.Join(t.TempDir(), "token"), "secret\n")}
	reloaded := open(t, c)
	c.Refresh = time.Second
	polled := open(t, c)
	limitOf(t, polled, 5)
	limit.Store(6)
	limitOf(t, polled, 6)
	if err := reloaded.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	limitOf(t, reloaded, 6)
}

func TestTwoEnginesShareOneRedis(t *testing.T) {
	redis := redistest.Start(t)
	c := engine.Config{Rules: ruleFile(t, perHour(10)), Store: redis.URL()}
	a, b := open(t, c), open(t, c)
	if n := granted(t, a, "ann", 6) + granted(t, b, "ann", 6); n != 10 {
		t.Errorf("%d of 12 granted, want 10", n)
	}
}

func TestLocalStoreDecidesWhileRedisIsDown(t *testing.T) {
	redis := redistest.Start(t)
	log := new(lines)
	e := open(t, engine.Config{Rules: ruleFile(t, perHour(4)), Store: redis.URL(), Nodes: 2, Log: log.logger()})
	if v := decide(t, e, "ann"); v.Degraded() {
		t.Fatal(v.Err)
	}
	redis.Kill()
	if n := granted(t, e, "bob", 4); n != 2 {
		t.Errorf("without Redis %d of 4 granted, want a node's share, 2", n)
	}
	if !log.has("store is not responding") {
		t.Errorf("logged:\n%s", log.String())
	}
	redis.Restart()
	redistest.Await(t, "decisions of Redis", func() bool { return !decide(t, e, "carl").Degraded() })
	redistest.Await(t, "the end of the outage in the log", func() bool {
		decide(t, e, "carl")
		return log.has("store is responding again")
	})
	if n := granted(t, e, "dora", 5); n != 4 {
		t.Errorf("with Redis again %d of 5 granted, want 4", n)
	}
}

func TestOpenWithoutRedisConnectsLater(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	e, err := engine.Open(ctx, engine.Config{Rules: ruleFile(t, perHour(4)), Store: redis.URL(), Timeout: 5 * time.Second,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	cancel() // the context is that of Open alone
	if v := decide(t, e, "ann"); v.Outcome != gate.Passed || !v.Degraded() {
		t.Errorf("outcome %v, error %v", v.Outcome, v.Err)
	}
	redis.Restart()
	redistest.Await(t, "decisions of Redis", func() bool { return !decide(t, e, "ann").Degraded() })
}

func TestHashesInRedisAreAnnounced(t *testing.T) {
	redis := redistest.Start(t)
	hash := func(limit int) {
		redis.Do("HSET", "rate_limit_config:a", "limitType", "GLOBAL", "limitCount", fmt.Sprint(limit),
			"timeWindow", "3600", "strategy", "FIXED_WINDOW", "enabled", "true", "ruleName", "whole-site")
		redis.Do("PUBLISH", "rate_limit_config", "RELOAD_ALL")
	}
	hash(500)
	e := open(t, engine.Config{Rules: "redis", Store: redis.URL()})
	over := open(t, engine.Config{Rules: ruleFile(t, perHour(7)), Hashes: []string{redis.URL()}})
	for _, limit := range []int64{500, 600} {
		for _, e := range []*engine.Engine{e, over} {
			redistest.Await(t, fmt.Sprint("a limit of ", limit), func() bool {
				v := decide(t, e, "ann")
				for i := range v.Len() {
					if check := v.At(i); check.Claim.Limit.String() == fmt.Sprintf("fixed_window %d/1h", limit) {
						return true
					}
				}
				return false
			})
		}
		hash(600)
	}
	if s := over.Status(); s.Rules != 2 || len(s.Sources) != 2 || s.Sources[1].Name != "redis" {
		t.Errorf("status %+v", s)
	}
}

// TestOperatorsChangesApply: a rule changes as by the admin API of weir serve, before and after the engine is open.
func TestOperatorsChangesApply(t *testing.T) {
	redis := redistest.Start(t)
	file := ruleFile(t, perHour(7))
	e := open(t, engine.Config{Rules: file, Store: redis.URL()})
	limitOf(t, e, 7)
	server, err := wiring.Read(t.Context(), wiring.Config{Rules: file, Log: slog.New(slog.DiscardHandler),
		Given: func(s *rules.Server) { s.Store = redis.URL() }})
	if err == nil {
		err = server.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rule := "name: per-user\nkey: [user]\nlimit: fixed_window 9/1h\n"
	if _, err := server.Book.Set(t.Context(), "per-user", rule, 0, ledger.Author{Who: "ann"}); err != nil {
		t.Fatal(err)
	}
	limitOf(t, open(t, engine.Config{Rules: file, Store: redis.URL()}), 9)
	if err := e.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	limitOf(t, e, 9)
	limitOf(t, open(t, engine.Config{Rules: file, Store: redis.URL(), Ledger: "none"}), 7)
}

func TestStatePreservesCounts(t *testing.T) {
	c := engine.Config{Rules: ruleFile(t, perHour(4)), State: filepath.Join(t.TempDir(), "state")}
	e := open(t, c)
	granted(t, e, "ann", 3)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := granted(t, open(t, c), "ann", 3); n != 1 {
		t.Errorf("%d granted after a restart, want 1", n)
	}
}

// TestMetricsStandBesideThoseOfTheProgram: the collector has nothing that a program registers itself.
func TestMetricsStandBesideThoseOfTheProgram(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	e := open(t, engine.Config{Rules: ruleFile(t, perHour(1)), Store: redistest.Start(t).URL()})
	registry.MustRegister(e.Metrics())
	granted(t, e, "ann", 3)
	for name, want := range map[string]int{
		"weir_decisions_total": 2, "weir_breaker_state": 1, "weir_build_info": 1, "weir_recalled_total": 1,
	} {
		if n, err := testutil.GatherAndCount(registry, name); n != want || err != nil {
			t.Errorf("%s: %d series, %v, want %d", name, n, err, want)
		}
	}
}

func TestMistakesNameTheFieldAndWhatIsAllowed(t *testing.T) {
	redis := redistest.Start(t)
	file := ruleFile(t, perHour(1))
	for _, test := range []struct {
		config engine.Config
		want   []string
	}{
		{engine.Config{Rules: "absent.yaml"}, []string{"no such file: absent.yaml"}},
		{engine.Config{Rules: ruleFile(t, "rules: [{name: a, limit: many}]")},
			[]string{"rules.yaml:1:", "many", "allowed"}},
		{engine.Config{Rules: "http://127.0.0.1:1/rules", StartWithin: time.Millisecond},
			[]string{"http://127.0.0.1:1/rules could not be read within 1ms"}},
		{engine.Config{Rules: "redis"}, []string{"server.rules is redis, which stands for the Redis of server.store, but that is memory"}},
		{engine.Config{Hashes: []string{"redis"}}, []string{"server.rules is redis, which stands for"}},
		{engine.Config{Ledger: "redis"}, []string{"server.ledger is redis, which stands for"}},
		{engine.Config{Rules: file, Refresh: time.Millisecond}, []string{`server.config.poll is "1ms"; allowed: a time with its unit from 100ms`}},
		{engine.Config{Rules: file, StartWithin: -1}, []string{`server.rules.wait is "-1ns"; allowed`}},
		{engine.Config{Rules: file, Nodes: -1}, []string{`server.nodes is "-1"; allowed: a whole number from 1 to`}},
		{engine.Config{Rules: file, Timeout: -1}, []string{`server.store`, `"-1ns"; allowed`}},
		{engine.Config{Rules: file, MaxKeys: -1}, []string{`server.max_keys is "-1"; allowed: a whole number from 1`}},
		{engine.Config{Rules: file, Without: []string{"brake"}},
			[]string{`server.without is "brake"; allowed: breaker, coalesce, recall, warm`}},
		{engine.Config{Rules: file, TrustedProxies: []string{"here"}},
			[]string{`server.trusted_proxies has "here"; allowed: `, "unix"}},
		{engine.Config{Rules: file, ClientHeader: "X-Any"}, []string{"server.client_header", `"X-Any"`, "allowed"}},
		{engine.Config{Rules: file, PathForm: []string{"loose"}},
			[]string{`server.path_form has "loose"; allowed: drop-trailing-slash`}},
		{engine.Config{Store: "postgres://host"}, []string{"server.store", "unknown scheme", "redis://"}},
		{engine.Config{Rules: file, Store: redis.URL(), State: "state"},
			[]string{"server.state saves counts in memory, but server.store is redis://"}},
		{engine.Config{Rules: file, State: filepath.Join(t.TempDir(), "absent", "state")},
			[]string{"server.state: ", "no such file"}},
	} {
		e, err := engine.Open(t.Context(), test.config)
		if err == nil {
			e.Close()
			t.Errorf("%+v opens, want %q", test.config, test.want)
			continue
		}
		for _, want := range append(test.want, "engine: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %q, want %q", test.config, err, want)
			}
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	redis := redistest.Start(t)
	redis.Stop()
	defer redis.Cont()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	e, err := engine.Open(ctx, engine.Config{Rules: "redis", Store: redis.URL(), StartWithin: time.Hour})
	if err == nil {
		e.Close()
		t.Error("opened after the end of its context")
	}
}
