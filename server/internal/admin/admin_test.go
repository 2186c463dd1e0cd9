package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/webtest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
	"github.com/weirproject/weir/server/internal/openapitest"
	"github.com/weirproject/weir/server/internal/web"
)

const fileRules = `
rules:
  - {name: per-ip, key: [client.ip], limit: fixed_window 100/1h}
  - {name: jobs, key: [user], limit: concurrency 5 ttl 1m, on_store_error: deny}
  - {name: all, limit: [fixed_window 5/1h, sliding_log 9/1d]}
`

// guessed is a rule that bans and has a candidate.
const guessed = "name: guess\nmatch: {path: /guess}\nkey: [client.ip]\nlimit: fixed_window 2/1h\n" +
	"candidate: {limit: fixed_window 1/1h}\nban: {after: 1 refusals within 1m, for: 1h}\n"

// A world is a server of rules as weir serve wires it.
type world struct {
	t      testing.TB
	server admin.Server
	log    *strings.Builder

	compiled *atomic.Int32
}

func newWorld(t testing.TB, text string, backend ledger.Backend, from ruleset.Source) *world {
	t.Helper()
	return newWorldOf(t, text, backend, from, memstore.New())
}

func newWorldOf(t testing.TB, text string, backend ledger.Backend, from ruleset.Source, store weir.Store) *world {
	t.Helper()
	file, err := rules.Parse("weir.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(&rules.File{})
	if err != nil {
		t.Fatal(err)
	}
	local := memstore.New()
	g, err := gate.New(store, set, gate.WithLocal(local))
	if err != nil {
		t.Fatal(err)
	}
	compiled := new(atomic.Int32)
	compile := func(f *rules.File) (*rules.Set, error) {
		compiled.Add(1)
		return rules.Compile(f)
	}
	layers := []ruleset.Layer{{Name: "config", Source: ruleset.Fixed(file)}, {Name: "ledger", Source: from,
		AllowEmpty: true}}
	keeper, err := ruleset.NewManager(layers, g.Swap, ruleset.WithCompile(compile))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	if err := keeper.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	log := new(strings.Builder)
	return &world{t, admin.Server{Ledger: ledger.New(backend), Layer: "ledger", Status: keeper.Status, Gate: g,
		Compile: compile, Audit: func(context.Context, *telemetry.AuditFilter, int) ([]telemetry.AuditRecord, error) { return nil, nil },
		Reload: keeper.Reload, Mistakes: mistakes, Log: slog.New(slog.NewTextHandler(log, nil))}, log, compiled}
}

func mistakes(err error) []web.Mistake { return []web.Mistake{{Message: err.Error()}} }

func memory(t testing.TB) *world {
	t.Helper()
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, fileRules, backend, backend.Source())
}

// start serves the API, and validates its answers against its document.
func (w *world) start(access ...web.Config) *client {
	w.t.Helper()
	server := w.server
	server.ResetRule = func(_ context.Context, _ *rules.Rule, cursor string) (int, string, error) {
		if cursor == "wrong" {
			return 0, "", &weir.InputError{Field: "cursor", Given: cursor, Allowed: "another"}
		}
		return map[string]int{"": 500, "a 7": 3}[cursor], map[string]string{"": "a 7"}[cursor], nil
	}
	server.Services = func() []servermetrics.Service {
		down := servermetrics.Address{URL: "http://10.0.0.1:8080", Weight: 3, EjectedFor: 9.5, Failures: 5, Ejections: 1}
		return []servermetrics.Service{{Name: "order", Addresses: []servermetrics.Address{down}, Retries: 2}}
	}
	server.Routes = func() []servermetrics.Route {
		return []servermetrics.Route{{Name: "pay", Service: "order", Requests: 4, Forwarded: 3, Gone: 1}}
	}
	for _, config := range access {
		var err error
		if server.Access, err = web.NewAccess(config); err != nil {
			w.t.Fatal(err)
		}
	}
	h, err := admin.New(server)
	if err != nil {
		w.t.Fatal(err)
	}
	witness := openapitest.New(w.t, h, admin.Document(), 401, 403, 404, 405)
	s := httptest.NewServer(witness)
	w.t.Cleanup(s.Close)
	return &client{t: w.t, url: s.URL, witness: witness}
}

type client struct {
	t       testing.TB
	url     string
	witness *openapitest.Witness
}

// An answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	text   string
}

// ask sends METHOD PATH with a body and fields by turns name and value.
func (c *client) ask(line, body string, fields ...string) *answer {
	c.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	r, err := http.NewRequest(method, c.url+admin.Prefix+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		kind := "application/yaml"
		if body[0] == '{' {
			kind = "application/json"
		}
		r.Header.Set("Content-Type", kind)
	}
	response, text := webtest.Send(c.t, http.DefaultClient, r, fields...)
	return &answer{c.t, response.StatusCode, response.Header, text}
}

// has fails the test unless the answer has a status and says these.
func (a *answer) has(status int, texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.text, text) {
			a.t.Errorf("%d %s has no %s", a.status, a.text, text)
		}
	}
	if a.status != status {
		a.t.Errorf("%d %s; want %d", a.status, a.text, status)
	}
	return a
}

const (
	isNew = "If-None-Match"
	match = "If-Match"
)

func login(limit string) string {
	return "name: login\nkey: [client.ip]\nlimit: " + limit + "\n"
}

