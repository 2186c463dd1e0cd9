package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
)

func gateOf(t testing.TB, store weir.Store, text string) *gate.Gate {
	t.Helper()
	return gatetest.New(t, store, "rules:\n"+text)
}

func byRules(t testing.TB, store weir.Store, text string, options *httplimit.RuleOptions) middleware {
	t.Helper()
	m, err := httplimit.ByRules(gateOf(t, store, text), options)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ask serves a request without a socket.
func ask(handler http.Handler, method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for _, change := range change {
		change(r)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func from(peer string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = peer } }

const siteAndIP = `
  - {name: site, limit: sliding_log 9/1m}
  - {name: ip, key: [client.ip], limit: [sliding_log 1/1m, sliding_log 5/1h]}
`

// Draft 11, sections 3 to 5.1: all decided rules share one pair of fields, and violated-policies has
// the names of the fields.
func TestByRulesRefuses(t *testing.T) {
	s := serve(t, byRules(t, newClock().store(), siteAndIP, nil)(hello))
	policy := `"site";q=9;w=60, "ip";q=1;w=60, "ip.2";q=5;w=3600`
	first := s.get("/")
	first.want(t, 200, map[string]string{
		"RateLimit-Policy": policy, "RateLimit": `"site";r=8;t=60, "ip";r=0;t=60, "ip.2";r=4;t=3600`, "Retry-After": "", "Cache-Control": "",
	})
	second := s.get("/", "Accept-Language", "zh-CN")
	second.want(t, 429, map[string]string{
		"RateLimit-Policy": policy, "RateLimit": `"site";r=8, "ip";r=0;t=60, "ip.2";r=4`, "Retry-After": "60",
		"Cache-Control": "no-store", "Content-Type": "application/problem+json", "Content-Language": "zh",
	})
	for _, r := range []*reply{first, second} {
		if len(items(t, r.Header.Values("RateLimit"))) != 3 || len(items(t, r.Header.Values("RateLimit-Policy"))) != 3 {
			t.Errorf("a stranger's parser reads other fields: %v", r.Header)
		}
	}
	if !strings.Contains(second.text, `"violated-policies":["ip"]`) || !strings.Contains(second.text, "请在1分钟后重试") {
		t.Errorf("the body is %s", second.text)
	}
}

// TestRefusalsHaveTheMessageOfTheRule: in the client's language, in every body, escaped; where no wait helps it is not
// said that one does.
func TestRefusalsHaveTheMessageOfTheRule(t *testing.T) {
	for _, tt := range []struct{ rule, accept, body, language string }{
		{"message: 'wait {retry_after}'", "zh", `"detail":"wait 1 min"`, ""},
		{`label: '"a" <b>', message: {en: "{rule}", zh: "{rule}，{retry_after}后"}, response: {body: json}`, "zh-CN, en;q=0.5",
			`"message":"\"a\" <b>，1分钟后"`, "zh"},
		{`label: '"a" <b>', message: {en: "{rule}"}, response: {body: "{{html .Message}} {{.Language}}"}`, "zh",
			"&#34;a&#34; &lt;b&gt; en", "en"},
		{"message: wait, cost: {settle: bytes}", "zh, never", "等待也无法通过", "zh"},
		{"message: {en: 'banned {limit} per {window}, {retry_after}'}, ban: {after: 1 refusals within 10m, for: 2h}", "",
			"banned 2 per 1 minute, 2 hours", "en"},
		{"message: {zh: 错}, deny: {client.ip: 192.0.2.1}", "zh", "该请求不被允许。", "zh"},
		{"limit: sliding_log 1/1m", "zh", "请在1分钟后重试", "zh"},
		{"limit: sliding_log 1/1d", "zh", "请在1天后重试", "zh"},
	} {
		rule := "  - {name: a, key: [client.ip], " + tt.rule
		if !strings.Contains(tt.rule, "limit:") {
			rule += ", limit: sliding_log 2/1m"
		}
		cost := func(*http.Request) int64 { return int64(1 + 2*strings.Count(tt.accept, "never")) }
		handler := byRules(t, newClock().store(), rule+"}", &httplimit.RuleOptions{Cost: cost})(hello)
		var r *httptest.ResponseRecorder
		for range 4 {
			r = ask(handler, "GET", "/", header("Accept-Language", tt.accept))
		}
		if !strings.Contains(r.Body.String(), tt.body) || r.Header().Get("Content-Language") != tt.language ||
			r.Header().Get("Vary") != "Accept-Language" {
			t.Errorf("%s: %v %s", tt.rule, r.Header(), r.Body)
		}
	}
}

func TestByRulesOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name, rule string
		broken     bool // the store
		status     [2]int
		outcome    httplimit.Outcome // of the second
		fields     string            // RateLimit of the second
	}{
		{"no rule", `{name: a, match: {path: /other}, limit: sliding_log 1/1m}`, false, [2]int{200, 200}, httplimit.Skipped, ""},
		{"granted", `{name: a, limit: sliding_log 2/1m}`, false, [2]int{200, 200}, httplimit.Passed, `"a";r=0;t=60`},
		{"refused", `{name: a, limit: sliding_log 1/1m}`, false, [2]int{200, 429}, httplimit.Refused, `"a";r=0;t=60`},
		{"never", `{name: a, cost: 2, limit: sliding_log 2/1m}`, false, [2]int{200, 429}, httplimit.Refused, `"a";r=0;t=60`},
		{"shadow", `{name: a, mode: shadow, limit: sliding_log 1/1m}`, false, [2]int{200, 200}, httplimit.Skipped, ""},
		{"no key: together", `{name: a, key: [user], limit: sliding_log 1/1m}`, false, [2]int{200, 429}, httplimit.Refused, `"a";r=0;t=60`},
		{"no key: skip", `{name: a, key: [user], on_missing: skip, limit: sliding_log 1/1m}`, false, [2]int{200, 200}, httplimit.Skipped, ""},
		{"no key: deny", `{name: a, key: [user], on_missing: deny, limit: sliding_log 1/1m}`, false, [2]int{403, 403}, httplimit.Denied, ""},
		{"no store: deny", `{name: a, on_store_error: deny, limit: sliding_log 1/1m}`, true, [2]int{503, 503}, httplimit.Failed, ""},
		{"no store: allow", `{name: a, on_store_error: allow, limit: sliding_log 1/1m}`, true, [2]int{200, 200}, httplimit.Failed, ""},
		{"no store: local", `{name: a, limit: fixed_window 1/1000000h}`, true, [2]int{200, 429}, httplimit.Refused, `"a";r=0;t=`},
	} {
		store := newClock().store()
		var seen httplimit.Event
		s := serve(t, byRules(t, store, "  - "+tt.rule, &httplimit.RuleOptions{Observe: func(_ *http.Request, e httplimit.Event) { seen = e }})(hello))
		if tt.broken {
			store.Close()
		}
		s.get("/").want(t, tt.status[0], nil)
		r := s.get("/")
		r.want(t, tt.status[1], nil)
		if got := r.Header.Get("RateLimit"); !strings.HasPrefix(got, tt.fields) || (got == "") != (tt.fields == "") {
			t.Errorf("%s: RateLimit is %q, want %q", tt.name, got, tt.fields)
		}
		if seen.Outcome != tt.outcome || tt.broken != errors.Is(seen.Err, weir.ErrClosed) {
			t.Errorf("%s: the observer saw %+v", tt.name, seen)
		}
		if r.StatusCode >= 400 && (r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s: %v", tt.name, r.Header)
		}
		if r.StatusCode != 429 && r.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %d with Retry-After", tt.name, r.StatusCode)
		}
	}
}

