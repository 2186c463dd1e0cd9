package admin_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
)

// fixedReports answers with fixed reports.
type fixedReports struct {
	err     error
	queries chan telemetry.Query // of Overview
	rules   int
}

func (f *fixedReports) Overview(_ context.Context, q telemetry.Query) (*telemetry.Overview, error) {
	select {
	case f.queries <- q:
	default:
	}
	o := &telemetry.Overview{Step: time.Minute, Series: []telemetry.Point{{P99: time.Millisecond}},
		Rules: []telemetry.RuleSummary{}, Nodes: []telemetry.Node{{Name: "a", StoreP99: time.Second}},
		Alerts: []telemetry.Alert{{Name: "degraded"}}}
	for range f.rules {
		o.Rules = append(o.Rules, telemetry.RuleSummary{Name: "login", Limits: []string{"5/1m"},
			WorstKey: &telemetry.KeyRate{Key: "203.0.113.7", Refused: 3}})
	}
	return o, f.err
}

func (f *fixedReports) Rule(_ context.Context, name string, _ telemetry.Query) (*telemetry.RuleReport, error) {
	if name != "login" {
		return nil, f.err
	}
	return &telemetry.RuleReport{RuleSummary: telemetry.RuleSummary{Name: name, Limits: []string{"5/1m"}},
		Top:      []telemetry.KeyRate{},
		Compared: &telemetry.Comparison{Both: 4}}, f.err
}

func (f *fixedReports) Key(_ context.Context, key string, _ telemetry.Query) (*telemetry.KeyHistory, error) {
	return &telemetry.KeyHistory{Rules: []telemetry.KeyUnder{{Rule: key, Series: []telemetry.Point{}}}}, f.err
}

func (f *fixedReports) Nodes(context.Context) ([]telemetry.Node, error) { return nil, f.err }

func (f *fixedReports) Marks(context.Context, telemetry.Query) ([]telemetry.Mark, error) {
	return []telemetry.Mark{{Kind: "rules", Text: "login: limit changed"}}, f.err
}

func (f *fixedReports) Recent(filter telemetry.Filter, _ int) []telemetry.Sample {
	return []telemetry.Sample{{Rule: "per-ip", Key: "203.0.113.9", RequestID: "req-1", Outcome: "refused"},
		{Rule: filter.Rule, Key: filter.Key, Outcome: "passed", Wait: time.Second}}
}

// reports gives the server telemetry.
func (w *world) reports() { w.server.Telemetry = &fixedReports{} }

// reports are the answers of the operations that read telemetry, and of explain.
func reports(t *testing.T) *client {
	w := memory(t)
	w.server.Telemetry = &fixedReports{rules: 1}
	c := w.start()
	c.ask("GET telemetry/overview?from=15m&most=20", "").has(200, `"step_ns":60000000000`, `"p99_ns":1000000`)
	c.ask("GET telemetry/rules/login", "").has(200, `"newly_refused":0`)
	c.ask("GET telemetry/rules/nobody", "").has(404, "had requests in the last 24h")
	c.ask("GET telemetry/nodes", "").has(200, `{"nodes":[]}`)
	c.ask("GET audit", "").has(200, `{"records":[]`)
	c.ask("GET telemetry/key?key=ann&from=24h", "").has(200, `"rule":"ann"`)
	c.ask("GET telemetry/key", "").has(400, "allowed: 1 to 512")
	c.ask("GET telemetry/marks", "").has(200, "limit changed")
	c.ask("GET telemetry/recent?rule=login&outcome=passed", "").has(200, `"wait_ns":1000000000`)
	c.ask("GET telemetry/recent?request=req-1", "").has(200, `"request_id":"req-1"`)
	for line, allowed := range map[string]string{
		"GET telemetry/overview?from=yesterday":                                       "such as 15m",
		"GET telemetry/overview?until=-5m":                                            "such as 15m",
		"GET telemetry/overview?from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "a time before 2026-01-01",
		"GET telemetry/overview?most=1001":                                            "allowed: 1 to 1000",
		"GET telemetry/recent?outcome=lost":                                           "passed, refused, denied or failed",
		"GET telemetry/recent?most=0":                                                 "a whole number from 1",
	} {
		c.ask(line, "").has(400, allowed)
	}
	explains(c)
	return c
}