func TestWritesNeedRevision(t *testing.T) {
	c := memory(t).start()
	for _, line := range []string{"PUT rules/login", "DELETE rules/login", "POST rules/login/enable",
		"POST rules/login/disable", "POST rules/login/rollback?to=1", "DELETE exceptions/block-1"} {
		body := ""
		if strings.HasPrefix(line, "PUT") {
			body = login("5/1m")
		}
		c.ask(line, body).has(428, "If-None-Match: * for what is new")
		c.ask(line, body, match, "12").has(400, "If-Match is")
		c.ask(line, body, match, `W/"12"`).has(400)
		c.ask(line, body, match, `"0"`).has(400)
		c.ask(line, body, match, "*").has(400)
		c.ask(line, body, isNew, `"1"`).has(400)
		c.ask(line, body, match, `"1"`, isNew, "*").has(400)
	}
	c.ask("PUT rules/login", login("5/1m"), match, `"3"`).has(412, "is not there, not at 3", `"current":0`)
	if a := c.ask("PUT rules/login", login("5/1m"), isNew, "*").has(200, `"revision": 1`,
		`"in_force": true`); a.header.Get("ETag") != `"1"` {
		t.Errorf("%v", a.header)
	}
	if a := c.ask("PUT rules/login", login("6/1m"), isNew, "*").has(412, "is at revision 1, but was to be a new one",
		`"current":1`); a.header.Get("ETag") != `"1"` {
		t.Errorf("%v", a.header)
	}
	c.ask("PUT rules/login", login("6/1m"), match, `"1"`).has(200, `"revision": 2`)
	c.ask("DELETE rules/login", "", match, `"1"`).has(412, `"current":2`)
	c.ask("POST rules/login/rollback?to=1", "", match, `"1"`).has(412, `"current":2`)
	c.ask("POST rules/login/rollback?to=1&dry_run=true", "").has(200, `"counts": "kept"`, `"in_force": false`)
	c.ask("GET rules/login", "").has(200, `"revision": 2`)
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	c := memory(t).start()
	put := func(body string, fields ...string) *answer {
		return c.ask("PUT rules/login", body, append([]string{isNew, "*"}, fields...)...)
	}
	put("name: login\nlimt: 5/1m\n").has(422, `"line":2`, `unknown field \"limt\"`)
	put("name: other\nlimit: 5/1m\n").has(422, `the name under which it is kept, login`)
	put(login("5/1m") + "--- \n").has(422)
	put(`{"name":"login","limit":"5/1m","limit":"6/1m"}`).has(422)
	put("name: login\nlimit: 5/1m", "Content-Type", "text/plain").has(415,
		"allowed: application/yaml, application/json")
	put("name: login\nlimit: 5/1m", "Content-Encoding", "gzip").has(415)
	put(strings.Repeat("#", ledger.MaxDocument+1)).has(413)
	put("").has(415)
	// It is right by itself, and not beside a rule of the file.
	c.ask("PUT rules/all.2", "name: all.2\nlimit: 5/1m\n", isNew, "*").has(422, `taken by a limit`)
	c.ask("PUT rules/login?dry_run=maybe", login("5/1m")).has(400, "dry_run")
	c.ask("PUT rules/login?why=a&why=b", login("5/1m"), isNew, "*").has(400, "is given twice")
	c.ask("PUT rules/login?when=now", login("5/1m"), isNew, "*").has(400, "there are: why, dry_run")
	c.ask("GET rules?x=1", "").has(400, "there are: none")
	c.ask("PUT rules/login?why="+strings.Repeat("x", 1025), login("5/1m"), isNew, "*").has(422, "bytes of why is 1025")
	c.ask("POST rules/login/rollback", "", isNew, "*").has(400, "to which revision")
	c.ask("POST rules/login/rollback?to=01", "", isNew, "*").has(400, "a whole number from 0")
	c.ask("POST rules/login/rollback?to=1", "", isNew, "*").has(404)
	c.ask("GET history?most=1001", "").has(422, "1 to 1000")
	c.ask("GET nowhere", "").has(404, "GET /v1/admin/openapi.json")
	if a := c.ask("PATCH rules/login", "").has(405); a.header.Get("Allow") != "DELETE, GET, PUT" {
		t.Errorf("%v", a.header)
	}
	exception := func(body string) *answer { return c.ask("POST exceptions", body, isNew, "*") }
	exception(`{"kind":"block","values":["10.0.0.1"],"for":"1h","until":"x"}`).has(400, "until")
	exception(`{"kind":"block","values":["10.0.0.1"],"for":"1h","for":"2h"}`).has(400)
	exception(`{"kind":"block","values":["10.0.0.1"],"for":"long"}`).has(422,
		"a time with its unit, such as 30m, 2h or 7d")
	exception(`{"kind":"block","values":["10.0.0.1"],"for":"1ms"}`).has(422, "an exception ends by itself")
	exception(`{"kind":"block","values":["*"],"by":"user","for":"1h"}`).has(422, "it is for everybody")
	exception(`{"kind":"block","values":["user-42"],"for":"1h"}`).has(422, "allowed: an address")
	exception(`{"kind":"override","rule":"gone","values":["x"],"limit":["1/1m"],"for":"1h"}`).has(422,
		"one that is in force")
	exception(`{"kind":"override","rule":"all","values":["x"],"limit":["1/1m"],"for":"1h"}`).has(422,
		"the rule has no key")
	c.ask("GET keys?rule=gone", "").has(404)
	c.ask("GET keys?rule=per-ip", "").has(422, "one for each component")
	c.ask("GET keys?rule=per-ip&value=10.0.0.1&value=x", "").has(422)
	if list := c.ask("GET rules", "").text; strings.Contains(list, "login") {
		t.Errorf("something was changed: %s", list)
	}
}

