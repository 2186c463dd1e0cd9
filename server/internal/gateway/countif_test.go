package gateway_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/rules"
)

const loginRules = `
server:
  path_form: strict
rules:
  - name: login
    match: {path: /login}
    key: [user]
    count_if: {status: [401, 403]}
    limit: sliding_log 30/1h
    ban: {after: 5 counted within 1h, for: 1h}
`

// logins are the logins of a test, counted independently of weir: by the service and by the clients.
type logins struct {
	served   [200]struct{ failed, passed atomic.Int64 } // by user, counted by the service
	answered [200]atomic.Int64                          // failures that clients have got
	refused  atomic.Int64
	late     atomic.Int64 // served, although begun after a client had got the fifth failure
}

// ServeHTTP is the service.
func (l *logins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var user, status int
	fmt.Sscan(r.Header.Get("X-User")+" "+r.Header.Get("X-Status"), &user, &status)
	if status == http.StatusOK {
		l.served[user].passed.Add(1)
	} else {
		l.served[user].failed.Add(1)
	}
	w.WriteHeader(status)
}

// run sends logins over as many connections as there are clients, of which 30 in 100 fail.
func (l *logins) run(t *testing.T, urls []string, clients, each int) {
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			random := rand.New(rand.NewPCG(7, uint64(client)))
			for i := range each {
				user, status := random.IntN(len(l.served)), http.StatusOK
				if random.IntN(100) < 30 {
					status = []int{401, 403}[random.IntN(2)]
				}
				l.login(t, transport, urls[(client+i)%len(urls)], user, status)
			}
		})
	}
	group.Wait()
}

func (l *logins) login(t *testing.T, transport *http.Transport, url string, user, status int) {
	before := l.answered[user].Load()
	r, err := http.NewRequest(http.MethodPost, url+"/login", nil)
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("X-User", fmt.Sprint(user))
	r.Header.Set("X-Status", fmt.Sprint(status))
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		l.refused.Add(1)
		return
	case response.StatusCode != status:
		t.Errorf("a login that is to be answered %d was answered %d", status, response.StatusCode)
	case before >= 5:
		l.late.Add(1)
	}
	if status != http.StatusOK {
		l.answered[user].Add(1)
	}
}

// TestLoginsAreCountedExactly: 10,000 logins from 50 connections, of which 30 in 100 fail, equal a recount: units of
// each user, bans, and metrics; in memory, on Redis, and by two gateways on one Redis.
func TestLoginsAreCountedExactly(t *testing.T) {
	for name, test := range map[string]struct {
		nodes int
		store func() string
	}{
		"memory":    {1, func() string { return "memory" }},
		"redis":     {1, func() string { return redistest.Start(t).URL() }},
		"two nodes": {2, func() string { return redistest.Start(t).URL() }},
	} {
		t.Run(name, func(t *testing.T) {
			all, store := new(logins), test.store()
			service := open(t, all.ServeHTTP)
			var urls []string
			var engines []*engine.Engine
			for range test.nodes {
				e := engineOn(t, store)
				user := func(r *http.Request) string { return r.Header.Get("X-User") }
				limit, err := e.Middleware(&httplimit.RuleOptions{User: user})
				if err != nil {
					t.Fatal(err)
				}
				urls = append(urls, front(t, newGateway(t, service.URL, limit)).URL)
				engines = append(engines, e)
			}
			each := 200
			if testing.Short() {
				each = 40
			}
			all.run(t, urls, 50, each)
			all.recount(t, engines, 50*each)
		})
	}
}

// engineOn opens the server's engine. Its timeout is long, so that a slow machine does not decide locally.
func engineOn(t *testing.T, store string) *engine.Engine {
	t.Helper()
	return engineWith(t, store, loginRules)
}

// engineWith is engineOn with the text of rules.
func engineWith(t *testing.T, store, text string) *engine.Engine {
	t.Helper()
	return engineWithin(t, store, text, time.Minute)
}

// engineWithin is engineWith with the time that a call of Redis may take.
func engineWithin(t *testing.T, store, text string, timeout time.Duration) *engine.Engine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{Rules: file, Store: store, Timeout: timeout,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// recount compares what weir has counted with what the service and the clients have.
func (l *logins) recount(t *testing.T, engines []*engine.Engine, sent int) {
	t.Helper()
	var failed, passed, banned int64
	for user := range l.served {
		n := l.served[user].failed.Load()
		failed, passed = failed+n, passed+l.served[user].passed.Load()
		if n >= 5 {
			banned++
		}
		for _, e := range engines {
			var v gate.Verdict
			if err := e.Decide(t.Context(), &rules.Request{Path: "/login", User: fmt.Sprint(user)}, gate.Ask{}, &v); err != nil {
				t.Fatal(err)
			}
			if used := 30 - v.At(0).Decision.Remaining; used != n || (v.Reason == gate.Banned) != (n >= 5) {
				t.Errorf("user %d: %d units used and %v, of %d failures", user, used, v.Reason, n)
			}
		}
	}
	if l.refused.Load()+failed+passed != int64(sent) || l.late.Load() > 0 || banned == 0 || passed == 0 {
		t.Errorf("%d sent, %d refused, %d failed, %d passed, %d banned; %d served after the fifth failure", sent,
			l.refused.Load(), failed, passed, banned, l.late.Load())
	}
	got := make(map[string]int64)
	for _, e := range engines {
		countsOf(t, e.Metrics(), got)
		if bans, err := e.Gate().Bans(t.Context()); err != nil || int64(len(bans)) != banned {
			t.Errorf("%d bans are listed, want %d: %v", len(bans), banned, err)
		}
	}
	want := map[string]int64{"bans": banned, "kept": failed, "given_back": passed, "no_response": 0, "lost": 0}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("metrics count %v, want %v", got, want)
	}
}

// countsOf adds the counters of bans and of count_if.
func countsOf(t *testing.T, metrics prometheus.Collector, into map[string]int64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "weir_bans_total":
				into["bans"] += int64(m.GetCounter().GetValue())
			case "weir_count_if_total":
				into[m.GetLabel()[0].GetValue()] += int64(m.GetCounter().GetValue())
			}
		}
	}
}