func explains(c *client) {
	c.ask("POST explain", `{"text":"203.0.113.7"}`).has(200, `"what":"address"`, `"rule":"per-ip"`)
	c.ask("POST explain", `{}`).has(422, "ratelimit_request, one of them")
	c.ask("POST explain", `{"text":"`+strings.Repeat("x", 513)+`"}`).has(422, "at most 512")
	c.ask("POST explain", `{"ratelimit_request":"{\"domain\":\"edge\",\"descriptors\":[{\"entries\":[{\"key\":\"a\",\"value\":\"1\"}]}]}"}`).has(200, `"what":"ratelimit_request"`, `"code":"OK"`, `"descriptor":"edge: a=1"`)
	c.ask("POST explain", `{"ratelimit_request":"{}"}`).has(422, `domain is \"none\"`)
	c.ask("POST explain", `{"request":{"client":"nowhere"}}`).has(422, "allowed: an address")
	c.ask("POST explain", `{"request":{"path":"/a%2fb"}}`).has(200, `"reason":"bad_input"`, `"status":400`)
	c.ask("POST explain", `{"request":{"path":"a"}}`).has(422, "begins with a slash")
	c.ask("POST explain", `{"text":"x"}`, "Content-Type", "text/plain").has(415)
	c.ask("POST explain", `{"text":"`+strings.Repeat("x", ledger.MaxDocument)+`"}`).has(413)
}

func brokenReports(t *testing.T) *client {
	w := memory(t)
	w.server.Telemetry = &fixedReports{err: errGone}
	w.server.Audit = func(context.Context, *telemetry.AuditFilter, int) ([]telemetry.AuditRecord, error) {
		return nil, errGone
	}
	c := w.start()
	c.ask("GET audit", "").has(503)
	for _, path := range []string{"overview", "rules/login", "nodes", "marks", "key?key=ann"} {
		c.ask("GET telemetry/"+path, "").has(503)
	}
	return c
}

// TestTelemetryThatIsOff: the answer says how to turn it on.
func TestTelemetryThatIsOff(t *testing.T) {
	memory(t).start().ask("GET telemetry/overview", "").has(403, "server.telemetry")
}

// TestLargeAnswersAreCompressed for clients that accept it, and only for these.
func TestLargeAnswersAreCompressed(t *testing.T) {
	w := memory(t)
	queries := make(chan telemetry.Query, 10)
	w.server.Telemetry = &fixedReports{rules: 1000, queries: queries}
	h, err := admin.New(w.server)
	if err != nil {
		t.Fatal(err)
	}
	most := 7 // another for each request: answers to the same one are shared
	for accepted, coding := range map[string]string{"": "", "br, gzip;q=0.5": "gzip", "gzip;q=0": "", "GZIP": "gzip"} {
		most++
		r := httptest.NewRequest("GET", "/v1/admin/telemetry/overview?from=24h&until=1h&node=a&most="+strconv.Itoa(most), nil)
		r.Header.Set("Accept-Encoding", accepted)
		out := httptest.NewRecorder()
		h.ServeHTTP(out, r)
		if got := out.Header().Get("Content-Encoding"); got != coding {
			t.Fatalf("%q is answered with %q", accepted, got)
		}
		body := out.Body
		var o telemetry.Overview
		if coding == "" {
			err = json.NewDecoder(body).Decode(&o)
		} else if z, wrong := gzip.NewReader(body); wrong == nil {
			err = json.NewDecoder(z).Decode(&o)
		}
		if err != nil || len(o.Rules) != 1000 {
			t.Errorf("%q: %d rules, %v", accepted, len(o.Rules), err)
		}
		q := <-queries
		if q.Node != "a" || q.Most != most || q.To.Sub(q.From).Round(time.Minute) != 23*time.Hour {
			t.Errorf("the query is %+v", q)
		}
	}
}

// explained asks for an explanation.
func (c *client) explained(body string) *admin.Explanation {
	c.t.Helper()
	var e admin.Explanation
	if err := json.Unmarshal([]byte(c.ask("POST explain", body).has(200).text), &e); err != nil {
		c.t.Fatal(err)
	}
	return &e
}

// TestExplainShowsWhyAKeyIsRefused: the rule that refuses comes first, with its limit and wait, its ban and the
// exceptions with their author; asking charges nothing.
// TestExplainShowsExceptions of a value, and of a key that has it: of an address also those of its networks.
func TestExplainShowsExceptions(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	c := newWorld(t, fileRules, backend, backend.Source()).start()
	for _, values := range []string{`["203.0.113.0/28"]`, `["2001:db8::/32"]`, `["ann"],"by":"user"`} {
		c.ask("POST exceptions", `{"kind":"block","for":"1h","values":`+values+`}`, isNew, "*").has(200)
	}
	for text, want := range map[string]string{
		"203.0.113.7": "203.0.113.0/28", "client.ip=11:203.0.113.7": "203.0.113.0/28", "203.0.113.16": "", "203.0.0.0/8": "",
		"2001:db8::1": "2001:db8::/32", "client.ip=15:2001:db8:1::/64": "2001:db8::/32", "client.ip=12:2001:db9::/64": "",
		"ann": "ann", "user=3:ann": "ann", "client.ip=11:203.0.113.7 user=3:bob": "203.0.113.0/28", "anna": "",
	} {
		got := ""
		for _, x := range c.explained(`{"text":"` + text + `"}`).Exceptions {
			got += x.Values[0]
		}
		if got != want {
			t.Errorf("of %s there is %q, want %q", text, got, want)
		}
	}
}