func TestExceptions(t *testing.T) {
	w := memory(t)
	c := w.start()
	const block = `{"kind":"block","values":["203.0.113.0/24"],"for":"1h","why":"scanning"}`
	made := c.ask("POST exceptions", block, isNew, "*").has(200, `"in_force": true`, `"why": "scanning"`)
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(made.text), &e); err != nil {
		t.Fatal(err)
	}
	c.ask("POST exceptions", block, isNew, "*").has(412, `"current":1`)
	c.ask("POST exceptions", strings.Replace(block, "1h", "2h", 1), match, made.header.Get("ETag")).has(200,
		`"revision": 2`)
	c.ask("GET exceptions/"+e.ID, "").has(200, `"left": "2h0m0s"`)
	c.ask("POST exceptions", `{"kind":"override","rule":"per-ip","values":["10.0.0.1"],"limit":["fixed_window `+
		`1/1h"],"for":"1h"}`, isNew, "*").has(200)
	c.ask("GET keys?rule=per-ip&value=10.0.0.1", "").has(200, `"limit": "fixed_window 1/1h"`, `"remaining": 1`)
	// A rule that is changed so that the exception fits no more: it says so.
	c.ask("PUT rules/per-ip", "name: per-ip\nkey: [client.ip, method]\nlimit: 5/1m\n", isNew, "*").has(200,
		`"counts": "anew"`)
	c.ask("GET exceptions", "").has(200, `"waiting": "overrides[0].key has 1 values`)
	c.ask("DELETE exceptions/"+e.ID, "", match, `"1"`).has(412)
	c.ask("DELETE exceptions/"+e.ID+"?why=us", "", match, `"2"`).has(200)
	c.ask("DELETE exceptions/"+e.ID, "", match, `"2"`).has(404)
	c.ask("GET history?name="+e.ID, "").has(200, `"what": "delete"`, `"why": "us"`, `"exception"`)
	for _, want := range []string{"an exception was made", "why=scanning", "an exception was ended", "why=us"} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, w.log)
		}
	}
}

// TestExceptionsCompileNothing: compiling is what takes long with many rules.
func TestExceptionsCompileNothing(t *testing.T) {
	w := memory(t)
	c := w.start()
	before := w.compiled.Load()
	for i, body := range []string{
		`{"kind":"block","values":["203.0.113.7"],"for":"1h"}`,
		`{"kind":"allow","values":["198.51.100.7"],"rule":"per-ip","for":"1h"}`,
		`{"kind":"override","rule":"per-ip","values":["10.0.0.1"],"limit":["fixed_window 1/1h"],"for":"1h"}`,
	} {
		var e struct{ ID string }
		made := c.ask("POST exceptions", body, isNew, "*").has(200, `"in_force": true`)
		if err := json.Unmarshal([]byte(made.text), &e); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			c.ask("DELETE exceptions/"+e.ID, "", match, made.header.Get("ETag")).has(200, `"in_force": true`)
		}
	}
	if n := w.compiled.Load() - before; n != 0 {
		t.Errorf("4 changes of exceptions compiled the rules %d times", n)
	}
}

// TestResetOfARule: it is recorded once, whatever the number of requests.
func TestResetOfARule(t *testing.T) {
	w := memory(t)
	c := w.start()
	c.ask("POST rules/jobs/reset?why=test", "").has(200, `"keys": 500`, `"next": "a 7"`)
	if answer := c.ask("POST rules/jobs/reset?why=test&cursor=a+7", "").has(200, `"rule": "jobs"`, `"keys": 3`); strings.Contains(answer.text, "next") {
		t.Error(answer.text)
	}
	if history := c.ask("GET history?name=jobs", "").has(200, `"what": "reset all keys"`).text; strings.Count(history, "reset all keys") != 1 {
		t.Error(history)
	}
	c.ask("POST rules/nobody/reset", "").has(404)
}

