package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

const bodyRules = `
rules:
  - {name: tokens, preset: openai, match: {path: /v1/**}, key: [json.user], on_missing: anonymous, limit: fixed_window 1000/1m}
  - {name: large, match: {path: /v1/**, method: POST, json: {model: large}}, cost: 1, limit: fixed_window 2/1m}
  - {name: login, match: {method: POST, path: /login}, key: [body.username lower], on_missing: deny, limit: fixed_window 5/1m}
  - {name: tool, preset: mcp, match: {path: /mcp}, key: [mcp.tool], limit: fixed_window 1/1m}
`

func asked(path, json string) string {
	if json != "" {
		json = `,"json":` + json
	}
	return `{"request":{"method":"POST","path":"` + path + `"` + json + `}}`
}

// TestDecideReadsJSON: conditions, keys and costs are those of the JSON that the caller passes, and a mistake names it.
func TestDecideReadsJSON(t *testing.T) {
	s := serve(t, newWitness(t, handler(t, memstore.New(), bodyRules)))
	for _, test := range []struct {
		path, json string
		status     int
		want       []any
	}{
		{"/v1/chat", `{"max_tokens":93,"user":"ann","messages":[{"content":"two"}]}`, 200, []any{"checks.0.cost", 109, "checks.0.rule", "tokens", "checks.1", nil}},
		{"/v1/chat", `{"max_tokens":880,"user":"ann"}`, 200, []any{"checks.0.cost", 888, "remaining", 3}},
		{"/v1/chat", `{"max_tokens":900,"user":"ann"}`, 200, []any{"outcome", "refused"}},
		{"/v1/chat", `{"max_tokens":1,"model":"large","us\u0065r":"bob"}`, 200, []any{"checks.1.rule", "large", "checks.0.remaining", 986}},
		{"/v1/chat", `{"max_tokens":1,"user":["ann"]}`, 400, []any{"field", "body json.user"}},
		{"/v1/chat", `[{"max_tokens":1}]`, 400, nil},
		{"/v1/chat", `null`, 200, []any{"checks.0.cost", 1000}},
		{"/v1/chat", ``, 400, []any{"field", "request.json", "value", "missing"}},
		{"/v1/chat", `{"user":"a","user":"b"}`, 400, []any{"field", "request.json.user", "value", "a second one"}},
		{"/login", `{"username":"Ann"}`, 200, []any{"rule", "login", "remaining", 4}},
		{"/login", `{"username":"ann"}`, 200, []any{"rule", "login", "remaining", 3}},
		{"/login", `null`, 200, []any{"outcome", "denied"}},
		{"/login", `{"user":{"username":"ann"}}`, 200, []any{"outcome", "denied"}},
		{"/login", ``, 400, []any{"field", "request.json"}},
		{"/other", ``, 200, []any{"reason", "no_rule"}},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find"}}`, 200, []any{"rule", "tool", "outcome", "passed"}},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find"}}`, 200, []any{"rule", "tool", "outcome", "refused"}},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sort"}}`, 200, []any{"outcome", "passed"}},
		{"/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200, []any{"reason", "no_rule"}},
		{"/mcp", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 400, []any{"field", "request.json", "value", "a list"}},
		{"/mcp", `{"id":1}`, 400, []any{"field", "request.json", "value", "the message has no method"}},
		{"/mcp", ``, 400, []any{"field", "request.json", "value", "missing"}},
		{"/mcp", `null`, 400, []any{"field", "request.json", "value", "missing"}},
	} {
		s.post("/v1/decide", asked(test.path, test.json)).has(t, test.status, test.want...)
	}
	s.post("/v1/decide", `{"request":{"method":"POST","path":"/mcp","headers":{"Mcp-Name":"sort"},"json":`+
		`{"id":1,"method":"tools/call","params":{"name":"find"}}}}`).has(t, 400, "field", "request.json")
	s.post("/v1/decide", `{"requests":[`+asked("/v1/chat", "")+`,`+asked("/v1/chat", `{"max_tokens":2,"user":"eve"}`)+`]}`).has(t, 200,
		"answers.0.error.field", "request.json", "answers.1.checks.0.cost", 10)
	s.post("/v1/peek", asked("/v1/chat", `{"user":"eve"}`)).has(t, 200, "remaining", 990, "checks.0.key", "json.user=3:eve")
	s.post("/v1/decide", asked("/v1/chat", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)).has(t, 413)
}

