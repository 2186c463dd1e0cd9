package forwardauth_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/forwardauth"
)

func gateOf(t testing.TB, text string) (*gate.Gate, weir.Store) {
	t.Helper()
	store := memstore.New()
	return gatetest.New(t, store, "rules:\n"+text), store
}

// proxies trusts 10.0.0.0/8, and Unix sockets.
func proxies(t testing.TB) *clientaddr.Extractor {
	t.Helper()
	e, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, clientaddr.WithTrustedUnix())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func open(t testing.TB, text string) http.Handler {
	t.Helper()
	g, _ := gateOf(t, text)
	handler, err := forwardauth.New(g, &httplimit.RuleOptions{Clients: proxies(t)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

const asked = "/v1/forward-auth"

// question returns the headers of a subrequest of Traefik or Caddy.
func question(target, client string) []string {
	return []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", target, "X-Forwarded-Host", "example.com", "X-Forwarded-For", client}
}

func put(handler http.Handler, method, url, peer string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, strings.NewReader("a body that is not the request's"))
	r.RemoteAddr = peer
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

const perIP = "  - {name: ip, key: [client.ip], limit: sliding_log 1/1m}\n"

func TestResponseForTheClient(t *testing.T) {
	handler := open(t, perIP)
	for i, tt := range []struct {
		client, method string
		want           int
	}{{"192.0.2.1", "GET", 200}, {"192.0.2.1", "GET", 429}, {"192.0.2.1", "HEAD", 429}, {"192.0.2.2", "POST", 200}, {"6.6.6.6, 192.0.2.2, 10.0.0.9", "GET", 429}} {
		r := put(handler, tt.method, asked, "10.0.0.1:1", question("/a", tt.client)...)
		if r.Code != tt.want || !strings.HasPrefix(r.Header().Get("RateLimit"), `"ip";r=0;t=`) || (r.Header().Get("Retry-After") != "") != (tt.want == 429) {
			t.Errorf("question %d: %d %v", i, r.Code, r.Header())
		}
		if tt.want == 200 && r.Body.Len() > 0 || (r.Header().Get(forwardauth.StatusField) == "429") != (tt.want == 429) {
			t.Errorf("question %d: %v %s", i, r.Header(), r.Body)
		}
	}
}

func TestUntrustedPeerGetsConfigurationHint(t *testing.T) {
	handler := open(t, perIP)
	for _, url := range []string{asked, asked + "?deny_status=401"} {
		r := put(handler, "GET", url, "192.0.2.9:77", question("/a", "192.0.2.1")...)
		want := map[string]int{asked: 403}[url]
		if want == 0 {
			want = 401
		}
		if r.Code != want || r.Header().Get(forwardauth.StatusField) != "403" || !strings.Contains(r.Body.String(), "192.0.2.9:77") || !strings.Contains(r.Body.String(), "trusted_proxies") {
			t.Errorf("%s: %d %v %s", url, r.Code, r.Header(), r.Body)
		}
	}
	g, _ := gateOf(t, perIP)
	trustsNone, err := forwardauth.New(g, new(httplimit.RuleOptions))
	if err != nil {
		t.Fatal(err)
	}
	if r := put(trustsNone, "GET", asked, "127.0.0.1:1", question("/a", "192.0.2.1")...); r.Code != 403 {
		t.Errorf("without trusted peers: %d", r.Code)
	}
	if _, err := forwardauth.New(nil, new(httplimit.RuleOptions)); err == nil {
		t.Error("no gate: no error")
	}
}

// A proxy on a Unix socket is identified by the listener.
func TestProxyOnUnixSocket(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: open(t, perIP)}}
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", listener.Addr().String())
	}}}
	defer client.CloseIdleConnections()
	for _, want := range []int{200, 429} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", "http://weir"+asked, nil)
		if err != nil {
			t.Fatal(err)
		}
		fields := question("/a", "192.0.2.1")
		for i := 0; i < len(fields); i += 2 {
			request.Header.Set(fields[i], fields[i+1])
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%d, want %d", response.StatusCode, want)
		}
	}
}