// The handler gets the matched path.
func TestHandlerGetsTheMatchedPath(t *testing.T) {
	const text = "  - {name: login, match: {path: /login}, limit: sliding_log 1/1m}"
	for target, want := range map[string]string{
		"/login": "/login", "//login": "/login", "/./login": "/login", "/x/../login": "/login", "/%6cogin": "/login",
		"/%6Cogin?a=/..": "/login", "/login/": "/login/", "/LOGIN": "/LOGIN", "/%256cogin": "/%6cogin", "http://example.com": "/",
		"/a%2flogin": "", "/a%5clogin": "", "/..;/login": "", "/%00": "",
	} {
		var got *http.Request
		handler := byRules(t, newClock().store(), text, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
		sent := httptest.NewRequest("GET", target, nil)
		before := *sent.URL
		r := httptest.NewRecorder()
		handler.ServeHTTP(r, sent)
		if want == "" {
			if r.Code != 400 || got != nil || !strings.Contains(r.Body.String(), "allowed: a path without") && !strings.Contains(r.Body.String(), "have no parameters") {
				t.Errorf("%s is answered %d %s", target, r.Code, r.Body)
			}
			continue
		}
		if got == nil || got.URL.Path != want || got.URL.RawQuery != before.RawQuery {
			t.Errorf("%s is handed on as %v, want %s", target, got.URL, want)
		}
		if limited := r.Header().Get("RateLimit") != ""; limited != (want == "/login") {
			t.Errorf("%s is handed on as %s and limited: %v", target, want, limited)
		}
		if *sent.URL != before {
			t.Errorf("%s: the caller's request was changed to %v", target, sent.URL)
		}
	}
}

func TestWithPathForm(t *testing.T) {
	const text = "  - {name: login, match: {path: /login}, limit: sliding_log 1/1m}"
	handler := byRules(t, newClock().store(), text, &httplimit.RuleOptions{PathForm: &pathform.Form{DropTrailingSlash: true, IgnoreCase: true}})(hello)
	if a, b := ask(handler, "GET", "/Login/").Code, ask(handler, "GET", "/login").Code; a != 200 || b != 429 {
		t.Errorf("%d %d", a, b)
	}
}

// RFC 9112, 3.2.2: the host of an absolute target precedes the Host field.
func TestHosts(t *testing.T) {
	const text = `
  - {name: a, match: {host: api.example.com}, limit: sliding_log 1000/1m}
  - {name: h, key: [host], on_missing: skip, limit: sliding_log 1/1m}
`
	server := httptest.NewServer(byRules(t, newClock().store(), text, nil)(hello))
	defer server.Close()
	for _, tt := range []struct {
		lines string
		want  string
	}{
		{"GET / HTTP/1.1\r\nHost: api.example.com", "200 a h"},
		{"GET / HTTP/1.1\r\nHost: API.example.com", "429"}, // the same to key h
		{"GET / HTTP/1.1\r\nHost: api.example.com.", "429"},
		{"GET / HTTP/1.1\r\nHost: api.example.com:8080", "429"},
		{"GET / HTTP/1.1\r\nHost: api.example.com.:8080", "429"},
		{"GET / HTTP/1.1\r\nHost: api.example.com:", "429"},
		{"GET http://api.example.com:99/ HTTP/1.1\r\nHost: other", "429"},
		{"GET http://other/ HTTP/1.1\r\nHost: api.example.com", "200 h"},
		{"GET / HTTP/1.1\r\nHost: [2001:db8::1]:80", "200 h"},
		{"GET / HTTP/1.1\r\nHost: [2001:db8::1]", "429"},
		{"GET / HTTP/1.0", "200"},
		{"GET / HTTP/1.1\r\nHost:", "400"},
		{"GET / HTTP/1.1\r\nHost: :80", "400"},
		{"GET / HTTP/1.1\r\nHost: api.example.com:80:90", "400"},
		{"GET / HTTP/1.1\r\nHost: api.example.com..", "400"},
		{"GET / HTTP/1.1\r\nHost: api%2eexample.com", "400"},
		{"GET / HTTP/1.1\r\nHost: x@api.example.com", "400"},
		{"GET / HTTP/1.1\r\nHost: api.example.com:a", "400"},
		{"GET / HTTP/1.1\r\nHost: [::1", "400"},
		{"GET / HTTP/1.1\r\nHost: [api.example.com]", "400"},
		{"GET / HTTP/1.1\r\nHost: [::1]x", "400"},
		{"GET / HTTP/1.1\r\nHost: .", "400"},
	} {
		r := raw(t, server.Listener.Addr().String(), tt.lines)
		got := fmt.Sprint(r.StatusCode)
		for _, name := range []string{"a", "h"} {
			if r.StatusCode == 200 && strings.Contains(r.Header.Get("RateLimit"), `"`+name+`"`) {
				got += " " + name
			}
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.lines, got, tt.want)
		}
	}
}