func TestKeys(t *testing.T) {
	w := memory(t)
	c := w.start()
	var v gate.Verdict
	for range 3 {
		if err := w.server.Gate.Decide(t.Context(), &rules.Request{Path: "/"}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}
	c.ask("GET keys?rule=all", "").has(200, `"remaining": 2`, `"remaining": 6`, `"retry_after": 0`)
	c.ask("POST keys/reset?rule=all&why=test", "").has(200, `"remaining": 5`, `"remaining": 9`)
	c.ask("GET keys?rule=jobs&value=ann", "").has(200, `"remaining": 5`)
	c.ask("GET history?name=all", "").has(200, `"what": "reset"`, `"name": "all"`, `"key": "all"`, `"why": "test"`,
		`"who": "somebody at 127.0.0.1"`)
	if !strings.Contains(w.log.String(), "a key was reset") {
		t.Error(w.log)
	}
}

// TestDurationsOfExceptions: they are written as in limits.
func TestDurationsOfExceptions(t *testing.T) {
	c := memory(t).start()
	for i, test := range []struct {
		last   string
		status int
		want   string
	}{
		{"90s", 200, `"left": "1m30s"`}, {"1h30m", 200, `"left": "1h30m0s"`}, {"7d", 200, `"left": "168h0m0s"`},
		{"2w", 200, `"left": "336h0m0s"`},
		{"366d", 200, ""}, {"367d", 422, "an exception ends by itself"}, {"53w", 422, "ends by itself"},
		{"9223372036854775807d", 422, "ends by itself"},
		{"0d", 422, "such as 30m"}, {"-1d", 422, ""}, {"d", 422, ""}, {"1.5d", 422, ""}, {"1", 422, ""}, {"", 422, ""},
	} {
		c.ask("POST exceptions", fmt.Sprintf(`{"kind":"block","values":["10.0.0.%d"],"for":%q}`, i, test.last), isNew,
			"*").has(test.status, test.want)
	}
}

// TestOverrideCannotTakeRuleName: it is refused before it stands in the ledger, where it would
// do nothing.
func TestOverrideCannotTakeRuleName(t *testing.T) {
	c := memory(t).start()
	c.ask("PUT rules/per-ip.2", "name: per-ip.2\nlimit: 7/1m\n", isNew, "*").has(200)
	const two = `{"kind":"override","rule":"per-ip","values":["10.0.0.1"],"limit":["5/1m","9/1h"],"for":"1h"}`
	c.ask("POST exceptions", two, isNew, "*").has(422, `the limit would be called \"per-ip.2\"`)
	c.ask("GET exceptions", "").has(200, `"exceptions": []`)
	c.ask("DELETE rules/per-ip.2", "", match, `"1"`).has(200)
	c.ask("POST exceptions", two, isNew, "*").has(200, `"in_force": true`)
}

// TestRuleOutsideLedger: the refusal says where it is, and what can be done.
func TestRuleOutsideLedger(t *testing.T) {
	c := memory(t).start()
	c.ask("DELETE rules/per-ip", "", isNew, "*").has(404, `rule \"per-ip\" is from config, and not in the ledger: `+
		`disable it`)
	c.ask("POST rules/per-ip/enable", "", match, `"1"`).has(404, "is from config, and not in the ledger")
	c.ask("POST rules/nobody/disable", "", match, `"1"`).has(404, "the ledger does not have it")
	c.ask("POST rules/nobody/disable", "", isNew, "*").has(404, "the ledger does not have it")
}

// TestOperatorsDisableARuleOfAFile: also where another rule of the ledger has replaced it.
func TestOperatorsDisableARuleOfAFile(t *testing.T) {
	w := memory(t)
	c := w.start()
	refused := func() (n int) {
		var v gate.Verdict
		request := rules.Request{Client: netip.MustParseAddr("192.0.2.1")}
		for _, name := range []string{"per-ip", "all"} {
			if err := w.server.Gate.Decide(t.Context(), &request, gate.Ask{}, &v); err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(v.Matched(), func(r *rules.Rule) bool { return r.Name() == name }) {
				n++
			}
		}
		return n
	}
	c.ask("POST rules/per-ip/disable?why=noise", "", isNew, "*").has(200, "per-ip: removed", `"in_force": true`)
	if n := refused(); n != 1 {
		t.Errorf("%d of per-ip and all are in force", n)
	}
	c.ask("GET rules/per-ip", "").has(200, `"from": "config"`, `"enabled": false`, `"in_force": false`,
		`"fixed_window 100/1h"`, `"why": "noise"`)
	c.ask("GET rules", "").has(200, `"why": "noise"`, `"fixed_window 100/1h"`)
	c.ask("POST rules/per-ip/disable", "", match, `"1"`).has(200, `"revision": 2`) // it is already
	c.ask("POST rules/per-ip/enable", "", match, `"2"`).has(200, "per-ip: that of config is in force again",
		`"in_force": true`)
	if n := refused(); n != 2 {
		t.Errorf("%d of per-ip and all are in force", n)
	}
	c.ask("GET rules/per-ip", "").has(200, `"from": "config"`, `"in_force": true`)

	c.ask("PUT rules/per-ip", "name: per-ip\nkey: [client.ip]\nlimit: fixed_window 5/1h\n", isNew, "*").has(200)
	c.ask("POST rules/per-ip/disable", "", match, `"4"`).has(200, "per-ip: removed")
	if n := refused(); n != 1 {
		t.Errorf("%d of per-ip and all are in force: that of the file is not to come back", n)
	}
	c.ask("DELETE rules/per-ip", "", match, `"5"`).has(200, "that of config is in force again")
	if n := refused(); n != 2 {
		t.Errorf("%d of per-ip and all are in force", n)
	}
}

// TestRuleAnswerIsConsistent: its ETag, its YAML and its limit are of one revision while two
// operators raise the limit by one. So none of their changes is lost.
func TestRuleAnswerIsConsistent(t *testing.T) {
	c := memory(t).start()
	text := func(n int) string { return fmt.Sprintf("name: login\nkey: [client.ip]\nlimit: %d/1h\n", n) }
	c.ask("PUT rules/login", text(1000), isNew, "*").has(200)
	type rule struct {
		YAML    string
		Limit   []string
		InForce bool `json:"in_force"`
	}
	read := func() (n int, etag string) {
		got := c.ask("GET rules/login", "").has(200)
		var r rule
		if err := json.Unmarshal([]byte(got.text), &r); err != nil || len(r.Limit) != 1 {
			t.Fatal(err, got.text)
		}
		if _, err := fmt.Sscanf(r.Limit[0], "%d/1h", &n); err != nil || r.YAML != text(n) {
			t.Fatalf("the limit is %s in %s", r.Limit, got.text)
		}
		return n, got.header.Get("ETag")
	}
	var made atomic.Int32
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for range 25 {
				n, etag := read()
				switch got := c.ask("PUT rules/login", text(n+1), match, etag); got.status {
				case 200:
					made.Add(1)
				case 412:
				default:
					t.Error(got.text)
				}
			}
		})
	}
	done := make(chan bool)
	go func() {
		writers.Wait()
		close(done)
	}()
	for reading := true; reading; {
		read()
		select {
		case <-done:
			reading = false
		default:
		}
	}
	if n, _ := read(); n != 1000+int(made.Load()) {
		t.Errorf("the limit is %d after %d changes", n, made.Load())
	}
}