// The rule that applies shows how the request was read.
func TestRequestFromProxyHeaders(t *testing.T) {
	const text = `
  - {name: method, match: {method: POST}, limit: 1000/1s}
  - {name: path, match: {path: /a/b}, limit: 1000/1s}
  - {name: query, match: {query: {q: x}}, limit: 1000/1s}
  - {name: host, match: {host: example.com}, limit: 1000/1s}
  - {name: cookie, key: [cookie.c], on_missing: skip, limit: 1000/1s}
  - {name: route, key: [route], on_missing: skip, limit: 1000/1s}
`
	mux := http.NewServeMux()
	mux.Handle(asked, open(t, text))
	all := "method path query host"
	for name, tt := range map[string]struct {
		url    string
		fields []string
		want   string // the rules that applied, or a part of the sentence
		status int
	}{
		"traefik, caddy":        {"", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a/b?q=x", "X-Forwarded-Host", "example.com"}, all, 200},
		"any spelling of it":    {"", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "//a/./%62?q=x", "X-Forwarded-Host", "Example.com:443"}, all, 200},
		"ingress-nginx":         {"", []string{"X-Original-Method", "POST", "X-Original-URL", "https://example.com/a/b?q=x"}, all, 200},
		"nginx":                 {"", []string{"X-Original-Method", "POST", "X-Original-URI", "/a/b?q=x", "X-Forwarded-Host", "example.com"}, all, 200},
		"both alike":            {"", []string{"X-Original-Method", "POST", "X-Forwarded-Method", "POST", "X-Original-URI", "/a/b?q=x", "X-Forwarded-Uri", "/a/b?q=x", "X-Forwarded-Host", "example.com"}, all, 200},
		"headers of the client": {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "x", "Cookie", "c=1"}, "cookie", 200},
		"an empty host":         {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", ""}, "no header states the request's host", 400},
		"two methods":           {"", []string{"X-Forwarded-Method", "POST", "X-Original-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "x"}, "the request's method", 400},
		"two lines":             {"", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "x"}, "the request's method", 400},
		"two targets":           {"", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a", "X-Original-URI", "/b", "X-Forwarded-Host", "x"}, "the request's target", 400},
		"two queries":           {"", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/a?q=x", "X-Original-URL", "http://x/a", "X-Forwarded-Host", "x"}, "the request's target", 400},
		"two hosts":             {"", []string{"X-Forwarded-Method", "POST", "X-Original-URL", "http://x/a", "X-Forwarded-Host", "y"}, "the request's host", 400},
		"the right of two":      {"?headers=forwarded", []string{"X-Forwarded-Method", "POST", "X-Original-Method", "GET", "X-Forwarded-Uri", "/a/b?q=x", "X-Original-URI", "/", "X-Forwarded-Host", "example.com"}, all, 200},
		"the left of two":       {"?headers=original", []string{"X-Forwarded-Method", "GET", "X-Original-Method", "POST", "X-Forwarded-Uri", "/", "X-Original-URL", "http://example.com/a/b?q=x", "X-Forwarded-Host", "y"}, all, 200},
		"the question's host":   {"?headers=original", []string{"X-Original-Method", "POST", "X-Original-URI", "/a/b?q=x", "X-Forwarded-Host", "y"}, all, 200},
		"no method":             {"", []string{"X-Forwarded-Uri", "/", "X-Forwarded-Host", "x"}, "no header states the request's method", 400},
		"an empty method":       {"", []string{"X-Forwarded-Method", "", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "x"}, "no header states the request's method", 400},
		"no target":             {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Host", "x"}, "no header states the request's target", 400},
		"no host":               {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/"}, "no header states the request's host", 400},
		"a target that is none": {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "a b", "X-Forwarded-Host", "x"}, "cannot be read", 400},
		"a scheme alone":        {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "a:", "X-Forwarded-Host", "x"}, "cannot be read", 400},
		"an opaque target":      {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "mailto:a", "X-Forwarded-Host", "x"}, "cannot be read", 400},
		"an encoded slash":      {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/a%2fb", "X-Forwarded-Host", "x"}, "encoded slashes", 400},
		"two names of a host":   {"", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-Host", "x, y"}, "The host of this request", 400},
		"an unknown option":     {"?deny=403", question("/", "192.0.2.1"), "deny_status=403", 403},
		"an unknown column":     {"?headers=all", question("/", "192.0.2.1"), "headers=forwarded", 403},
		"an unknown status":     {"?deny_status=200", question("/", "192.0.2.1"), "400 to 599", 403},
		"one option twice":      {"?deny_status=403&deny_status=401", question("/", "192.0.2.1"), "twice", 403},
		"a broken query":        {"?a=%zz", question("/", "192.0.2.1"), "cannot be read", 403},
	} {
		r := put(mux, "GET", "http://example.com"+asked+tt.url, "10.0.0.1:1", tt.fields...)
		got := r.Body.String()
		if r.Code == 200 {
			got = strings.Join(names(r.Header().Get("RateLimit-Policy")), " ")
		}
		if r.Code != tt.status || r.Code == 200 && got != tt.want || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %d %s, want %d %s", name, r.Code, got, tt.status, tt.want)
		}
	}
}

// names are those of the policies of a field.
func names(field string) (list []string) {
	for i, part := range strings.Split(field, `"`) {
		if i%2 == 1 {
			list = append(list, part)
		}
	}
	return list
}

// Every decision has a status that nginx does not treat as an outage.
func TestDenyStatus(t *testing.T) {
	const text = `
  - {name: ip, match: {path: /once}, key: [client.ip], limit: sliding_log 1/1m}
  - {name: user, match: {path: /user}, key: [user], on_missing: deny, limit: sliding_log 1/1m}
  - {name: cost, match: {path: /cost}, cost: {from: query.n, max: 2}, limit: sliding_log 9/1m}
  - {name: gone, match: {path: /gone}, on_store_error: deny, limit: sliding_log 9/1m}
`
	g, store := gateOf(t, text)
	handler, err := forwardauth.New(g, &httplimit.RuleOptions{Clients: proxies(t)})
	if err != nil {
		t.Fatal(err)
	}
	put(handler, "GET", asked, "10.0.0.1:1", question("/once", "192.0.2.1")...)
	for _, tt := range []struct{ target, status string }{{"/once", "429"}, {"/user", "403"}, {"/cost?n=3", "400"}, {"/%00", "400"}, {"/gone", "503"}} {
		if tt.target == "/gone" {
			store.Close()
		}
		r := put(handler, "GET", asked+"?deny_status=403", "10.0.0.1:1", question(tt.target, "192.0.2.1")...)
		if r.Code != 403 || r.Header().Get(forwardauth.StatusField) != tt.status || (r.Header().Get("Retry-After") != "") != (tt.status == "429") {
			t.Errorf("%s: %d %v", tt.target, r.Code, r.Header())
		}
	}
}

// The response is not seen: nothing is refunded for the body of the subrequest, and no unit is held,
// because nothing would release it.
func TestConcurrencyIsNotHeldAndCostsAreNotSettled(t *testing.T) {
	const text = `
  - {name: bytes, match: {path: /bytes}, cost: {default: 5, settle: bytes}, limit: sliding_log 10/1m}
  - {name: header, match: {path: /header}, cost: {default: 5, settle: header.X-Cost}, limit: sliding_log 10/1m}
  - {name: jobs, match: {path: /jobs}, limit: concurrency 1 ttl 1h}
`
	g, _ := gateOf(t, text)
	handler, err := forwardauth.New(g, &httplimit.RuleOptions{Clients: proxies(t), Observe: func(_ *http.Request, e httplimit.Event) {
		if e.Err != nil {
			t.Errorf("%+v", e)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	status := func(target string) int {
		return put(handler, "GET", asked, "10.0.0.1:1", question(target, "192.0.2.1")...).Code
	}
	for _, target := range []string{"/bytes", "/header"} {
		if a, b, c := status(target), status(target), status(target); a != 200 || b != 200 || c != 429 {
			t.Errorf("%s: %d %d %d", target, a, b, c)
		}
	}
	if a, b := status("/jobs"), status("/jobs"); a != 200 || b != 200 {
		t.Errorf("with room: %d %d", a, b)
	}
	var held gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{Method: "GET", Path: "/jobs"}, gate.Once, &held); err != nil || !held.Holds() {
		t.Fatal(err)
	}
	if got := status("/jobs"); got != 429 {
		t.Errorf("while another holds it: %d", got)
	}
}

// For any client input the answer is a decision, and the client's headers do not change the request
// that is decided.
func FuzzSubrequest(f *testing.F) {
	for _, target := range []string{"/", "/a?b", "//a", "http://x/y", "*", "", "a b", "/%zz", "/a#b", "http://[::1]/", "/\x00", "A:", "file:///a"} {
		f.Add(target, "X-Original-URI", "/x", "headers=forwarded")
		f.Add(target, "X-Forwarded-For", target, "deny_status=403")
	}
	f.Fuzz(func(t *testing.T, target, name, value, query string) {
		handler := open(t, perIP)
		r := httptest.NewRequest("GET", asked, nil)
		r.URL.RawQuery, r.RemoteAddr = query, "10.0.0.1:1"
		r.Header = http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {target}, "X-Forwarded-Host": {"x"}, "X-Forwarded-For": {"192.0.2.1"}}
		r.Header.Add(name, value)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		u, err := url.ParseRequestURI(target)
		if recorder.Code == 200 && (err != nil || u.Path == "" && u.Host == "") {
			t.Errorf("%q is answered 200", target)
		}
		if recorder.Code != 200 && (recorder.Code < 400 || recorder.Code > 599) {
			t.Errorf("%q is answered %d", target, recorder.Code)
		}
	})
}

// TestBodiesAreNotRead: a rule that needs the body of a request refuses it, and a cost has its default; a request to read
// has no body.
func TestBodiesAreNotRead(t *testing.T) {
	for rule, want := range map[string]string{
		"  - {name: a, match: {json: {model: large}}, limit: 1/1h}\n":                     "200 400",
		"  - {name: a, key: [json.user], limit: 2/1h}\n":                                  "200 400",
		"  - {name: a, key: [body.user], limit: 2/1h}\n":                                  "200 400",
		"  - {name: a, preset: mcp, match: {path: /**}, limit: 1/1h}\n":                   "200 400",
		"  - {name: a, cost: {from: json.n, default: 2, max: 9}, limit: 20/1h burst 9}\n": "200 200",
	} {
		handler, got := open(t, rule), []string{}
		for _, method := range []string{"GET", "POST"} {
			fields := append(question("/", "192.0.2.1"), "X-Forwarded-Method", "")
			fields = append(fields[2:len(fields)-2], "X-Forwarded-Method", method, "Content-Type", "application/json")
			got = append(got, fmt.Sprint(put(handler, "GET", asked, "10.0.0.1:5", fields...).Code))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", rule, got, want)
		}
	}
}