func TestExplainShowsWhyAKeyIsRefused(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, fileRules+"  - {"+strings.ReplaceAll(strings.TrimSpace(guessed), "\n", ", ")+"}\n", backend,
		backend.Source())
	w.server.Telemetry = &fixedReports{}
	c := w.start()
	w.guess(2)
	c.ask("POST exceptions", `{"kind":"override","rule":"per-ip","values":["203.0.113.7"],"limit":["fixed_window 50/1h"],`+
		`"for":"1h","why":"launch"}`, isNew, "*", "X-Weir-Actor", "ann").has(200)
	for range 2 { // the first changed nothing
		e := c.explained(`{"text":"203.0.113.7"}`)
		first := e.Rules[0]
		if first.Rule != "guess" || first.Binding == nil || *first.Binding != 0 || first.Limits[0].Remaining != 0 ||
			*first.Limits[0].RetryAfter <= 0 || first.BannedFor != 0 {
			t.Fatalf("%+v", first)
		}
		if len(e.Rules) != 3 || e.Rules[1].Rule != "per-ip" || e.Rules[1].Limits[0].Limit != "fixed_window 50/1h" {
			t.Errorf("%+v", e.Rules)
		}
		if len(e.Exceptions) != 1 || e.Exceptions[0].Why != "launch" || !e.Exceptions[0].InForce {
			t.Errorf("%+v", e.Exceptions)
		}
	}
	w.guess(1)
	if e := c.explained(`{"text":"client.ip=11:203.0.113.7"}`); e.What != "key" || e.Rules[0].BannedFor == 0 {
		t.Errorf("%+v", e)
	}
	if e := c.explained(`{"text":"req-1"}`); e.What != "request_id" || len(e.Rules) != 1 || e.Rules[0].Rule != "per-ip" ||
		e.Rules[0].Values[0] != "203.0.113.9" {
		t.Errorf("%+v", e)
	}
	e := c.explained(`{"request":{"path":"//guess","client":"203.0.113.7","headers":{"x-user":"a"}}}`)
	if e.Outcome != "refused" || e.Reason != "banned" || e.Rule != "guess" || !e.Rules[3].Decides ||
		e.Rules[3].BannedFor == 0 || len(e.Exceptions) != 1 {
		t.Errorf("%+v", e)
	}
	if e.Answer.Status != 429 || e.Answer.Headers["Retry-After"] == "" || e.Answer.Headers["X-Request-Id"] != "" {
		t.Errorf("%+v", e.Answer)
	}
	e = c.explained(`{"request":{"path":"/guess/","client":"203.0.113.7"}}`)
	if len(e.NotMatched) != 1 || e.NotMatched[0].Rule != "guess" || !strings.Contains(e.NotMatched[0].Why[0], "path is /guess/") {
		t.Errorf("%+v", e.NotMatched)
	}
}

// TestExplainKeepsTheOrderOfDescriptors of a list, and of an object.
func TestExplainKeepsTheOrderOfDescriptors(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	c := newWorld(t, "rules: [{name: ordered, limit: 5/1h, match: {descriptor_keys: [zone, area], descriptor: {zone: a}}}]",
		backend, backend.Source()).start()
	for text, want := range map[string]string{
		`[{"name":"zone","value":"a"},{"name":"area","value":"b"}]`: "ordered",
		`[{"name":"area","value":"b"},{"name":"zone","value":"a"}]`: "",
		`{"zone":"a","area":"b"}`:                                   "ordered",
		`{"area":"b","zone":"a"}`:                                   "",
	} {
		if e := c.explained(`{"request":{"descriptors":` + text + `}}`); e.Rule != want {
			t.Errorf("%s: rule %q, want %q", text, e.Rule, want)
		}
	}
	for text, status := range map[string]int{
		`{"zone":"a","zone":"b"}`: 400, `{"zone":1}`: 400, `{"zone":{}}`: 400, `"zone"`: 400, `["zone"]`: 400,
		`[{"name":"zone","valu":"a"}]`: 400, `[{"name":"zone"},{"name":"zone"}]`: 422,
	} {
		c.ask("POST explain", `{"request":{"descriptors":`+text+`}}`).has(status)
	}
}