// TestInvalidUTF8IsReplaced: such values are shown as well as JSON can: a header's value, and so a key, need
// not be.
func TestInvalidUTF8IsReplaced(t *testing.T) {
	c := memory(t).start()
	c.ask("GET keys?rule=jobs&value=a%ff", "").has(200, `"remaining": 5`, "a\uFFFD")
	c.ask("POST keys/reset?rule=jobs&value=a%ff", "").has(200, "a\uFFFD")
	c.ask("PUT rules/%ff", login("5/1m"), isNew, "*").has(422, "the name under which it is kept, \uFFFD")
}

// TestBannedKey: what is left of it is no use, and a reset does not change that.
func TestBannedKey(t *testing.T) {
	w := memory(t)
	c := w.start()
	c.ask("PUT rules/guess", guessed, isNew, "*").has(200)
	if a := c.ask("GET keys?rule=guess&value=203.0.113.7", "").has(200); strings.Contains(a.text, "banned_for") {
		t.Error(a.text)
	}
	w.guess(3)
	c.ask("GET keys?rule=guess&value=203.0.113.7", "").has(200, `"remaining": 0`, `"banned_for": 3`)
	c.ask("POST keys/reset?rule=guess&value=203.0.113.7", "").has(200, `"remaining": 2`, `"banned_for": 3`)
	c.ask("POST bans/lift?rule=guess&key=203.0.113.7", "").has(200, `"was_banned": true`)
	if a := c.ask("GET keys?rule=guess&value=203.0.113.7", "").has(200); strings.Contains(a.text, "banned_for") {
		t.Error(a.text)
	}
}

func tokens() web.Config {
	return web.Config{Loopback: true, Tokens: []web.Token{
		{Name: "ann", Secret: "a-token-that-writes", Write: true},
		{Name: "viewer", Secret: "a-token-that-reads"},
	}}
}

func TestTokens(t *testing.T) {
	w := memory(t)
	w.reports()
	c := w.start(tokens())
	const writes, reads = "Bearer a-token-that-writes", "Bearer a-token-that-reads"
	item := map[string]string{"name": "login", "id": "block-1"}
	for path, methods := range c.witness.Doc.Paths.Map() {
		path = strings.TrimPrefix(path, admin.Prefix)
		for name, value := range item {
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		}
		for method := range methods.Operations() {
			line := method + " " + path
			if a := c.ask(line, "").has(401); a.header.Get("WWW-Authenticate") != `Bearer realm="weir"` {
				t.Errorf("%v", a.header)
			}
			c.ask(line, "", "Authorization", "Bearer a-token-that-write").has(401)
			c.ask(line, "", "Authorization", "Basic YTpi").has(401)
			c.ask(line, "", "Authorization", writes, "Host", "evil.example").has(403, "host is")
			if method != "GET" {
				c.ask(line, "", "Authorization", writes, "Sec-Fetch-Site", "cross-site").has(403, "another site")
			}
			if a := c.ask(line, "", "Authorization", reads); (a.status == 403) != (method != "GET" && path != "diff" &&
				path != "explain") {
				t.Errorf("%s by who may only read: %d %s", line, a.status, a.text)
			}
		}
	}
	c.ask("GET nowhere", "").has(401) // who may not come in is not told what there is
	put := func(actor string) *answer {
		return c.ask("PUT rules/login", login("5/1m"), isNew, "*", "Authorization", writes, "X-Weir-Actor", actor)
	}
	put("Zoë").has(400, "printable")
	put(strings.Repeat("x", 101)).has(400)
	put("carol").has(200)
	c.ask("GET history", "", "Authorization", reads).has(200, `"who": "carol by ann"`)
}

// TestActorHeaderIgnoredWithoutAuth, because nothing proves it.
func TestActorHeaderIgnoredWithoutAuth(t *testing.T) {
	c := memory(t).start()
	c.ask("PUT rules/login", login("5/1m"), isNew, "*", "X-Weir-Actor", "the-boss").has(200)
	c.ask("GET rules/login", "").has(200, `"who": "somebody at 127.0.0.1"`)
}

// A gone backend is one that does not answer.
type gone struct{ ledger.Backend }

var errGone = errors.New("dial tcp 10.1.2.3:6379: refused")

func (gone) Read(context.Context) (*ledger.Snapshot, error)              { return nil, errGone }
func (gone) Get(context.Context, string) (ledger.Change, error)          { return ledger.Change{}, errGone }
func (gone) Commit(context.Context, ledger.Change, int64) (int64, error) { return 0, errGone }
func (gone) Page(_ context.Context, _, _ int64) ([]ledger.Change, bool, error) {
	return nil, false, errGone
}

func (gone) Restore(context.Context, ledger.Restoration) (*ledger.Restored, error) {
	return nil, errGone
}

// A lossy backend has lost changes as soon as it is told so.
type lossy struct {
	*ledger.Memory
	lost atomic.Bool
}

func (l *lossy) Commit(ctx context.Context, c ledger.Change, seen int64) (int64, error) {
	if l.lost.Load() {
		return 0, &ledger.LostError{Ledger: "weir:rules", Seen: 7}
	}
	return l.Memory.Commit(ctx, c, seen)
}

func (l *lossy) Restore(context.Context, ledger.Restoration) (*ledger.Restored, error) {
	return &ledger.Restored{Names: []string{"login", "exception:block-1"}, Lost: 7, Revision: 9}, nil
}