// TestSettleReadsJSON: a reservation costs what the response says that the caller passes, once; rules that do not read it
// keep their cost.
func TestSettleReadsJSON(t *testing.T) {
	s := serve(t, newWitness(t, handler(t, memstore.New(), bodyRules)))
	left := 1000
	for i, test := range []struct {
		settle string // beside the token
		cost   int
		status int
		more   string // after a mistake
	}{
		{`"json":{"usage":{"total_tokens":17}}`, 17, 200, ""},
		{`"json":{"usage":{"total_tokens":170}},"actual":3`, 170, 200, ""},
		{`"json":[{"choices":[]},{"usage":{"total_tokens":5}},{"usage":null}],"status":200`, 5, 200, ""},
		{`"json":{"error":{"message":"busy"}},"status":429`, 0, 200, ""},
		{`"json":{"error":{"message":"busy"}}`, 7, 400, `"actual":7`},
		{`"json":{"usage":{"total_tokens":-1}},"status":200`, 8, 400, `"json":{"usage":{"total_tokens":8}}`},
		{`"json":null`, 50, 400, `"actual":50`},
		{`"status":200`, 58, 200, ""},
	} {
		reserved := s.post("/v1/reserve", asked("/v1/chat", `{"max_tokens":50,"user":"ann"}`))
		reserved.has(t, 200, "checks.0.cost", 58)
		token := reserved.at("reservation.token")
		text := fmt.Sprintf(`{"token":%q,%s}`, token, test.settle)
		a := s.post("/v1/settle", text)
		if a.has(t, test.status); test.status == 400 {
			a.has(t, 400, "field", "json")
			text = fmt.Sprintf(`{"token":%q,%s}`, token, test.more)
			s.post("/v1/settle", text).has(t, 200, "settled", true)
		}
		s.post("/v1/settle", text).has(t, 409)
		left -= test.cost
		s.post("/v1/peek", asked("/v1/chat", `{"user":"ann"}`)).has(t, 200, "remaining", left)
		if t.Failed() {
			t.Fatal(i, test.settle)
		}
	}
	reserved := s.post("/v1/reserve", asked("/v1/chat", `{"max_tokens":50,"user":"bob","model":"large"}`))
	s.post("/v1/settle", fmt.Sprintf(`{"token":%q,"json":{"usage":{"total_tokens":9}}}`, reserved.at("reservation.token"))).has(t, 200)
	s.post("/v1/peek", asked("/v1/chat", `{"user":"bob","model":"large"}`)).has(t, 200, "checks.0.remaining", 991, "checks.1.remaining", 1)
	reserved = s.post("/v1/reserve", asked("/login", `{"username":"ann"}`))
	s.post("/v1/settle", fmt.Sprintf(`{"token":%q,"json":{}}`, reserved.at("reservation.token"))).has(t, 200)
	s.post("/v1/peek", asked("/login", `{"username":"ann"}`)).has(t, 200, "remaining", 4)
}

// TestResponsesToBodies: with answer=http a refusal is that of the gateway, in the form of the API.
func TestResponsesToBodies(t *testing.T) {
	s := serve(t, newWitness(t, handler(t, memstore.New(), bodyRules)))
	limited, err := httplimit.ByRules(gatetest.New(t, memstore.New(), bodyRules), nil)
	if err != nil {
		t.Fatal(err)
	}
	middleware := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for path, json := range map[string]string{
		"/v1/chat": `{"max_tokens":900,"user":"ann"}`,
		"/mcp":     `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"find"}}`,
	} {
		for range 2 {
			body := strings.Replace(asked(path, json), `{"method"`, `{"client":"192.0.2.1","method"`, 1)
			got := s.post("/v1/decide?answer=http", body)
			r := httptest.NewRequest("POST", path, strings.NewReader(json))
			w := httptest.NewRecorder()
			middleware.ServeHTTP(w, r)
			want := w.Body.String()
			if got.has(t, 200, "response.status", w.Code); want != "" {
				got.has(t, 200, "response.body", want)
			}
		}
	}
}

// TestSettleTeachesTheEstimate: a settle on any node teaches that node what a key's requests for a model cost; errors,
// cancellations and repeated settles teach nothing.
func TestSettleTeachesTheEstimate(t *testing.T) {
	const learning = `
rules:
  - name: tokens
    match: {path: /v1/**}
    key: [user]
    cost: {from: json.max_tokens, max: 1000, settle: json.usage.total_tokens, learn: json.model}
    limit: fixed_window 1000000/1h
`
	store := memstore.New()
	a, b := serve(t, handler(t, store, learning)), serve(t, handler(t, store, learning))
	request := func(user, model string) string {
		return fmt.Sprintf(`{"request":{"method":"POST","path":"/v1/chat","user":%q,"json":{"model":%q,"max_tokens":900}}}`,
			user, model)
	}
	estimate := func(s *server, user, model string, want int) {
		t.Helper()
		s.post("/v1/peek", request(user, model)).has(t, 200, "checks.0.cost", want)
	}
	settles := func(user, model, by string, want int) {
		t.Helper()
		token := a.post("/v1/reserve", request(user, model)).at("reservation.token")
		text := fmt.Sprintf(`{"token":%q,%s}`, token, by)
		b.post("/v1/settle", text).has(t, want)
		b.post("/v1/settle", text).has(t, 409)
	}
	for range 16 {
		settles("ann", "small", `"json":{"usage":{"total_tokens":40}}`, 200)
	}
	for range 8 {
		settles("bob", "small", `"actual":50`, 200)
		settles("bob", "small", `"actual":0`, 200)
		settles("bob", "small", `"json":{"error":{}},"status":500`, 200)
	}
	estimate(b, "ann", "small", 40)
	estimate(b, "ann", "large", 900)
	estimate(b, "bob", "small", 900)
	estimate(a, "ann", "small", 900) // each node learns what it settles
	for range 8 {
		settles("bob", "small", `"actual":50`, 200)
	}
	estimate(b, "bob", "small", 50)
}