// TestAuditIsSearched by the ID of a request, the latest first; where nothing is found the answer says since when.
func TestAuditIsSearched(t *testing.T) {
	w := memory(t)
	w.server.Audit = nil
	w.start().ask("GET audit?request_id=r1", "").has(403, "--audit redis")
	var asked telemetry.AuditFilter
	w.server.Audit = func(_ context.Context, f *telemetry.AuditFilter, most int) ([]telemetry.AuditRecord, error) {
		asked = *f
		if f.RequestID != "r1" || most != 7 {
			return nil, nil
		}
		at := time.Date(2026, 11, 24, 7, 0, 0, 0, time.UTC)
		return []telemetry.AuditRecord{{At: at, Outcome: "refused", RequestID: "r1"}, {At: at.Add(time.Second), Outcome: "ban"}}, nil
	}
	c := w.start()
	c.ask("GET audit?request_id=r1&key=203.0.113.7&rule=login&method=POST&path=/a*&from=2h&most=7", "").has(200,
		`{"records":[{"at":"2026-11-24T07:00:01Z"`, `"request_id":"r1"`)
	if asked.Key != "203.0.113.7" || asked.Rule != "login" || asked.Method+asked.Path != "POST/a*" || time.Since(asked.Since) < 2*time.Hour {
		t.Errorf("%+v", asked)
	}
	c.ask("GET audit?request_id=r9", "").has(200, `{"records":[],"from":"2`)
	if time.Since(asked.Since) < 24*time.Hour {
		t.Errorf("%+v", asked)
	}
	c.ask("GET audit?from=yesterday", "").has(400, "such as 15m")
}

// TestExplainWithoutStore still lists the rules with what decides meanwhile, and says what is missing.
func TestExplainWithoutStore(t *testing.T) {
	e := broken(t).start().explained(`{"text":"203.0.113.7"}`)
	if len(e.Rules) != 3 || len(e.Problems) != 1 || e.Rules[0].Rule != "jobs" || e.Rules[0].Degraded != rules.RefuseAll {
		t.Errorf("%+v", e)
	}
	for _, one := range e.Rules {
		if one.Skipped != gate.Unasked || one.Degraded == "" {
			t.Errorf("%+v", one)
		}
	}
}

// TestExplainWithoutStoreShowsLocalCounts: a key that this server refuses by itself is shown as refused.
func TestExplainWithoutStoreShowsLocalCounts(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	store := &mortal{Store: memstore.New()}
	w := newWorldOf(t, "rules: [{"+strings.ReplaceAll(strings.TrimSpace(guessed), "\n", ", ")+"}]", gone{}, backend.Source(), store)
	store.dead.Store(true)
	c := w.start()
	one := c.explained(`{"text":"203.0.113.7"}`).Rules[0]
	if one.Degraded != rules.Local || len(one.Limits) != 1 || one.Limits[0].Remaining != 2 || *one.Limits[0].RetryAfter != 0 {
		t.Errorf("before its requests: %+v", one)
	}
	w.guess(2)
	if one = c.explained(`{"text":"203.0.113.7"}`).Rules[0]; *one.Limits[0].RetryAfter == 0 || one.BannedFor != 0 {
		t.Errorf("after those that fit: %+v", one)
	}
	e := c.explained(`{"request":{"path":"/guess","client":"203.0.113.7"}}`)
	if one = e.Rules[0]; e.Outcome != "refused" || one.Degraded != rules.Local || *one.Limits[0].RetryAfter == 0 {
		t.Errorf("its next request: %+v", e)
	}
	w.guess(1)
	if one = c.explained(`{"text":"203.0.113.7"}`).Rules[0]; one.BannedFor == 0 {
		t.Errorf("after its refusal: %+v", one)
	}
}

// TestExplainIsBounded: of many rules it shows those that matter.
func TestExplainIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 100 {
		text.WriteString("  - {name: r" + string(rune('a'+i/26)) + string(rune('a'+i%26)) +
			", key: [client.ip], limit: fixed_window 1/1h, match: {path: /" + string(rune('a'+i/26)) +
			string(rune('a'+i%26)) + "}}\n")
	}
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, text.String(), backend, backend.Source())
	c := w.start()
	var v gate.Verdict
	r := &rules.Request{Path: "/dv", Client: netip.MustParseAddr("203.0.113.7")}
	if err := w.server.Gate.Decide(t.Context(), r, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	if e := c.explained(`{"text":"203.0.113.7"}`); len(e.Rules) != 64 || e.More != 36 || e.Rules[0].Rule != "rdv" {
		t.Errorf("%d rules and %d more, first %s", len(e.Rules), e.More, e.Rules[0].Rule)
	}
}
