//go:build unix

package cli_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// TestExplainTellsOfExceptions: of a running server, of a ledger in Redis and of one in a
// file; which one decides, until when, and why.
func TestExplainTellsOfExceptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := write(t, dir, "rules.yaml", "rules:\n  - {name: per-ip, key: [client.ip], limit: fixed_window 1000/1h}\n  - {name: login, match: {path: /login}, key: [client.ip], limit: 5/1m}\n")
	for name, ledger := range map[string]string{"in Redis": redistest.Start(t).URL(), "in a file": filepath.Join(dir, "ledger")} {
		t.Run(name, func(t *testing.T) {
			p := call{}.serve(t, "--config", rules, "--ledger", ledger)
			ann := operate(t, p)
			ann.does("block", "203.0.113.0/24", "--for", "1h", "--why", "scanning")
			ann.does("allow", "198.51.100.7", "--for", "1h")
			ann.does("allow", "198.51.100.8", "--rule", "login", "--for", "1h", "--why", "a test of ours")
			ann.does("override", "set", "198.51.100.8", "--rule", "per-ip", "--limit", "fixed_window 7/1h", "--for", "1h", "--why", "too much")
			for _, how := range [][]string{{"--server", p.at("http")}, {"--config", rules, "--ledger", ledger}} {
				told := func(client string, wants ...string) {
					t.Helper()
					r := call{dir: dir}.run(t, append(append([]string{"explain"}, how...), "--client", client, "http://example.com/login")...)
					for _, want := range wants {
						if r.code != 0 || !regexp.MustCompile(want).MatchString(r.out) {
							t.Errorf("explain %s of %s: want %s:\n%v", strings.Join(how, " "), client, want, r)
						}
					}
				}
				const until = ` until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`
				told("203.0.113.9", `\n  block-\w+ blocks it`+until+`: scanning\n`, `: blocked by the exception block-\w+\n`)
				told("198.51.100.7", `\n  allow-\w+ lets it pass`+until+`\n`, `: allowed by the exception allow-\w+\n`)
				told("198.51.100.8", `\n  override-\w+ gives the key of per-ip its limits`+until+`: too much\n`, `fixed_window 7/1h`,
					`\n  allow-\w+ exempts it from login`+until+`: a test of ours\n`, `login is not checked: on its allow list`)
			}
			trusting := call{}.serve(t, "--config", rules, "--ledger", ledger+map[bool]string{true: "2"}[name == "in a file"], "--trusted-proxies", "127.0.0.0/8")
			r := call{dir: dir}.run(t, "explain", "--server", trusting.at("http"), "--header", "X-Forwarded-For=203.0.113.9", "--header", "X-Forwarded-For=127.0.0.2", "--json", "http://example.com/")
			if r.code != 0 || !strings.Contains(r.out, `"client": "203.0.113.9"`) || strings.Contains(r.out, "is ignored") {
				t.Errorf("behind a trusted proxy: %v", r)
			}
			r = call{}.run(t, "explain", "--server", p.at("http"), "--json", "--client", "203.0.113.9", "http://example.com/")
			var e struct {
				Exceptions []struct {
					ID, Kind, Why string
					Until         time.Time
				}
			}
			if err := json.Unmarshal([]byte(r.out), &e); err != nil || len(e.Exceptions) != 1 || e.Exceptions[0].Kind != "block" || e.Exceptions[0].Why != "scanning" || e.Exceptions[0].Until.IsZero() {
				t.Errorf("%v: %v", err, r)
			}
			ann.does("block", "192.0.2.1", "--for", "1h") // explain has let the file be
			p.end()
		})
	}
}

