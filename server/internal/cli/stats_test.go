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
	money := telemetry.RuleSummary{Name: "money", Mode: "enforce", Limits: []string{"calendar 500000000/month"},
		Units:  &telemetry.Units{Name: "USD", Scale: 1_000_000, Estimates: true, Reserved: 20_000},
		Counts: telemetry.Counts{Passed: 9, Spent: 2_600_000, Returned: 100_000, Estimated: 5_000_000, Settled: 2_500_000}}
	spenders := []telemetry.KeyRate{{Key: "user=3:ann", Passed: 8, Units: 500_000}, {Key: "user=3:bob", Passed: 1, Units: 2_000_000}}
	overview := telemetry.Overview{From: at, To: at.Add(time.Hour), Step: time.Minute, Total: telemetry.Counts{Passed: 970, Refused: 30},
		Rules: []telemetry.RuleSummary{login, money}, More: 3, Nodes: []telemetry.Node{{Name: "n1", StoreUp: healthy}}}
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
	answer("rules/money", &telemetry.RuleReport{RuleSummary: money, Distinct: 2, Top: spenders})
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
			"30.0%  203.0.113.7", "and 3 more rules", "\nmoney  2.5 USD  0.02 USD      2.0 ×"}},
		{"stats money", []string{"2.5 USD spent, 0.02 USD reserved now", "\nbob               2 USD    80.0%\nann               0.5 USD  20.0%"}},
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
