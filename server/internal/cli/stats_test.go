package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
)

// reports is a server with known figures: of the rule login, 30 of 100 requests are refused.
func reports(t *testing.T, healthy bool) (url string) {
	t.Helper()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	worst := telemetry.KeyRate{Key: "client.ip=11:203.0.113.7", Passed: 2, Refused: 27, Share: 0.9}
	login := telemetry.RuleSummary{Name: "login", Mode: "enforce", Limits: []string{"5/1m"},
		Counts: telemetry.Counts{Passed: 70, Refused: 30}, WorstKey: &worst}
	overview := telemetry.Overview{From: at, To: at.Add(time.Hour), Step: time.Minute, Total: telemetry.Counts{Passed: 970, Refused: 30},
		Rules: []telemetry.RuleSummary{login}, More: 3, Nodes: []telemetry.Node{{Name: "n1", StoreUp: healthy}}}
	mux := http.NewServeMux()
	answer := func(path string, report any) {
		mux.HandleFunc("GET /v1/admin/telemetry/"+path, func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("from") == "" || r.FormValue("node") == "unknown" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_ = json.NewEncoder(w).Encode(report)
		})
	}
	answer("overview", &overview)
	answer("rules/login", &telemetry.RuleReport{RuleSummary: login, Distinct: 12, Top: []telemetry.KeyRate{worst}})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestStatsPrintsTablesAndJSON(t *testing.T) {
	t.Parallel()
	url := reports(t, true)
	here := call{env: []string{"WEIR_SERVER=" + url}}
	for _, c := range []struct {
		args string
		want []string
	}{
		{"stats --check", []string{"1 node, 1000 requests: 3.0% refused, 0.0% denied",
			"login  enforce  5/1m   70      30       30.0%  203.0.113.7", "and 3 more rules"}},
		{"stats login", []string{"login, enforce, 5/1m: 30 of 100 requests refused (30.0%), about 12 keys",
			"\n203.0.113.7  2       27       90.0%"}},
		{"stats --json", []string{`"rules":[{"name":"login"`}},
	} {
		r := here.run(t, strings.Fields(c.args)...)
		for _, want := range c.want {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("weir %s: no %q in %v", c.args, want, r)
			}
		}
	}
}

func TestExitCodesOfStats(t *testing.T) {
	t.Parallel()
	sick := reports(t, false)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"stats --check --server " + sick, 3, "! n1: the store is not responding"},
		{"stats --check --json --server " + sick, 3, `"store_up":false`},
		{"stats --server " + sick, 0, "! n1"},
		{"stats other --server " + sick, 1, "404 Not Found"},
		{"stats --node unknown --server " + sick, 1, "404 Not Found"},
		{"stats --server http://127.0.0.1:1", 1, "http://127.0.0.1:1 is not responding"},
		{"stats --last 25h", 2, "--last is 25h0m0s; allowed: 1m to 24h"},
		{"stats --check login", 2, `--check is about the whole server, but the argument "login" names a rule`},
		{"stats --watch 1ms", 2, "--watch is 1ms; allowed: 1s to 1h"},
	} {
		r := call{}.run(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("weir %s: want exit %d and %q: %v", c.args, c.code, c.want, r)
		}
	}
}

func TestWatchedStatsEndWithTheServer(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(telemetry.Overview{})
	}))
	t.Cleanup(server.Close)
	r := call{}.run(t, "stats", "--watch", "1s", "--server", server.URL)
	if r.code != 1 || strings.Count(r.out, "MOST REFUSED KEY") != 2 || strings.Contains(r.out, "\x1b") {
		t.Errorf("want two tables and exit 1: %v", r)
	}
}
