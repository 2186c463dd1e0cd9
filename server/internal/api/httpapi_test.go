package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/webtest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/server/internal/api"
	"github.com/weirproject/weir/server/internal/web"
)

const someRules = `
rules:
  - {name: site, limit: fixed_window 1000/1h}
  - {name: login, match: {method: POST, path: /login}, key: [client.ip], limit: [fixed_window 2/1h, fixed_window 20/1d], message: {en: wait}}
  - {name: jobs, match: {path: /jobs}, key: [user], on_missing: deny, limit: concurrency 2 ttl 30s}
  - {name: tried, match: {path: /login}, key: [client.ip], mode: shadow, limit: fixed_window 1/1h}
  - {name: guess, match: {path: /guess}, key: [client.ip], limit: fixed_window 2/1h, ban: {after: 1 refusal within 1h, for: 1h}, candidate: {limit: fixed_window 1/1h}}
  - {name: tighter, match: {path: /tighter}, key: [client.ip], limit: fixed_window 1/1h, candidate: {limit: fixed_window 2/1h}}
  - {name: export, match: {path: /export}, key: [user], on_missing: skip, on_store_error: deny, limit: 5/1h}
`

func handler(t testing.TB, store weir.Store, text string, config ...api.Config) http.Handler {
	t.Helper()
	h, err := api.New(gatetest.New(t, store, text), append(config, api.Config{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A server is asked over a real socket.
type server struct {
	t   testing.TB
	url string
}

func start(t testing.TB, text string, config ...api.Config) *server {
	t.Helper()
	return serve(t, handler(t, memstore.New(), text, config...))
}

// access is a configuration with these tokens.
func access(t testing.TB, c web.Config) api.Config {
	t.Helper()
	a, err := web.NewAccess(c)
	if err != nil {
		t.Fatal(err)
	}
	return api.Config{Access: a}
}

func serve(t testing.TB, h http.Handler) *server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &server{t, s.URL}
}

// An answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// post sends a body, with fields of the header by turns name and value.
func (s *server) post(path, body string, fields ...string) *answer {
	return s.send(http.MethodPost, path, body, fields...)
}

func (s *server) send(method, path, body string, fields ...string) *answer {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	response, text := webtest.Send(s.t, http.DefaultClient, r, fields...)
	a := &answer{status: response.StatusCode, header: response.Header, text: text}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&a.body); err != nil && method != http.MethodHead {
		s.t.Fatalf("%s %s answers %d %q: %v", method, path, a.status, text, err)
	}
	return a
}

// at is a value of the answer by its path: "checks.0.name".
func (a *answer) at(path string) any {
	var here any = a.body
	for step := range strings.SplitSeq(path, ".") {
		switch value := here.(type) {
		case map[string]any:
			here = value[step]
		case []any:
			n := int(step[0] - '0')
			if n >= len(value) {
				return nil
			}
			here = value[n]
		default:
			return nil
		}
	}
	return here
}

// has fails the test unless the values at the paths are those, by turns.
func (a *answer) has(t testing.TB, status int, pairs ...any) {
	t.Helper()
	if a.status != status {
		t.Errorf("status %d, want %d: %s", a.status, status, a.text)
	}
	for i := 0; i < len(pairs); i += 2 {
		got, want := a.at(pairs[i].(string)), pairs[i+1]
		if n, ok := want.(int); ok {
			want = float64(n)
		}
		if got != want {
			t.Errorf("%s is %v, want %v, in %s", pairs[i], got, want, a.text)
		}
	}
}

func TestDecideByRules(t *testing.T) {
	s := start(t, someRules)
	s.post("/v1/decide", strings.TrimSuffix(login, "}")+`,"cost":0}`).has(t, 200, "allowed", true,
		"checks.0.remaining", 1000, "checks.1.remaining", 2)
	s.post("/v1/decide", login).has(t, 200, "outcome", "passed", "reason", "within_limits", "allowed", true,
		"granted", 1,
		"rule", "login", "name", "login", "limit", "fixed_window 2/1h", "remaining", 1, "retry_after", 0,
		"retry_after_us", 0, "delay_us", 0,
		"checks.0.name", "site", "checks.0.remaining", 999, "checks.1.rule", "login", "checks.2.name", "login.2",
		"checks.2.remaining", 19,
		"checks.3.rule", "tried", "checks.3.shadow", true, "checks.3.refused", false)
	s.post("/v1/decide", login).has(t, 200, "allowed", true, "checks.3.refused", true)
	refused := s.post("/v1/decide", login)
	refused.has(t, 200, "outcome", "refused", "reason", "limit_exceeded", "allowed", false, "granted", 0, "rule",
		"login", "remaining", 0,
		"checks.0.remaining", 998)
	whole, exact := refused.at("retry_after").(float64), refused.at("retry_after_us").(float64)
	if whole != math.Ceil(exact/1e6) || exact <= 0 || exact > 3600e6 {
		t.Errorf("retry_after is %v, in microseconds %v", whole, exact)
	}
	s.post("/v1/decide", `{"request":{"path":"/jobs"}}`).has(t, 200, "outcome", "denied", "reason", "missing_key",
		"rule", "jobs")
	s.post("/v1/decide", `{"request":{"path":"/export"}}`).has(t, 200, "outcome", "passed", "skipped.0.rule",
		"export", "skipped.0.why", "a component of its key is missing")
}

// The message of the rule that refuses is in the language of the described request.
func TestAnswersHaveTheMessageOfTheRule(t *testing.T) {
	s := start(t, `
rules:
  - {name: pay, label: Pay "now", match: {service: order}, limit: fixed_window 1/1h, message: {en: "{rule} of {service}", zh: "{service}的{rule}"}}
  - {name: other, match: {service: other}, limit: fixed_window 1/1h}
`)
	const text = `{"request":{"service":"order","headers":{"accept-language":"zh-CN"}}}`
	s.post("/v1/decide", text).has(t, 200, "allowed", true, "message", nil)
	s.post("/v1/decide", text).has(t, 200, "allowed", false, "message", `order的Pay "now"`, "language", "zh")
	s.post("/v1/decide", `{"request":{"service":"order"}}`).has(t, 200, "message", `Pay "now" of order`, "language", "en")
	s.post("/v1/decide", `{"requests":[`+text+`]}`).has(t, 200, "answers.0.message", `order的Pay "now"`)
	s.post("/v1/reserve", text).has(t, 200, "message", `order的Pay "now"`)
	s.post("/v1/decide", `{"request":{"service":"other"}}`)
	s.post("/v1/decide", `{"request":{"service":"other"}}`).has(t, 200, "allowed", false, "message", nil)
}

// All spellings of a path that reach one handler are counted together.
func TestPathsAndNamesHaveOneForm(t *testing.T) {
	s := start(t, `
rules:
  - {name: r, match: {host: example.com, path: /login, header: {X-Plan: free}}, key: [client.ip], limit: fixed_window 1000/1h}
`)
	const text = `{"request":{"host":%q,"path":%q,"client":%q,"headers":{%q:"free"}}}`
	for i, r := range [][]any{
		{"example.com", "/login", "203.0.113.7", "X-Plan"},
		{"EXAMPLE.com:443", "//login", "::ffff:203.0.113.7", "x-plan"},
		{"example.com.", "/%6cogin", "203.0.113.7", "X-PLAN"},
		{"example.com", "/x/../login", "203.0.113.7", "X-Plan"},
	} {
		s.post("/v1/decide", fmt.Sprintf(text, r...)).has(t, 200, "remaining", 999-i)
	}
	form := start(t, `rules: [{name: r, match: {path: /login}, limit: 5/1h}]`,
		api.Config{Form: pathform.Form{IgnoreCase: true}})
	form.post("/v1/decide", `{"request":{"path":"/LOGIN"}}`).has(t, 200, "rule", "r")
}

func TestDecideByClaims(t *testing.T) {
	s := start(t, "rules: []")
	const two = `{"claims":[{"name":"api","limit":"fixed_window 10/1h","key":"user:42","cost":3},` +
		`{"name":"all","limit":"fixed_window 100/1h","key":"\u0041\ud83d\ude00"}],"cost":2}`
	s.post("/v1/decide", two).has(t, 200, "allowed", true, "rule", nil, "name", "api", "remaining", 7,
		"checks.0.cost", 3, "checks.1.cost", 2, "checks.1.remaining", 98)
	s.post("/v1/peek", two).has(t, 200, "checks.0.key", "user:42", "checks.1.key", "A😀")
	s.post("/v1/decide", `{"claims":[{"name":"api","limit":"fixed_window 10/1h","key":"user:42"}],"times":20}`).has(t,
		200, "granted", 7, "allowed", true)
	s.post("/v1/decide", `{"claims":[{"name":"api","limit":"fixed_window 10/1h","key":"user:42","cost":11}]}`).has(t,
		200, "allowed", false, "retry_after", -1, "retry_after_us", -1)
	s.post("/v1/decide", `{"claims":[{"name":"q","limit":"leaky_queue 1/1h queue 5","key":"k","cost":3}]}`).has(t,
		200, "allowed", true, "delay_us", 2*3600*1000000)
}

func TestPeekChargesNothing(t *testing.T) {
	s := start(t, someRules)
	const claim = `{"claims":[{"name":"api","limit":"fixed_window 1/1h","key":"k"}]`
	for range 3 {
		s.post("/v1/peek", claim+`}`).has(t, 200, "allowed", true, "granted", 0, "remaining", 1)
		s.post("/v1/decide", claim+`,"dry_run":true}`).has(t, 200, "allowed", true, "granted", 0, "remaining", 1)
	}
	s.post("/v1/decide", claim+`,"dry_run":false}`).has(t, 200, "allowed", true, "granted", 1)
	s.post("/v1/peek", claim+`}`).has(t, 200, "allowed", false, "outcome", "refused")
	s.post("/v1/peek", login).has(t, 200, "checks.3.refused", false)
}

func TestBatchIsDecidedInOrder(t *testing.T) {
	s := start(t, someRules)
	a := s.post("/v1/decide", `{"requests":[`+login+`,{"claims":[{"name":"b","limit":"5/1m","key":"k"}],"times":2},`+login+`,`+login+`,{"request":{"path":"/jobs"}},
		{"claims":[{"name":"b","limit":"5/1m","key":"k"},{"name":"b","limit":"6/1m","key":"k"}]},`+login+`]}`)
	a.has(t, 200, "answers.0.allowed", true, "answers.1.granted", 2, "answers.2.allowed", true, "answers.3.outcome",
		"refused", "answers.4.outcome", "denied",
		"answers.5.outcome", "failed", "answers.5.reason", "bad_input", "answers.5.error.field", "claims",
		"answers.6.outcome", "refused")
	// A mistake in the last is found before the first is charged.
	s.post("/v1/decide", `{"requests":[{"claims":[{"name":"c","limit":"5/1m","key":"k"}]},`+
		`{"claims":[{"name":"c","limit":"5/60","key":"k"}]}]}`).has(t, 400, "field", "requests[1].claims[0].limit")
	s.post("/v1/peek", `{"claims":[{"name":"c","limit":"5/1m","key":"k"}]}`).has(t, 200, "remaining", 5)
	s.post("/v1/decide", `{"requests":[`+strings.Repeat(`{"request":{}},`, 99)+`{"request":{}}]}`).has(t, 200)
	s.post("/v1/decide", `{"requests":[`+strings.Repeat(`{"request":{}},`, 100)+`{"request":{}}]}`).has(t, 400,
		"field", "requests[99]", "allowed", "at most 100 elements")
}

func TestDenyStatus(t *testing.T) {
	s := start(t, someRules)
	s.post("/v1/decide?deny_status=429", login).has(t, 200)
	s.post("/v1/decide?deny_status=429", login).has(t, 200)
	a := s.post("/v1/decide?deny_status=429", login)
	a.has(t, 429, "outcome", "refused")
	if retry := a.header.Get("Retry-After"); retry != fmt.Sprint(a.at("retry_after")) {
		t.Errorf("Retry-After is %s, retry_after %v", retry, a.at("retry_after"))
	}
	never := s.post("/v1/decide?deny_status=429", `{"claims":[{"name":"api","limit":"fixed_window `+
		`10/1h","key":"u","cost":11}]}`)
	never.has(t, 429, "outcome", "refused", "retry_after", -1, "retry_after_us", -1)
	if retry := never.header.Get("Retry-After"); retry != "" {
		t.Errorf("Retry-After is %q where no wait helps", retry)
	}
	s.post("/v1/peek?deny_status=403", `{"request":{"path":"/jobs"}}`).has(t, 403, "outcome", "denied")
	for _, query := range []string{"deny_status=200", "deny_status=600", "deny_status=x",
		"deny_status=429&deny_status=403", "status=429", "%zz"} {
		s.post("/v1/decide?"+query, login).has(t, 400, "title", "Bad Request")
	}
	s.post("/v1/reset?deny_status=429", login).has(t, 400)
}

func TestReset(t *testing.T) {
	s := start(t, someRules)
	for range 3 {
		s.post("/v1/decide", login)
	}
	s.post("/v1/decide", login).has(t, 200, "allowed", false)
	s.post("/v1/reset", login).has(t, 200, "reset.0.name", "site", "reset.1.rule", "login", "reset.1.key",
		"client.ip=11:203.0.113.7", "reset.3.shadow", true)
	s.post("/v1/decide", login).has(t, 200, "allowed", true, "remaining", 1, "checks.3.refused", false)
	const claim = `{"claims":[{"name":"login","limit":"fixed_window 2/1h","key":"client.ip=11:203.0.113.7"}]}`
	s.post("/v1/reset", claim).has(t, 200, "reset.0.name", "login")
	s.post("/v1/peek", claim).has(t, 200, "remaining", 2)
}

func TestOutages(t *testing.T) {
	s := serve(t, handler(t, &gone{memstore.New()}, someRules))
	s.post("/v1/decide", login).has(t, 200, "outcome", "passed", "degraded", true, "checks.0.local", true,
		"checks.1.local", true)
	s.post("/v1/decide", `{"request":{"path":"/export","user":"u"}}`).has(t, 503, "outcome", "failed", "reason",
		"store_failed", "rule", "export")
	s.post("/v1/decide", `{"claims":[{"name":"a","limit":"5/1m","key":"k"}]}`).has(t, 503, "outcome", "failed",
		"allowed", false)
	s.post("/v1/reserve", login).has(t, 200, "allowed", true, "reservation", nil)
	s.post("/v1/reserve", `{"request":{"path":"/export","user":"u"}}`).has(t, 503, "reservation", nil)
}

func TestTokensOfCallers(t *testing.T) {
	s := start(t, someRules, access(t, web.Config{Tokens: []web.Token{
		{Secret: "reading-is-allowed"},
		{Secret: "another-secret-here", Write: true},
		{Secret: "writing-is-allowed", Write: true},
	}}))
	for _, test := range []struct {
		token  string
		status map[string]int
	}{
		{"", map[string]int{"/v1/peek": 401, "/v1/decide": 401}},
		{"Bearer", map[string]int{"/v1/peek": 401, "/v1/decide": 401}},
		{"Bearer ", map[string]int{"/v1/peek": 401, "/v1/decide": 401}},
		{"Basic writing-is-allowed", map[string]int{"/v1/peek": 401, "/v1/decide": 401}},
		{"Bearer writing-is-allowe", map[string]int{"/v1/peek": 401, "/v1/decide": 401}},
		{"Bearer reading-is-allowed", map[string]int{"/v1/peek": 200, "/v1/decide": 403, "/v1/reset": 403,
			"/v1/reserve": 403, "/v1/acquire": 403}},
		{"bearer writing-is-allowed", map[string]int{"/v1/peek": 200, "/v1/decide": 200, "/v1/reset": 200}},
		{"Bearer another-secret-here", map[string]int{"/v1/peek": 200, "/v1/decide": 200, "/v1/reset": 200}},
	} {
		for path, status := range test.status {
			a := s.post(path, login, "Authorization", test.token)
			a.has(t, status)
			if got := a.header.Get("WWW-Authenticate"); (got != "") != (status != 200) {
				t.Errorf("%s by %q: WWW-Authenticate is %q", path, test.token, got)
			}
		}
	}
}

// Requests that a web page can send to a server on loopback, also by DNS rebinding, are refused.
func TestCrossOriginRequestsAreRefused(t *testing.T) {
	s := start(t, someRules, access(t, web.Config{Loopback: true}))
	for name, test := range map[string]struct {
		status int
		fields []string
	}{
		"a program":           {200, nil},
		"by another name":     {200, []string{"Host", "LocalHost:8080"}},
		"by IPv6":             {200, []string{"Host", "[::1]:8080"}},
		"a form":              {415, []string{"Content-Type", "text/plain"}},
		"a form as URL":       {415, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		"a beacon":            {415, []string{"Content-Type", ""}},
		"a script":            {403, []string{"Sec-Fetch-Site", "cross-site"}},
		"of the same domain":  {403, []string{"Sec-Fetch-Site", "same-site"}},
		"an old browser":      {403, []string{"Origin", "https://evil.example"}},
		"a sandboxed frame":   {403, []string{"Origin", "null"}},
		"a rebound name":      {403, []string{"Host", "evil.example", "Sec-Fetch-Site", "same-origin"}},
		"one that looks like": {403, []string{"Host", "localhost.evil.example"}},
		"charset":             {200, []string{"Content-Type", "application/json; charset=UTF-8"}},
		"another charset":     {415, []string{"Content-Type", "application/json; charset=utf-16"}},
		"compressed":          {415, []string{"Content-Encoding", "gzip"}},
	} {
		if a := s.post("/v1/decide", `{"request":{}}`, test.fields...); a.status != test.status {
			t.Errorf("%s: %d %s, want %d", name, a.status, a.text, test.status)
		}
	}
	preflight := s.send("OPTIONS", "/v1/decide", "", "Origin", "https://evil.example",
		"Access-Control-Request-Method", "POST")
	preflight.has(t, 405)
	for name := range preflight.header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("a preflight is answered with %s", name)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	s := start(t, someRules)
	s.post("/v1/decide/", login).has(t, 404, "title", "Not Found")
	s.post("/", login).has(t, 404)
	a := s.send("GET", "/v1/decide", "")
	a.has(t, 405, "status", 405)
	if a.header.Get("Allow") != "POST" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("405 has %v", a.header)
	}
	if a := s.send("HEAD", "/v1/openapi.json", ""); a.status != 200 || a.text != "" {
		t.Errorf("HEAD: %d %q", a.status, a.text)
	}
	if _, err := api.New(nil, api.Config{}); err == nil {
		t.Error("a nil gate is taken")
	}
}

// The body ends before it should: the caller went, or lied about its length.
func TestTruncatedBodyIsRefused(t *testing.T) {
	r := httptest.NewRequest("POST", "/v1/decide", io.MultiReader(strings.NewReader(login),
		iotest.ErrReader(io.ErrUnexpectedEOF)))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler(t, memstore.New(), someRules).ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// One call after the other in the same memory: nothing of one may be seen in the next.
func TestConcurrentCallsAreIsolated(t *testing.T) {
	h := handler(t, memstore.New(), `rules: [{name: u, key: [user, header.X-A], limit: fixed_window 100000/1h}]`)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 200 {
				user, want := fmt.Sprintf("user-%d-%d", i, j), "user="
				body := fmt.Sprintf(`{"requests":[{"request":{"user":%q,"headers":{"X-A":"a\u0042"}}},`+
					`{"request":{"user":%q}}]}`, user, user+"x")
				r := httptest.NewRequest("POST", "/v1/peek", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				want = fmt.Sprintf("user=%d:%s header.X-A=2:aB", len(user), user)
				if w.Code != 200 || !strings.Contains(w.Body.String(), want) || strings.Count(w.Body.String(),
					"header.X-A=2:aB") != 1 {
					t.Errorf("%d %s, want the key %q once", w.Code, w.Body, want)
				}
			}
		})
	}
	group.Wait()
}

// A body without a length is read no further than it may be long.
func TestEndlessBodyIsBounded(t *testing.T) {
	read := 0
	r := httptest.NewRequest("POST", "/v1/decide", readerFunc(func(p []byte) (int, error) {
		read += len(p)
		return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
	}))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler(t, memstore.New(), someRules).ServeHTTP(w, r)
	if w.Code != 413 || read > 1<<20+1 {
		t.Errorf("%d after %d bytes", w.Code, read)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