// TestExplainSeesWhatTheServerSees: the order of descriptors, and the route, alone and of a running server.
func TestExplainSeesWhatTheServerSees(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", `
services: [{name: order, addresses: "http://127.0.0.1:1"}]
routes: [{name: pay, path: /pay/**, method: POST, service: order}]
rules:
  - {name: paid, limit: 5/1h, match: {route: pay, service: order}}
  - {name: ordered, limit: 5/1h, match: {descriptor_keys: [zone, area]}}
`)
	p := call{dir: dir}.serve(t, "--config", file, "--gateway", "127.0.0.1:0")
	for _, how := range [][]string{{"--config", file}, {"--server", p.at("http")}} {
		for _, test := range []struct{ args, want, not string }{
			{"--descriptor zone=a --descriptor area=b", "ordered", ""},
			{"--descriptor area=b --descriptor zone=a", "no rule limits it", ""},
			{"--method POST --path //pay/1", "route   pay (chosen by host, path and method; set by --route)\n  service order\n", "but"},
			{"--method POST --path /pay/1", "paid", "no rule limits it"},
			{"--method GET --path /pay/1", "no rule limits it", "route   "},
			{"--method POST --path /pay/1 --route mine", "route   mine\n", "paid "},
			{"--method POST --path /pay/1 --service mine", "service mine\n", "route   "},
		} {
			r := call{dir: dir}.run(t, slices.Concat([]string{"explain"}, how, strings.Fields(test.args))...)
			if r.code != 0 || !strings.Contains(r.out, test.want) || test.not != "" && strings.Contains(r.out, test.not) {
				t.Errorf("%s %s: want %q, not %q:\n%v", how[0], test.args, test.want, test.not, r)
			}
		}
	}
	if r := (call{dir: dir}).run(t, "explain", "--config", file, "--path", "/x"); !strings.Contains(r.out, "no route matches") {
		t.Error(r)
	}
	p.end()
}

// TestCheckNamesWhoSeesNoResponse: rules with count_if count every request of these front ends.
func TestCheckNamesWhoSeesNoResponse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", "rules: [{name: a, limit: sliding_log 5/1h, count_if: {status: 401}}]")
	r := call{dir: dir}.run(t, "check", file)
	for _, want := range []string{"count_if of a", "forward-auth", "ext_authz", "Envoy's rate limit service", "/v1/decide", "RESP"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("want %q: %v", want, r)
		}
	}
}

// TestExplainReadsBodies: of --body, as the gateway reads them.
func TestExplainReadsBodies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", "rules:\n  - {name: user, match: {path: /login, method: POST}, key: [body.username lower], on_missing: deny, limit: 5/1m}\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--path", "/login", "--body", "username=Ann&password=x"}, "body.username=3:ann"},
		{[]string{"--path", "/login", "--body", `{"username": "Ann"}`}, "body.username=3:ann"},
		{[]string{"http://a.example/login", "-d", "username=Bob"}, "body.username=3:bob"},
		{[]string{"--path", "/login", "--method", "POST"}, "the key of user is missing"},
		{[]string{"--path", "/login", "--header", "Content-Type=text/plain", "--body", "username=Ann"}, "invalid request: body username"},
	} {
		r := call{dir: dir}.run(t, append([]string{"explain", "--config", "rules.yaml"}, tt.args...)...)
		if !strings.Contains(r.out, tt.want) {
			t.Errorf("%v: want %s:\n%v", tt.args, tt.want, r)
		}
	}
}

// TestExplainReadsRateLimitRequests: recorded lines and requests alone, of rules and of a running server; nothing is charged.
func TestExplainReadsRateLimitRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "weir.yaml", `
rules:
  - {name: free, match: {service: edge, descriptor_keys: [plan=free, user]}, key: [service, entry.1, entry.2], limit: fixed_window 2/1h epoch}
  - {name: gold, match: {service: edge, descriptor_keys: [plan=gold, user]}, key: [service, entry.1, entry.2], limit: 100/1h}
  - {name: none, match: {service: edge, descriptor_keys: [plan=none]}, limit: none}
`)
	line := `{"case":"x","answer":{"overallCode":"OK"},"request":{"domain":"edge","descriptors":[{"entries":[{"key":"plan","value":"free"},{"key":"user","value":"7"}]}]}}`
	write(t, dir, "line.json", line)
	write(t, dir, "two.json", `{"domain":"edge","hitsAddend":2,"descriptors":[{"entries":[{"key":"plan","value":"gold"},{"key":"user","value":"7"}],"hits_addend":"3"},
  {"entries":[{"key":"plan","value":"none"}]}, {"entries":[{"key":"plan","value":"free"},{"key":"place","value":"x\u001b[2J"}]}]}`)
	write(t, dir, "bad.json", `{"domain":"edge","descriptors":[{"entry":[]}]}`)
	p := call{dir: dir}.serve(t, "--config", file)
	for _, how := range [][]string{{"--config", file}, {"--server", p.at("http")}} {
		for range 3 { // it charges nothing
			r := call{dir: dir}.run(t, append([]string{"explain", "--ratelimit-request", "line.json"}, how...)...)
			for _, want := range []string{"edge: plan=free, user=7\n", "free  fixed_window 2/1h epoch ", "  2 left  edge: plan=free, user=7\n", "\n  OK: within the limits; free is the closest\n"} {
				if r.code != 0 || !strings.Contains(r.out, want) {
					t.Fatalf("%s: want %q: %v", how[0], want, r)
				}
			}
		}
		r := call{dir: dir}.run(t, append([]string{"explain", "--ratelimit-request", "two.json"}, how...)...)
		for _, want := range []string{", costs 3 ", "\n  OK: within the limits; gold is the closest\n",
			`"edge: plan=free, place=x\x1b[2J"`, `"descriptors are plan=free, place=x\x1b[2J, not plan=free, user"`, ")\n  OVER_LIMIT: on the deny list of none\n"} {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("%s: want %q: %v", how[0], want, r)
			}
		}
		var e struct {
			What, Code  string
			Descriptors []struct{ Descriptor, Code, Outcome string }
		}
		r = call{dir: dir, in: line}.run(t, append([]string{"explain", "--ratelimit-request", "-", "--json"}, how...)...)
		if err := json.Unmarshal([]byte(r.out), &e); err != nil || e.What != "ratelimit_request" || e.Code != "OK" || len(e.Descriptors) != 1 || e.Descriptors[0].Outcome != "passed" {
			t.Errorf("%s: %v: %v", how[0], err, r)
		}
		if r = (call{dir: dir}).run(t, append([]string{"explain", "--ratelimit-request", "-"}, how...)...); r.code != 1 || !strings.Contains(r.err, "it is empty") {
			t.Errorf("%s: %v", how[0], r)
		}
		r = call{dir: dir}.run(t, append([]string{"explain", "--ratelimit-request", "bad.json"}, how...)...)
		if r.code != 1 || !strings.Contains(r.err, `unknown field "entry"`) || !strings.Contains(r.err, "allowed: one in proto3 JSON, such as {") {
			t.Errorf("%s: %v", how[0], r)
		}
	}
	if r := (call{dir: dir}).run(t, "explain", "--config", file, "--ratelimit-request", "line.json", "http://a.example/"); r.code != 2 || !strings.Contains(r.err, "give one of them") {
		t.Error(r)
	}
	p.end()
}

// TestExplainShowsTheLimitOfAService: what it is at a start, and what it is now at a server's gateway.
func TestExplainShowsTheLimitOfAService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := write(t, dir, "rules.yaml", `
rules: []
services: [{name: search, addresses: http://127.0.0.1:1, concurrency: {adaptive: gradient, min: 8, max: 90,
  reserve: {by: header.X-Criticality, classes: {critical: 0%, batch: 50%}}}}]
routes: [{name: all, service: search}]
server: {trusted_proxies: [127.0.0.1]}
`)
	p := call{}.serve(t, "--config", rules, "--gateway", "127.0.0.1:0")
	for want, how := range map[string][]string{
		"8 at a start; class batch waits at 4; --server URL shows": {"--config", rules},
		"now 8, with 0 in flight and 0 that wait; class batch":     {"--server", p.at("http")},
	} {
		r := call{dir: dir}.run(t, append(append([]string{"explain"}, how...), "http://example.com/")...)
		if !strings.Contains(r.out, "limit of service search: 8 to 90 requests at once, by latency") ||
			!strings.Contains(r.out, want) {
			t.Errorf("explain %v: want %q:\n%v", how, want, r)
		}
	}
	var e struct {
		Concurrency struct {
			Live      bool
			Room, Max int
			Class     string
		}
	}
	r := call{}.run(t, "explain", "--server", p.at("http"), "--json", "--header", "X-Criticality=critical", "http://example.com/")
	if err := json.Unmarshal([]byte(r.out), &e); err != nil || !e.Concurrency.Live || e.Concurrency.Room != 8 ||
		e.Concurrency.Max != 90 || e.Concurrency.Class != "critical" {
		t.Errorf("%v: %+v in %v", err, e, r)
	}
}