// losses are the answers of a ledger that has lost changes.
func losses(t *testing.T) *client {
	memory, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	backend := &lossy{Memory: memory}
	w := newWorld(t, fileRules+"  - {"+strings.ReplaceAll(strings.TrimSpace(guessed), "\n", ", ")+"}\n", backend,
		memory.Source())
	c := w.start()
	c.ask("PUT rules/login", login("5/1m"), isNew, "*").has(200)
	c.ask("PUT rules/off", strings.Replace(login("5/1m"), "login", "off", 1), isNew, "*").has(200)
	c.ask("POST rules/off/disable", "", match, `"2"`).has(200)
	made := c.ask("POST exceptions", `{"kind":"block","values":["10.0.0.1"],"for":"1h"}`, isNew, "*").has(200)
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(made.text), &e); err != nil {
		t.Fatal(err)
	}
	w.guess(3)
	backend.lost.Store(true)
	const how = "weir rules restore"
	c.ask("PUT rules/login", login("6/1m"), match, `"1"`).has(409, how)
	for _, line := range []string{"POST rules/login/disable", "POST rules/login/rollback?to=1", "DELETE rules/login"} {
		c.ask(line, "", match, `"1"`).has(409, how)
	}
	c.ask("POST rules/off/enable", "", match, `"3"`).has(409, how)
	c.ask("POST exceptions", `{"kind":"block","values":["10.0.0.2"],"for":"1h"}`, isNew, "*").has(409, how)
	c.ask("DELETE exceptions/"+e.ID, "", match, made.header.Get("ETag")).has(409, how)
	c.ask("POST keys/reset?rule=guess&value=203.0.113.7", "").has(409, how)
	c.ask("POST bans/lift?rule=guess&value=203.0.113.7", "").has(409, how)
	c.ask("POST rules/guess/reset", "").has(409, how)
	c.ask("POST restore?dry_run=true", "").has(200, `"block-1"`, `"lost": 7`)
	return c
}

// A mortal store does not answer any more when it is dead.
type mortal struct {
	weir.Store
	dead atomic.Bool
}

func (m *mortal) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64,
	error) {
	if m.dead.Load() {
		return 0, fmt.Errorf("%w: %w", weir.ErrUnavailable, errGone)
	}
	return m.Store.Decide(ctx, claims, times, decisions)
}

// broken is a world whose ledger does not answer, and whose store has died after somebody
// was banned.
func broken(t testing.TB) *world {
	t.Helper()
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	store := &mortal{Store: memstore.New()}
	w := newWorldOf(t, fileRules+"  - {"+strings.ReplaceAll(strings.TrimSpace(guessed), "\n", ", ")+"}\n", gone{},
		backend.Source(), store)
	w.guess(3)
	store.dead.Store(true)
	return w
}