// raw sends lines unchanged.
func raw(t *testing.T, address, lines string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(conn, lines+"\r\nConnection: close\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r
}

func TestMethodsMatchInAnyCase(t *testing.T) {
	const text = "  - {name: writes, match: {method: [POST, DELETE]}, limit: sliding_log 1/1m}\n" +
		"  - {name: reads, match: {method: GET, path: /search}, limit: sliding_log 1/1m}"
	s := byRules(t, newClock().store(), text, nil)(hello)
	if got, head := ask(s, "GET", "/search").Code, ask(s, "HEAD", "/search").Code; got != 200 || head != 429 {
		t.Errorf("GET %d, then HEAD %d: want 200 429", got, head)
	}
	for _, tt := range []struct {
		method, override string
		limited          bool
	}{
		{"POST", "", true}, {"POST", "GET", true}, {"GET", "POST", false}, {"post", "", true}, {"pOsT", "", true}, {"HEAD", "", false}, {"DELETE", "", true}, {"MADEUP", "", false},
	} {
		r := ask(s, tt.method, "/", header("X-HTTP-Method-Override", tt.override))
		if got := r.Header().Get("RateLimit") != ""; got != tt.limited {
			t.Errorf("%+v: limited: %v", tt, got)
		}
	}
}

func TestUnregisteredMethodsAreRefused(t *testing.T) {
	const text = "  - {name: all, limit: sliding_log 100/1m}"
	s := byRules(t, newClock().store(), text, &httplimit.RuleOptions{RegisteredMethods: true})(hello)
	for method, want := range map[string]int{"GET": 200, "PROPFIND": 200, "QUERY": 200, "get": 400, "Post": 400, "MADEUP": 400, "GET ": 400} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method = method
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want || want == 400 && !strings.Contains(w.Body.String(), "a registered method in capitals") {
			t.Errorf("%q: %d %s, want %d", method, w.Code, w.Body, want)
		}
	}
}

