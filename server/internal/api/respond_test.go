package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

const respondRules = `
deny: {user: mallory}
rules:
  - {name: plain, match: {path: /plain}, limit: fixed_window 1/1h}
  - {name: told, match: {path: /told}, key: [user], limit: fixed_window 1/1h, label: T1, message: {en: "wait {retry_after}", zh: "请等{retry_after}"}}
  - {name: page, match: {path: /page}, limit: fixed_window 1/1h,
     response: {status: 418, content_type: text/html, body: "<p>{{html .Message}}</p>", fields: seconds}}
  - {name: json, match: {path: /json}, limit: fixed_window 1/1h, response: {body: json, fields: none}}
  - {name: missing, match: {path: /missing}, key: [user], on_missing: deny, limit: 5/1h}
  - {name: ban, match: {path: /ban}, limit: fixed_window 1/1h, ban: {after: 1 refusal within 1h, for: 2h}}
`

// TestResponseIsThatOfTheGateway: with answer=http a program in any language has what the middleware sends: status, header
// and body of each outcome.
func TestResponseIsThatOfTheGateway(t *testing.T) {
	clock := func() weir.Instant { return 1_790_000_000_000_000 }
	store := func() weir.Store { return memstore.New(memstore.WithClock(clock)) }
	s := serve(t, newWitness(t, handler(t, store(), respondRules)))
	user := func(r *http.Request) string { return r.Header.Get("X-User") }
	limited, err := httplimit.ByRules(gatetest.New(t, store(), respondRules), &httplimit.RuleOptions{User: user, Pages: true})
	if err != nil {
		t.Fatal(err)
	}
	middleware := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, path := range []string{"/free", "/plain", "/told", "/page", "/json", "/missing", "/ban"} {
		for i, name := range []string{"ann", "ann", "ann", "mallory", ""} {
			language, id := []string{"", "zh", "en"}[i%3], fmt.Sprint(path[1:], i)
			accept := []string{"*/*", "text/html,*/*;q=0.8"}[i%2]
			headers := map[string]string{"Accept": accept, "Accept-Language": language, "X-Request-Id": id}
			body, err := json.Marshal(map[string]any{"request": map[string]any{"method": "GET", "path": path,
				"user": name, "client": "192.0.2.1", "headers": headers}})
			if err != nil {
				t.Fatal(err)
			}
			got := s.post("/v1/decide?answer=http", string(body))
			r := httptest.NewRequest(http.MethodGet, path, nil)
			for name, value := range headers {
				r.Header.Set(name, value)
			}
			r.Header.Set("X-User", name)
			w := httptest.NewRecorder()
			middleware.ServeHTTP(w, r)
			fields := make(map[string]any)
			for name, values := range w.Header() {
				fields[name] = strings.Join(values, ", ")
			}
			got.has(t, 200, "response.status", w.Code, "response.body", w.Body.String())
			if header, _ := got.at("response.headers").(map[string]any); !maps.Equal(header, fields) {
				t.Errorf("%s %d: the header is %v, want %v", path, i, header, fields)
			}
		}
	}
}

// TestResponseOfClaims: those without a rule have the defaults, and each answer of a batch has its response.
func TestResponseOfClaims(t *testing.T) {
	s := serve(t, newWitness(t, handler(t, memstore.New(), someRules)))
	claim := `{"claims":[{"name":"c","limit":"fixed_window 1/1h","key":"k"}]}`
	s.post("/v1/decide", claim).has(t, 200, "response", nil)
	a := s.post("/v1/decide?answer=http&deny_status=429", `{"requests":[`+claim+`,{"request":{"path":"/jobs"}}]}`)
	a.has(t, 200, "answers.0.response.status", 429, "answers.1.response.status", 403,
		"answers.0.response.headers.Content-Type", "application/problem+json",
		"answers.0.response.headers.Ratelimit-Policy", `"c";q=1;w=3600`)
	s.post("/v1/decide?answer=yes", claim).has(t, 400, "field", "answer", "allowed", "http")
	s.post("/v1/settle?answer=http", settle("x", 0)).has(t, 400)
}