// guess has somebody guess so often.
func (w *world) guess(times int) {
	w.t.Helper()
	var v gate.Verdict
	for range times {
		if err := w.server.Gate.Decide(w.t.Context(), &rules.Request{Path: "/guess",
			Client: netip.MustParseAddr("203.0.113.7")}, gate.Once, &v); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestOutages: the log says what the caller is not told.
func TestOutages(t *testing.T) {
	w := broken(t)
	outages(w.start())
	if !strings.Contains(w.log.String(), "10.1.2.3") {
		t.Errorf("the log is\n%s", w.log)
	}
}

// TestOperationsOnKeysNeedHistory: the store answers, and the ledger does not.
func TestOperationsOnKeysNeedHistory(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, fileRules+"  - {"+strings.ReplaceAll(strings.TrimSpace(guessed), "\n", ", ")+"}\n", gone{},
		backend.Source())
	c := w.start()
	w.guess(3)
	c.ask("POST keys/reset?rule=guess&value=203.0.113.7", "").has(503)
	c.ask("GET keys?rule=guess&value=203.0.113.7", "").has(200, `"remaining": 0`)
	c.ask("POST bans/lift?rule=guess&value=203.0.113.7", "").has(503)
	c.ask("GET bans", "").has(200, `"key": "client.ip=11:203.0.113.7"`)
}

func outages(c *client) {
	for _, line := range []string{"GET rules", "GET rules/login", "DELETE rules/login", "POST rules/login/enable",
		"POST rules/login/disable", "POST rules/login/confirm", "POST rules/all/reset",
		"POST rules/login/rollback?to=1", "GET history", "GET exceptions", "GET exceptions/block-1",
		"DELETE exceptions/block-1", "GET keys?rule=all", "POST keys/reset?rule=all",
		"POST rules/login/promote", "GET bans", "POST bans/lift?rule=guess&key=client.ip%3D11%3A203.0.113.7"} {
		if a := c.ask(line, "", match, `"1"`).has(503); strings.Contains(a.text, "10.1.2.3") {
			c.t.Errorf("%s tells where the ledger is: %s", line, a.text)
		}
	}
	c.ask("PUT rules/login", login("5/1m"), match, `"1"`).has(503)
	c.ask("POST restore", "").has(503)
	c.ask("POST exceptions", `{"kind":"block","values":["10.0.0.1"],"for":"1h"}`, isNew, "*").has(503)
}

// TestAnswersMatchOpenAPIDocument brings about every status of every operation.
func TestAnswersMatchOpenAPIDocument(t *testing.T) {
	w := memory(t)
	c, guarded := w.start(), memory(t).start(tokens())
	broken := broken(t).start()
	outages(broken)
	everyStatus(t, w, c, guarded)
	c.witness.SawAll(guarded.witness, broken.witness, losses(t).witness, reloads(t).witness,
		reports(t).witness, brokenReports(t).witness, trial(t).witness)
}

func everyStatus(t *testing.T, w *world, c, guarded *client) {
	c.ask("GET services", "").has(200, `"name": "order"`, `"ejected_for": 9.5`, `"forwarded": 3`, `"gone": 1`)
	c.ask("PUT rules/login?why=night", login("5/1m"), isNew, "*").has(200)
	c.ask("PUT rules/login", login("6/1m"), match, `"7"`).has(412)
	c.ask("PUT rules/login", login("6/1m")).has(428)
	c.ask("PUT rules/login", "x", isNew, "*", "Content-Type", "text/plain").has(415)
	c.ask("PUT rules/login", strings.Repeat("#", ledger.MaxDocument+1), isNew, "*").has(413)
	c.ask("PUT rules/login", "name: x", isNew, "*").has(422)
	c.ask("POST diff", "rules: [{name: per-ip, key: [user], limit: 5/1m}, {name: renamed, limit: [fixed_window "+
		"5/1h, sliding_log 9/1d]}]").
		has(200, `"kind": "renamed"`, `"was": "all"`, `"counts": "anew"`, `"kind": "removed"`)
	c.ask("POST diff?rule=login", login("7/1m")).has(200, `"kind": "changed"`)
	c.ask("POST diff", "rules: {}").has(422)
	c.ask("POST diff", strings.Repeat("#", rules.MaxFile+1)).has(413)
	c.ask("POST diff", "x", "Content-Type", "text/plain").has(415)
	for _, line := range []string{"GET rules", "GET rules/login", "GET rules/per-ip", "GET history",
		"GET history?name=login", "GET exceptions", "GET keys?rule=all", "POST keys/reset?rule=all",
		"GET openapi.json"} {
		c.ask(line, "").has(200)
	}
	at := `"1"`
	for _, line := range []string{"POST rules/login/disable", "POST rules/login/enable",
		"POST rules/login/rollback?to=1", "DELETE rules/login"} {
		at = c.ask(line, "", match, at).has(200).header.Get("ETag")
		name, rest, _ := strings.Cut(line, "login")
		c.ask(line, "", match, `"99"`)
		c.ask(line, "").has(428)
		c.ask(name+"nobody"+rest, "", match, `"99"`)
	}
	c.ask("PUT rules/login", login("5/1m"), isNew, "*").has(200)
	c.ask("DELETE rules/login", "", match, `"99"`).has(412)
	c.ask("DELETE rules/nobody", "", isNew, "*").has(404)
	c.ask("GET rules/nobody", "").has(404)
	c.ask("GET history?most=2000", "").has(422)
	c.ask("GET keys?rule=nobody", "").has(404)
	c.ask("GET keys?rule=per-ip", "").has(422)
	c.ask("POST keys/reset?rule=nobody", "").has(404)
	c.ask("POST keys/reset?rule=per-ip", "").has(422)
	c.ask("POST rules/all/reset", "").has(200)
	c.ask("POST rules/all/reset?cursor=wrong", "").has(422)
	c.ask("POST rules/nobody/reset", "").has(404)
	const block = `{"kind":"block","rule":"per-ip","by":"user","values":["x"],"for":"1h"}`
	made := c.ask("POST exceptions", block, isNew, "*").has(200)
	c.ask("POST exceptions", block, isNew, "*").has(412)
	c.ask("POST exceptions", block).has(428)
	c.ask("POST exceptions", block, isNew, "*", "Content-Type", "text/plain").has(415)
	c.ask("POST exceptions", "{"+strings.Repeat(" ", ledger.MaxDocument)+"}", isNew, "*").has(413)
	c.ask("POST exceptions", `{}`, isNew, "*").has(422)
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(made.text), &e); err != nil {
		t.Fatal(err)
	}
	one := "exceptions/" + e.ID
	c.ask("GET "+one, "").has(200)
	c.ask("DELETE "+one, "").has(428)
	c.ask("DELETE "+one, "", match, `"99"`).has(412)
	c.ask("DELETE "+one, "", match, made.header.Get("ETag")).has(200)
	c.ask("DELETE "+one, "", match, made.header.Get("ETag")).has(404)
	c.ask("GET "+one, "").has(404)
	candidates(w, c)
	c.ask("POST reload", "").has(200, `"sources"`, `"name": "config"`)
	c.ask("POST restore", "").has(422, "one in Redis")
	c.ask("POST bans/lift?rule=nobody&key=x", "").has(404)
	c.ask("POST bans/lift?rule=guess", "").has(422)
	c.ask("POST bans/lift?rule=guess&key=nobody", "").has(422, "allowed: an address")
	c.ask("POST bans/lift?rule=guess&key=client.ip%3D8:203.0.113.7", "").has(422)
	item := strings.NewReplacer("{name}", "login", "{id}", e.ID)
	for path, methods := range c.witness.Doc.Paths.Map() {
		for method := range methods.Operations() {
			line := method + " " + item.Replace(strings.TrimPrefix(path, admin.Prefix))
			c.ask(line+"?nonsense=1", "").has(400)
			guarded.ask(line, "").has(401)
			guarded.ask(line, "", "Host", "evil.example").has(403)
		}
	}
}