func TestClientsBehindProxies(t *testing.T) {
	const text = "  - {name: ip, key: [client.ip], limit: sliding_log 1/1m}"
	clients, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		clients *clientaddr.Extractor
		peer    string
		want    int // of a second client through the same peer
	}{
		"a proxy that is trusted":    {clients, "10.0.0.1:1", 200},
		"one that is not":            {clients, "192.0.2.1:1", 429},
		"no proxies by default":      {nil, "10.0.0.1:1", 429},
		"and of IPv6 a /64 is one":   {nil, "[2001:db8::1]:1", 429},
		"a peer without any address": {nil, "@", 429},
	} {
		handler := byRules(t, newClock().store(), text, &httplimit.RuleOptions{Clients: tt.clients})(hello)
		first := ask(handler, "GET", "/", from(tt.peer), header("X-Forwarded-For", "198.51.100.1"))
		second := ask(handler, "GET", "/", from(tt.peer), header("X-Forwarded-For", "198.51.100.2"))
		if first.Code != 200 || second.Code != tt.want {
			t.Errorf("%s: %d %d, want 200 %d", name, first.Code, second.Code, tt.want)
		}
	}
}

func TestRequestAttributes(t *testing.T) {
	const text = `
  - {name: a, match: {header: {X-Plan: free}, query: {format: pdf}, descriptor: {region: eu}, descriptor_keys: [region, tier]}, key: [user, service, route, cookie.session, header.Host], on_missing: deny, limit: sliding_log 1/1m}
`
	m := byRules(t, newClock().store(), text, &httplimit.RuleOptions{User: func(r *http.Request) string { return r.Header.Get("X-User") }, Service: func(*http.Request) string { return "orders" }, Descriptor: func(_ *http.Request, name string) string { return map[string]string{"region": "eu"}[name] }, DescriptorKeys: func(*http.Request) []string { return []string{"region", "tier"} }})
	mux := http.NewServeMux()
	mux.Handle("/x/{id}", m(hello))
	for _, tt := range []struct {
		target, plan, user, session string
		want                        int
	}{
		{"/x/1?form%61t=pdf", "free", "u", "s", 200},
		{"/x/2?format=pdf&format=html", "free", "u", "s", 429},
		{"/x/2?format=pdf", "free", "v", "s", 200},
		{"/x/2?format=pdf", "free", "v", "t", 200},
		{"/x/2?format=html&format=pdf", "free", "v", "t", 200},
		{"/x/2?format=pdf", "paid", "u", "s", 200},
		{"/x/2?format=pdf", "free", "", "s", 403},
		{"/x/2?format=pdf", "free", "u", "", 403},
	} {
		r := ask(mux, "GET", tt.target, header("X-Plan", tt.plan), header("X-User", tt.user), header("Cookie", "a=b; session="+tt.session))
		if r.Code != tt.want {
			t.Errorf("%+v: %d", tt, r.Code)
		}
	}
}

