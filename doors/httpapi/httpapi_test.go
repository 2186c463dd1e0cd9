package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/doors/httpapi"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const someRules = `
rules:
  - {name: site, limit: fixed_window 1000/1h}
  - {name: login, match: {method: POST, path: /login}, key: [client.ip], limit: [fixed_window 2/1h, fixed_window 20/1d]}
  - {name: jobs, match: {path: /jobs}, key: [user], on_missing: deny, limit: concurrency 2 ttl 30s}
  - {name: tried, match: {path: /login}, key: [client.ip], mode: shadow, limit: fixed_window 1/1h}
  - {name: export, match: {path: /export}, key: [user], on_missing: skip, on_store_error: deny, limit: 5/1h}
`

// compiled are the rules of a text.
func compiled(t testing.TB, text string) *rules.Set {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func handler(t testing.TB, store weir.Store, text string, opts ...httpapi.Option) http.Handler {
	t.Helper()
	g, err := gate.New(store, compiled(t, text), gate.WithLocal(memstore.New()))
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpapi.New(g, opts...)
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

func start(t testing.TB, text string, opts ...httpapi.Option) *server {
	t.Helper()
	return serve(t, handler(t, memstore.New(), text, opts...))
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
	return s.send(http.MethodPost, path, body, append([]string{"Content-Type", "application/json"}, fields...)...)
}

func (s *server) send(method, path, body string, fields ...string) *answer {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		}
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := &answer{status: response.StatusCode, header: response.Header, text: string(text)}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&a.body); err != nil && method != http.MethodHead {
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
	const login = `{"request":{"method":"POST","path":"//login","client":"203.0.113.7"}}`
	s.post("/v1/decide", login).has(t, 200, "outcome", "passed", "reason", "within_limits", "allowed", true, "granted", 1,
		"rule", "login", "name", "login", "limit", "fixed_window 2/1h0m0s first", "remaining", 1, "retry_after", 0, "retry_after_us", 0, "reset_after_us", nil)
}