// TestFirstEditOfAFilesRuleIsTakenBack: the history has what the file says as revision 0, with the numbers.
func TestFirstEditOfAFilesRuleIsTakenBack(t *testing.T) {
	c := memory(t).start()
	const change = "per-ip: limit fixed_window 100/1h -> fixed_window 5/1h; counts are kept"
	c.ask("PUT rules/per-ip", "name: per-ip\nkey: [client.ip]\nlimit: fixed_window 5/1h\n", isNew, "*").has(200, change)
	c.ask("GET history?name=per-ip", "").has(200, change, `"revision": 0`, `"who": "config"`, "limit: fixed_window 100/1h")
	const back = "that of config is in force again: limit fixed_window 5/1h -> fixed_window 100/1h"
	c.ask("POST rules/per-ip/rollback?to=0&dry_run=true", "").has(200, back)
	c.ask("POST rules/per-ip/rollback?to=0", "", match, `"7"`).has(412)
	c.ask("POST rules/per-ip/rollback?to=0", "", match, `"1"`).has(200, back)
	c.ask("GET rules/per-ip", "").has(200, `"from": "config"`, "fixed_window 100/1h")
	c.ask("GET history?name=per-ip", "").has(200, "per-ip: limit fixed_window 5/1h -> fixed_window 100/1h; counts are kept")
	c.ask("POST rules/per-ip/rollback", "", isNew, "*").has(400, "say to which revision")
}

// TestEditRevertsUnlessConfirmed: it says when, and a confirmation that is too late says so.
func TestEditRevertsUnlessConfirmed(t *testing.T) { trial(t) }

func trial(t *testing.T) *client {
	c := memory(t).start()
	edit := func(limit string) string {
		return "name: per-ip\nkey: [client.ip]\nlimit: fixed_window " + limit + "\n"
	}
	c.ask("PUT rules/per-ip?revert_after=soon", edit("5/1h"), isNew, "*").has(400, "such as 30m, 2h or 7d")
	c.ask("PUT rules/per-ip?revert_after=1ms", edit("5/1h"), isNew, "*").has(422, "1s to 8784h")
	c.ask("PUT rules/per-ip?revert_after=30m", edit("5/1h"), isNew, "*").has(200, `"reverts": "`)
	for _, path := range []string{"GET rules", "GET rules/per-ip", "GET history"} {
		c.ask(path, "").has(200, `"reverts": "`)
	}
	c.ask("POST rules/per-ip/confirm", "").has(428)
	c.ask("POST rules/per-ip/confirm", "", match, `"7"`).has(412)
	c.ask("POST rules/per-ip/confirm?why=calm", "", match, `"1"`).has(200, `"revision": 2`, `"in_force": true`)
	c.ask("POST rules/per-ip/confirm", "", match, `"2"`).has(422, "this one stays as it is")
	c.ask("POST rules/login/confirm", "", match, `"2"`).has(404)
	c.ask("GET history", "").has(200, `"what": "confirm"`, `"why": "calm"`)
	c.ask("PUT rules/per-ip?revert_after=1s", edit("9/1h"), match, `"2"`).has(200)
	for !strings.Contains(c.ask("GET rules/per-ip", "").text, `"revision": 4`) {
		time.Sleep(time.Millisecond)
	}
	c.ask("GET rules/per-ip", "").has(200, "fixed_window 5/1h")
	c.ask("POST rules/per-ip/confirm", "", match, `"3"`).has(409, "it was taken back: make it again")
	c.ask("GET history", "").has(200, `"what": "revert"`, "nobody confirmed revision 3")
	return c
}

// TestDeleteRestoresRuleOfFile that the rule of the ledger had replaced.
func TestDeleteRestoresRuleOfFile(t *testing.T) {
	c := memory(t).start()
	c.ask("PUT rules/per-ip", "name: per-ip\nkey: [client.ip]\nlimit: fixed_window 5/1h\n", isNew, "*").has(200,
		"per-ip: limit fixed_window 100/1h -> fixed_window 5/1h; counts are kept")
	c.ask("GET rules/per-ip", "").has(200, `"from": "ledger"`)
	c.ask("DELETE rules/per-ip", "", match, `"1"`).has(200, "per-ip: that of config is in force again",
		`"in_force": true`)
	c.ask("GET rules/per-ip", "").has(200, `"from": "config"`, "fixed_window 100/1h")
}

// reloads are the answers of a reload whose sources fail.
func reloads(t *testing.T) *client {
	w := memory(t)
	layer := ruleset.LayerStatus{Name: "config", Err: errors.New("rules[0]: no limit")}
	w.server.Reload = func(context.Context) error { return layer.Err }
	w.server.Status = func() *ruleset.Status { return &ruleset.Status{Layers: []ruleset.LayerStatus{layer}} }
	c := w.start()
	c.ask("POST reload", "").has(422, "some rules are invalid", `"message":"rules[0]: no limit"`)
	layer.Down = true
	c.ask("POST reload", "").has(503, "some rules could not be read in time")
	layer = ruleset.LayerStatus{Name: "config", LeftOut: 2, Warning: errors.New("two are wrong")}
	c.ask("POST reload", "").has(422, "invalid rules that are not in force: 2", "two are wrong")
	return c
}

// TestNotInForce: a change that this server cannot put in force is told as such.
func TestNotInForce(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	deaf := newWorld(t, fileRules, backend, ruleset.Fixed(&rules.File{})).start() // it listens to something else
	deaf.ask("PUT rules/login", login("5/1m"), isNew, "*").has(200, `"revision": 1`, `"in_force": false`,
		"has not read it from the ledger yet")
}

func TestDisabledRulesAreShown(t *testing.T) {
	c := memory(t).start()
	off := "name: login\ndescription: Not now\nlabels: {team: x}\nenabled: false\nkey: client.ip\nlimit: 1/1h\n"
	c.ask("PUT rules/login", off, isNew, "*").has(200)
	for _, path := range []string{"GET rules", "GET rules/login"} {
		c.ask(path, "").has(200, `"description": "Not now"`, `"team": "x"`, `"enabled": false`)
	}
	c.ask("POST explain", `{"text":"203.0.113.9"}`).has(200, `"skipped":"the rule is disabled"`)
}