// net/http reads nothing of input above its maxima, but a service may: rules would not see the values
// that it acts on.
func TestTooManyParametersAndCookies(t *testing.T) {
	handler := byRules(t, newClock().store(), "  - {name: a, match: {query: {a: b}}, limit: sliding_log 1/1m}", nil)(hello)
	for n, want := range map[int]int{9_999: 200, 10_000: 400} {
		if r := ask(handler, "GET", "/?a=b"+strings.Repeat("&x", n)); r.Code != want || (want == 200) != (r.Header().Get("RateLimit") != "") {
			t.Errorf("%d parameters besides: %d %s", n, r.Code, r.Body)
		}
	}
	for n, want := range map[int]int{2_999: 200, 3_000: 400} {
		if r := ask(handler, "GET", "/", header("Cookie", "a=b"+strings.Repeat(";x=y", n))); r.Code != want {
			t.Errorf("%d cookies besides: %d %s", n, r.Code, r.Body)
		}
	}
}

// An invalid cost from WithCost is a mistake of the program.
func TestByRulesWithCost(t *testing.T) {
	text := "  - {name: a, limit: sliding_log 9/1m}"
	for cost, want := range map[int64]int{3: 200, 10: 429, -1: 500} {
		handler := byRules(t, newClock().store(), text, &httplimit.RuleOptions{Cost: func(*http.Request) int64 { return cost }})(hello)
		r := ask(handler, "GET", "/")
		if r.Code != want || cost == 3 && r.Header().Get("RateLimit") != `"a";r=6;t=60` {
			t.Errorf("cost %d: %d %v", cost, r.Code, r.Header())
		}
	}
}

func TestCanceledRequestIsNotServed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store := memstore.New()
	handler := byRules(t, store, "  - {name: a, on_store_error: allow, limit: sliding_log 9/1m}", nil)(hello)
	store.Close()
	r := httptest.NewRecorder()
	handler.ServeHTTP(r, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if r.Code != 503 {
		t.Errorf("%d", r.Code)
	}
}

func TestByRulesKeepsResponseWriterAndFields(t *testing.T) {
	recorder := httptest.NewRecorder()
	recorder.Header().Set("RateLimit", `"outer";r=1`)
	recorder.Header().Set("RateLimit-Policy", `"outer";q=1`)
	byRules(t, newClock().store(), siteAndIP, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if w != http.ResponseWriter(recorder) {
			t.Errorf("the handler got a %T of another make", w)
		}
		w.Header().Add("RateLimit", `"inner";r=2`)
		w.Header().Add("RateLimit-Policy", `"inner";q=2`)
	})).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	for name, want := range map[string]string{
		"RateLimit":        `"outer";r=1 | "site";r=8;t=60, "ip";r=0;t=60, "ip.2";r=4;t=3600 | "inner";r=2`,
		"RateLimit-Policy": `"outer";q=1 | "site";q=9;w=60, "ip";q=1;w=60, "ip.2";q=5;w=3600 | "inner";q=2`,
	} {
		if got := strings.Join(recorder.Header().Values(name), " | "); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// TestFieldsOfManyLimitsFitAProxy: nginx cannot read a head over 4 KB, and would take weir for unavailable. The
// limits that are furthest from their end are left out.
func TestFieldsOfManyLimitsFitAProxy(t *testing.T) {
	var text strings.Builder
	for i := range 32 {
		limit := 1000 + i
		if i == 31 {
			limit = 1
		}
		fmt.Fprintf(&text, "  - {name: r%02d-%s, limit: fixed_window %d/1h}\n", i, strings.Repeat("n", 110), limit)
	}
	handler := byRules(t, newClock().store(), text.String(), nil)(hello)
	for _, status := range []int{200, 429} {
		r := ask(handler, "GET", "/")
		limits, policy := r.Header().Get("RateLimit"), r.Header().Get("RateLimit-Policy")
		if size := len(limits) + len(policy); r.Code != status || size > 2048 || size < 1700 {
			t.Errorf("%d, want %d; %d bytes of fields", r.Code, status, size)
		}
		if !strings.HasPrefix(limits, `"r31-`) || !strings.HasPrefix(policy, `"r31-`) {
			t.Errorf("the limit without units is not the first: %.60s", limits)
		}
		if strings.Count(limits, ";r=") != strings.Count(policy, ";q=") {
			t.Errorf("the fields describe different limits: %s | %s", limits, policy)
		}
	}
}

// The two fields share one slice: appending to the first must not overwrite the second.
func TestAppendingToAFieldKeepsTheOther(t *testing.T) {
	r := ask(byRules(t, newClock().store(), siteAndIP, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("RateLimit-Policy", "x")
	})), "GET", "/")
	if got := r.Header().Values("RateLimit"); len(got) != 1 || !strings.HasPrefix(got[0], `"site"`) {
		t.Errorf("RateLimit is %q", got)
	}
}

func TestByRulesLeakyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := byRules(t, memstore.New(), "  - {name: q, limit: leaky_queue 1/1s queue 5}", nil)(hello)
		start := time.Now()
		for i := range 3 {
			if r := ask(handler, "GET", "/"); r.Code != 200 || time.Since(start) != time.Duration(i)*time.Second {
				t.Errorf("request %d: %d after %v", i, r.Code, time.Since(start))
			}
		}
	})
}

// A client that a concurrency limit refuses is told the usual time for which its units are held, not the time-to-live.
func TestRefusedClientsAreToldTheUsualTimeHeld(t *testing.T) {
	for _, tt := range []struct{ way, limits, first, second string }{
		{"New", "concurrency 1 ttl 1m", "6", "2"},
		{"Together", "concurrency 1 ttl 1m", "6", "2"},
		{"ByRules", "concurrency 1 ttl 1m", "6", "2"},
		{"ByRules", "concurrency 1 ttl 1m retry_after 9s", "9", "9"},
		{"ByRules", "[concurrency 1 ttl 1m, 1/5s]", "6", "5"},
		{"ByRules", "concurrency 1 ttl 1s", "1", "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := weir.MustLimit("jobs", weir.Concurrency{Limit: 1, TTL: time.Minute})
			store := memstore.New()
			var m middleware
			switch tt.way {
			case "New":
				one, _ := weir.NewLimiter(store, limit)
				m = perAddress(t, one, nil)
			case "Together":
				m = together(t, store, []httplimit.Part{{Key: httplimit.Constant("all"), Limits: []*weir.Limit{limit}}}, nil)
			default:
				m = byRules(t, store, "  - {name: jobs, limit: "+tt.limits+"}", nil)
			}
			handler := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) }))
			for i, want := range []string{tt.first, tt.second} {
				time.Sleep(time.Minute)
				var done sync.WaitGroup
				done.Go(func() { ask(handler, "GET", "/") })
				synctest.Wait()
				refused := ask(handler, "GET", "/").Result()
				wait, limits := refused.Header.Get("Retry-After"), refused.Header.Get("RateLimit")
				body, _ := io.ReadAll(refused.Body)
				if wait != want || !strings.Contains(limits, `"jobs";r=0;t=`) || strings.Contains(limits, "t=60") ||
					!strings.Contains(string(body), "in "+want+" s") {
					t.Errorf("%s, %s, refusal %d: Retry-After %s, want %s; RateLimit %s; %s", tt.way, tt.limits, i, wait, want, limits, body)
				}
				done.Wait()
			}
		})
	}
}

// With either middleware, requests longer than the time-to-live stay counted, and are released at
// their end, also after a panic.
func TestLongRequestsKeepTheirLeases(t *testing.T) {
	limit := weir.MustLimit("jobs", weir.Concurrency{Limit: 1, TTL: 3 * time.Second})
	parts := []httplimit.Part{{Key: httplimit.Constant("all"), Limits: []*weir.Limit{limit, weir.MustLimit("rate", weir.PerSecond(1000))}}}
	for _, name := range []string{"New", "Together", "ByRules", "ByRules, shadow"} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			one, err := weir.NewLimiter(store, limit)
			if err != nil {
				t.Fatal(err)
			}
			fail := func(_ *http.Request, e httplimit.Event) {
				if e.Outcome >= httplimit.Failed {
					t.Errorf("%s: %+v", name, e)
				}
			}
			options, ruled := &httplimit.Options{Observe: fail}, &httplimit.RuleOptions{Observe: fail}
			m := map[string]func() middleware{
				"New":      func() middleware { return perAddress(t, one, options) },
				"Together": func() middleware { return together(t, store, parts, options) },
				"ByRules":  func() middleware { return byRules(t, store, "  - {name: jobs, limit: concurrency 1 ttl 3s}", ruled) },
				"ByRules, shadow": func() middleware {
					return byRules(t, store, "  - {name: jobs, mode: shadow, limit: concurrency 1 ttl 3s}", ruled)
				},
			}[name]()
			handler := m(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/long" {
					time.Sleep(time.Minute)
				}
				if r.URL.Path == "/panic" {
					panic(http.ErrAbortHandler)
				}
			}))
			busy := 429
			if name == "ByRules, shadow" {
				busy = 200
			}
			var long sync.WaitGroup
			ctx, leave := context.WithCancel(t.Context())
			long.Go(func() {
				ask(handler, "GET", "/long", func(r *http.Request) { *r = *r.WithContext(ctx) })
			})
			synctest.Wait()
			leave() // its client has gone, and it goes on
			for range 5 {
				time.Sleep(10 * time.Second)
				if r := ask(handler, "GET", "/"); r.Code != busy {
					t.Errorf("%s: while one runs, another is answered %d", name, r.Code)
				}
			}
			long.Wait()
			func() {
				defer func() { recover() }()
				ask(handler, "GET", "/panic")
			}()
			if r := ask(handler, "GET", "/"); r.Code != 200 {
				t.Errorf("%s: after them: %d", name, r.Code)
			}
		})
	}
}

// A flaky store refuses to renew.
type flaky struct {
	weir.Store
	answer error
}

func (f *flaky) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if claims[0].Renew {
		return 0, f.answer
	}
	return f.Store.Decide(ctx, claims, times, decisions)
}

func TestLostLeaseIsReported(t *testing.T) {
	for _, answer := range []error{nil, weir.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var events []string
			observe := &httplimit.RuleOptions{Observe: func(_ *http.Request, e httplimit.Event) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, fmt.Sprintf("%d %v", e.Outcome, e.Err))
			}}
			store := &flaky{memstore.New(), answer}
			handler := byRules(t, store, "  - {name: jobs, limit: concurrency 1 ttl 4s}", observe)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				time.Sleep(3900 * time.Millisecond)
			}))
			r := ask(handler, "GET", "/")
			synctest.Wait()
			want := []string{"0 <nil>", fmt.Sprintf("%d %v", httplimit.Unrenewed, weir.ErrLeaseGone)}
			if answer != nil {
				again := fmt.Sprintf("%d %v", httplimit.Unrenewed, answer)
				want = []string{"0 <nil>", again, again, again, again}
			}
			if r.Code != 200 || !slices.Equal(events, want) {
				t.Errorf("%d, events %q, want %q", r.Code, events, want)
			}
		})
	}
}

func TestAGateIsNeeded(t *testing.T) {
	if _, err := httplimit.ByRules(nil, nil); err == nil {
		t.Error("no gate: no error")
	}
}

// TestBanIsReportedInTheRefusal: a banned client gets the end of the ban; other clients see no bans.
func TestBanIsReportedInTheRefusal(t *testing.T) {
	handler := byRules(t, memstore.New(), `  - {name: login, limit: fixed_window 1/1m, ban: {after: 1 refusal within 1m, for: 10m}}`, nil)(http.NotFoundHandler())
	for i, want := range []string{
		`404  "login";q=1;w=60 "login";r=0;t=60`,
		`429 600 "login";q=1;w=60 "login";r=0;t=60`, // the refusal that causes the ban
		`429 600 "login";q=1;w=60 "login";r=0;t=60, "login.ban";r=0;t=600`,
	} {
		w := ask(handler, "GET", "/")
		h := w.Header()
		if got := fmt.Sprint(w.Code, " ", h.Get("Retry-After"), " ", h.Get("RateLimit-Policy"), " ", h.Get("RateLimit")); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
		if i == 2 && !strings.Contains(w.Body.String(), `["login","login.ban"]`) {
			t.Errorf("the body is %s", w.Body)
		}
	}
}

// TestRepeatedRequestIsServedOrRefused, by the Idempotency-Key that clients send.
func TestRepeatedRequestIsServedOrRefused(t *testing.T) {
	const once = `  - {name: order, limit: fixed_window 2/1m, once: {by: header.Idempotency-Key, for: 10m`
	for _, tt := range []struct{ rules, id, want string }{
		{once + "}}", "", "200 200 429 429 429"}, {once + "}}", "a", "200 200 200 200 200"},
		{once + ", repeat: refuse}}", "a", "200 409 409 409 409"},
		{once + "}}", strings.Repeat("a", 257), "400 400 400 400 400"},
	} {
		handler := byRules(t, memstore.New(), tt.rules, nil)(hello)
		got, body := "", ""
		for range 5 {
			w := ask(handler, "POST", "/", header("Idempotency-Key", tt.id))
			got += fmt.Sprint(w.Code, " ")
			body = w.Body.String()
			if w.Code == 409 && w.Header().Get("Retry-After")+w.Header().Get("RateLimit") != "" {
				t.Errorf("a repetition has the fields %v", w.Header())
			}
		}
		if strings.TrimSpace(got) != tt.want {
			t.Errorf("%s, id %.9q: %s; want %s", tt.rules, tt.id, got, tt.want)
		}
		if strings.Contains(got, "409") && !strings.Contains(body, "This request was accepted before") {
			t.Errorf("the body is %s", body)
		}
	}
}

func TestTitlesOfProblemsInChinese(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		broken bool // the store
		status int
		title  string
	}{
		{`{name: a, limit: sliding_log 1/1m}`, false, 429, "请求超出限额"},
		{`{name: a, limit: sliding_log 1/1m, ban: {after: 1 refusals within 1m, for: 1m}}`, false, 429, "请求超出限额"},
		{`{name: a, limit: sliding_log 1/1m, deny: {client.ip: 192.0.2.1}}`, false, 403, "禁止访问"},
		{`{name: a, limit: sliding_log 1/1m, once: {by: header.X-Once, for: 1m, repeat: refuse}}`, false, 409, "请求冲突"},
		{`{name: a, limit: sliding_log 1/1m, on_store_error: deny}`, true, 503, "服务暂不可用"},
		{`{name: a, limit: sliding_log 1/1m, key: [header.X-Id]}`, false, 400, "请求无效"},
	} {
		store := newClock().store()
		handler := byRules(t, store, "  - "+tt.rule, nil)(hello)
		if tt.broken {
			store.Close()
		}
		var last *httptest.ResponseRecorder
		for range 3 {
			last = ask(handler, "GET", "/", header("Accept-Language", "zh-CN"), header("X-Id", "a"), header("X-Id", "b"),
				header("X-Once", "order"))
		}
		var problem struct{ Title string }
		if err := json.Unmarshal(last.Body.Bytes(), &problem); err != nil || last.Code != tt.status || problem.Title != tt.title {
			t.Errorf("%s: %d %s, want %d %s", tt.rule, last.Code, last.Body, tt.status, tt.title)
		}
	}
	for status, want := range map[int]string{429: "请求过多", 500: "服务器内部错误", 418: "I'm a teapot"} {
		if got := wording.Title("zh", status); got != want {
			t.Errorf("title of %d: %s, want %s", status, got, want)
		}
	}
}

// TestRefusalHasTheIDThatObserversRead: what a client quotes is found in the audit log.
func TestRefusalHasTheIDThatObserversRead(t *testing.T) {
	const traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var seen []string
	observe := gate.WithObserver(func(v *gate.Verdict) {
		method, path := v.Target()
		seen = []string{v.RequestID(), v.RequestID(), method, path, v.Client.String()}
	})
	g := gatetest.New(t, memstore.New(), "rules: [{name: r, match: {path: /x/*}, limit: 1/1h}]", observe)
	m, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	rules, limits := m(hello), perAddress(t, limiter(t, memstore.New(), weir.SlidingLog{Limit: 1, Window: time.Hour}), nil)(hello)
	ask(rules, "GET", "/x/1")
	ask(limits, "GET", "/x/1")
	if seen[0] != "" {
		t.Errorf("a granted request has the id %s, which nobody else knows", seen[0])
	}
	for _, c := range []struct{ name, value, want string }{
		{"X-Request-Id", "req-7", "req-7"},
		{"Traceparent", traced, "4bf92f3577b34da6a3ce929d0e0e4736"},
		{"X-Request-Id", `a/b"?`, `a/b"?`},
		{"X-Request-Id", "", ""},
		{"X-Request-Id", strings.Repeat("a", 129), ""},
		{"X-Request-Id", "two words", ""},
		{"X-Request-Id", "\xff", ""},
	} {
		for kind, handler := range map[string]http.Handler{"rules": rules, "limits": limits} {
			seen = nil
			refused := ask(handler, "GET", "/x/1", header(c.name, c.value))
			id := refused.Header().Get("X-Request-Id")
			if want := c.want; id != want && (want != "" || !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(id)) {
				t.Errorf("%s: %s %q: the response has the id %q", kind, c.name, c.value, id)
			}
			if want := []string{id, id, "GET", "/x/1", "192.0.2.1"}; seen != nil && !slices.Equal(seen, want) {
				t.Errorf("%s %q: observers read %q, want %q", c.name, c.value, seen, want)
			}
			var problem struct{ Instance string }
			json.Unmarshal(refused.Body.Bytes(), &problem)
			if u, err := url.Parse(problem.Instance); err != nil || u.Scheme != "urn" || problem.Instance != "urn:weir:request:"+url.PathEscape(id) {
				t.Errorf("%s: the instance is %q: %v", kind, problem.Instance, err)
			}
		}
	}
}
