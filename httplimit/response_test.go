package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
)

// Each outcome, family of fields and body, as the deciding rule defines it.
func TestDecidingRuleSetsTheResponse(t *testing.T) {
	outcomes := map[string]struct {
		rule   string
		status int
		broken bool
	}{
		"granted": {"limit: sliding_log 2/1m", 200, false},
		"refused": {"limit: sliding_log 2/1m, cost: {default: 2}", 429, false},
		"denied":  {"limit: sliding_log 2/1m, deny: {header.X-Who: [mallory]}", 403, false},
		"missing": {"limit: sliding_log 2/1m, key: [user], on_missing: deny", 403, false},
		"failed":  {"limit: sliding_log 2/1m, on_store_error: deny", 503, true},
		"cost":    {"limit: sliding_log 2/1m, cost: {from: header.X-Cost, max: 2}", 400, false},
	}
	fields := map[string][3]string{ // granted, refused, and of neither
		"draft":     {`RateLimit "a";r=1;t=60`, `RateLimit "a";r=0;t=60`, ""},
		"seconds":   {"X-RateLimit-Reset 60", "X-RateLimit-Reset 60", ""},
		"unix_time": {"X-RateLimit-Reset 1790000061", "X-RateLimit-Reset 1790000061", ""},
		"none":      {"", "", ""},
	}
	bodies := map[string]struct{ text, kind, refused string }{
		"problem":  {"problem", "application/problem+json", `"violated-policies":["a"]`},
		"json":     {"json", "application/json", `{"code":429,"message":"Too many requests: try again in 1 minute.","retry_after":60}`},
		"template": {"'{{.Status}}|{{.RetryAfter}}|{{.Message}}|{{json .Violated}}|{{.Language}}', content_type: text/x-own", "text/x-own", `429|60|Too many requests: try again in 1 minute.|["a"]|en`},
	}
	for outcome, o := range outcomes {
		for family, f := range fields {
			for body, b := range bodies {
				name := outcome + " " + family + " " + body
				store := newClock().store()
				text := fmt.Sprintf("  - {name: a, %s, response: {fields: %s, body: %s}}", o.rule, family, b.text)
				handler := byRules(t, store, text, nil)(hello)
				if o.broken {
					store.Close()
				}
				if outcome == "refused" {
					ask(handler, "GET", "/")
				}
				r := ask(handler, "GET", "/", header("X-Who", "mallory"), header("X-Cost", "3"))
				if r.Code != o.status {
					t.Errorf("%s: %d %s", name, r.Code, r.Body)
				}
				want := f[2]
				switch outcome {
				case "granted":
					want = f[0]
				case "refused":
					want = f[1]
				}
				if got := limitFields(r.Header()); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
				if outcome == "granted" {
					continue
				}
				if r.Header().Get("Content-Type") != b.kind || r.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("%s: %v", name, r.Header())
				}
				refused := b.refused
				if family == "none" { // limits without fields are not named either
					refused = strings.NewReplacer(`"violated-policies":["a"]`, `"status":429`, `["a"]`, "null").Replace(refused)
				}
				if outcome == "refused" && !strings.Contains(r.Body.String(), refused) {
					t.Errorf("%s: %s, want %s", name, r.Body, refused)
				}
				if retry := r.Header().Get("Retry-After"); (retry == "60") != (outcome == "refused") {
					t.Errorf("%s: Retry-After is %q", name, retry)
				}
				if strings.Contains(r.Body.String(), "mallory") || strings.Contains(r.Body.String(), "list") {
					t.Errorf("%s: the denial reveals its reason: %s", name, r.Body)
				}
			}
		}
	}
}

// limitFields has the fields about limits, the last of each family for all.
func limitFields(h http.Header) string {
	var all []string
	for _, name := range []string{"RateLimit", "X-RateLimit-Reset"} {
		for _, value := range h.Values(name) {
			all = append(all, name+" "+value)
		}
	}
	return strings.Join(all, ", ")
}

// One pair of fields for all rules with draft fields, one triple for the most restrictive other.
func TestFieldFamiliesCoexist(t *testing.T) {
	const text = `
  - {name: site, limit: sliding_log 100/1m}
  - {name: old, limit: sliding_log 5/1m, response: {fields: seconds}}
  - {name: older, limit: sliding_log 3/10s, response: {fields: unix_time}}
  - {name: ip, key: [client.ip], limit: sliding_log 10/1h}
  - {name: secret, limit: sliding_log 1000/1h, response: {fields: none, status: 418}}
  - {name: tried, mode: shadow, limit: sliding_log 1/1h}
`
	clock := newClock()
	handler := byRules(t, clock.store(), text, nil)(hello)
	r := ask(handler, "GET", "/")
	for name, want := range map[string]string{
		"RateLimit-Policy": `"site";q=100;w=60, "ip";q=10;w=3600`, "RateLimit": `"site";r=99;t=60, "ip";r=9;t=3600`,
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "1790000011",
	} {
		if got := strings.Join(r.Header().Values(name), " | "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	items(t, r.Header().Values("RateLimit"))
	for range 2 {
		ask(handler, "GET", "/")
	}
	if r = ask(handler, "GET", "/"); r.Code != 429 || r.Header().Get("X-RateLimit-Remaining") != "0" || !strings.Contains(r.Body.String(), `["older"]`) {
		t.Errorf("%d %v %s", r.Code, r.Header(), r.Body)
	}
}

func TestStatusesAndLists(t *testing.T) {
	const text = `
  - {name: a, match: {path: /a}, limit: sliding_log 1/1m, response: {status: 503}}
`
	m, err := httplimit.ByRules(gateOf(t, newClock().store(), text+"\ndeny: {client.ip: [203.0.113.0/24]}\nallow: {header.X-Pass: [yes-please]}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	handler := m(hello)
	for i, tt := range []struct {
		peer, pass string
		want       int
	}{{"192.0.2.1:1", "", 200}, {"192.0.2.1:1", "", 503}, {"192.0.2.1:1", "yes-please", 200}, {"203.0.113.9:1", "", 403}} {
		r := ask(handler, "GET", "/a", from(tt.peer), header("X-Pass", tt.pass))
		if r.Code != tt.want || (tt.want == 503) != (r.Header().Get("Retry-After") == "60") {
			t.Errorf("request %d: %d %v", i, r.Code, r.Header())
		}
	}
}

// left is the remaining quota of a limit of 100/1h on the key "all".
func left(t *testing.T, g *gate.Gate) int64 {
	t.Helper()
	var v gate.Verdict
	ask := gate.Ask{Claims: []weir.Claim{{Key: "all", Limit: g.Rules().Rules()[0].Limits()[0]}}}
	if err := g.Decide(t.Context(), nil, ask, &v); err != nil {
		t.Fatal(err)
	}
	return v.At(0).Decision.Remaining
}

func TestSettleByResponse(t *testing.T) {
	const (
		byHeader = "  - {name: a, limit: sliding_log 100/1h, cost: {default: 10, settle: header.X-Cost}}"
		byBytes  = "  - {name: a, limit: sliding_log 100/1h, cost: {default: 10, settle: bytes}}"
		shadow   = "  - {name: a, limit: sliding_log 100/1h, cost: {default: 10}}\n  - {name: b, mode: shadow, limit: sliding_log 100/1h, cost: {settle: header.X-Cost}}"
	)
	set := func(name, value string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(name, value) }
	}
	for _, tt := range []struct {
		name, text string
		handler    http.HandlerFunc
		left       int64
		unsettled  bool
	}{
		{"less", byHeader, set("X-Cost", "3"), 97, false},
		{"more, over the limit", byHeader, set("X-Cost", "120"), 0, false},
		{"nothing", byHeader, set("X-Cost", "0"), 100, false},
		{"a trailer with the prefix", byHeader, set("Trailer:X-Cost", " 4 "), 96, false},
		{"a trailer that was announced", byHeader, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Cost")
			io.WriteString(w, "hello")
			w.Header().Set("X-Cost", "5")
		}, 95, false},
		{"a trailer after a header", byHeader, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "5")
			w.Header().Set("Trailer:X-Cost", "6")
		}, 94, false},
		{"the last of two", byHeader, func(w http.ResponseWriter, _ *http.Request) { w.Header()["X-Cost"] = []string{"5", "7"} }, 93, false},
		{"no header", byHeader, func(http.ResponseWriter, *http.Request) {}, 90, true},
		{"no number", byHeader, set("X-Cost", "a few"), 90, true},
		{"a sign", byHeader, set("X-Cost", "+3"), 90, true},
		{"a fraction", byHeader, set("X-Cost", "3.0"), 90, true},
		{"below nothing", byHeader, set("X-Cost", "-3"), 90, true},
		{"more than there is", byHeader, set("X-Cost", "99999999999999999999"), 90, true},
		{"a panic after the header", byHeader, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "7")
			panic(http.ErrAbortHandler)
		}, 93, false},
		{"a panic", byHeader, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 90, true},
		{"bytes", byBytes, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello"); w.Write([]byte(" world")) }, 89, false},
		{"bytes from a reader", byBytes, func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, onlyReader{strings.NewReader("hello")}) }, 95, false},
		{"bytes until a panic", byBytes, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "he"); panic(http.ErrAbortHandler) }, 98, false},
		{"no bytes", byBytes, func(http.ResponseWriter, *http.Request) {}, 100, false},
		{"a shadow rule alone", shadow, set("X-Cost", "50"), 90, false},
	} {
		g := gateOf(t, newClock().store(), tt.text)
		var unsettled error
		m, err := httplimit.ByRules(g, &httplimit.RuleOptions{Observe: func(_ *http.Request, e httplimit.Event) {
			if e.Outcome == httplimit.Unsettled {
				unsettled = e.Err
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() { recover() }()
			ask(m(tt.handler), "GET", "/")
		}()
		if got := left(t, g); got != tt.left || tt.unsettled != (unsettled != nil) {
			t.Errorf("%s: %d are left, want %d; unsettled: %v", tt.name, got, tt.left, unsettled)
		}
	}
}

type onlyReader struct{ io.Reader }

// The upstream of a proxy reports the cost, in a trailer after a stream.
func TestSettleByUpstreamResponse(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/trailer" {
			w.Header().Set("Trailer", "X-Cost")
		} else {
			w.Header().Set("X-Cost", "20")
		}
		io.WriteString(w, "a stream")
		w.(http.Flusher).Flush()
		w.Header().Set("X-Cost", "30")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := gateOf(t, newClock().store(), "  - {name: a, limit: sliding_log 100/1h, cost: {settle: header.X-Cost}}")
	m, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	inner := m(httputil.NewSingleHostReverseProxy(target))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r); done <- true }))
	for _, tt := range []struct {
		path string
		left int64
	}{{"/header", 80}, {"/trailer", 50}} {
		s.get(tt.path).want(t, 200, nil)
		<-done
		if got := left(t, g); got != tt.left {
			t.Errorf("after %s %d are left, want %d", tt.path, got, tt.left)
		}
	}
}

func TestCostAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		method   string
		handler  http.HandlerFunc
		estimate int64
		seen     string
		left     int64
	}{
		"body":      {"GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); io.WriteString(w, "four") }, 9, "201 4", 96},
		"more":      {"GET", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "eleven byte") }, 9, "200 11", 89},
		"nothing":   {"GET", func(http.ResponseWriter, *http.Request) {}, 9, "200 0", 100},
		"after all": {"GET", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "four") }, 0, "200 4", 96},
		"HEAD":      {"HEAD", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "four") }, 9, "200 0", 100},
		"status": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(200)
			io.WriteString(w, "four")
		}, 9, "404 4", 96},
		"flush":     {"GET", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(404) }, 9, "200 0", 100},
		"no hijack": {"GET", func(w http.ResponseWriter, _ *http.Request) { w.(http.Hijacker).Hijack() }, 9, "200 0", 100},
		"a panic":   {"GET", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 9, "0 0", 100},
		"no cost":   {"GET", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "-1") }, 9, "200 0", 91},
	} {
		for _, kind := range []string{"New", "Together"} {
			store := newClock().store()
			limit := weir.MustLimit("a", weir.SlidingLog{Limit: 100, Window: 60e9})
			ownLimit := weir.MustLimit("b", weir.SlidingLog{Limit: 7, Window: 60e9})
			l, err := weir.NewLimiter(store, limit)
			if err != nil {
				t.Fatal(err)
			}
			var seen string
			var events []httplimit.Outcome
			options := &httplimit.Options{
				Cost: func(*http.Request) int64 { return tt.estimate },
				CostAfter: func(_ *http.Request, status int, header http.Header, bytes int64) int64 {
					seen = fmt.Sprint(status, " ", bytes)
					if header.Get("X-Cost") != "" {
						return -1
					}
					return bytes
				},
				Observe: func(_ *http.Request, e httplimit.Event) { events = append(events, e.Outcome) },
			}
			key := httplimit.Constant("all")
			m, err := httplimit.New(l, key, options)
			if kind == "Together" {
				own := httplimit.Part{Key: key, Limits: []*weir.Limit{ownLimit}, Cost: func(*http.Request) int64 { return 2 }}
				m, err = httplimit.Together(store, []httplimit.Part{{Key: key, Limits: []*weir.Limit{limit}}, own}, options)
			}
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { recover() }()
				ask(m(tt.handler), tt.method, "/")
			}()
			if other, err := weir.NewLimiter(store, ownLimit); err != nil || kind == "Together" && remaining(t, other) != 5 {
				t.Errorf("%s: a part with a cost of its own has %d left, want 5 (%v)", name, remaining(t, other), err)
			}
			answer, err := l.PeekN(t.Context(), "all", 0)
			if err != nil || answer.Remaining != tt.left || seen != tt.seen {
				t.Errorf("%s, %s: %d are left, want %d; it saw %q, want %q (%v)", kind, name, answer.Remaining, tt.left, seen, tt.seen, err)
			}
			want := []httplimit.Outcome{httplimit.Passed}
			if name == "no cost" {
				want = append(want, httplimit.Unsettled)
			}
			if !slices.Equal(events, want) {
				t.Errorf("%s, %s: events were %v", kind, name, events)
			}
		}
	}
}

func remaining(t *testing.T, l *weir.Limiter) int64 {
	t.Helper()
	answer, err := l.PeekN(t.Context(), "all", 0)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Remaining
}

// A remote store does nothing with a canceled context.
type remote struct{ weir.Store }

func (s remote) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Charge(ctx, claims, decisions)
}

func (s remote) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, decisions []weir.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Refund(ctx, claims, at, decisions)
}

// A request canceled during its delay was not served: its charge stays, and is not settled from a
// response that does not exist.
func TestCanceledDelayIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateOf(t, memstore.New(), "  - {name: a, limit: sliding_log 100/1h, cost: {default: 10, settle: bytes}}\n  - {name: q, limit: leaky_queue 1/1s queue 5}")
		m, err := httplimit.ByRules(g, nil)
		if err != nil {
			t.Fatal(err)
		}
		handler := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask(handler, "GET", "/")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		r := ask(handler, "GET", "/", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if got := left(t, g); r.Code != 503 || got != 90 {
			t.Errorf("%d, and %d are left, want 503 and 90", r.Code, got)
		}
	})
}

// Leases and costs are settled for a disconnected client too.
func TestCanceledRequestIsSettled(t *testing.T) {
	g := gateOf(t, remote{memstore.New()}, "  - {name: a, limit: sliding_log 100/1h, cost: {default: 10, settle: bytes}}\n  - {name: jobs, limit: concurrency 1 ttl 1h}")
	m, err := httplimit.ByRules(g, &httplimit.RuleOptions{Observe: func(_ *http.Request, e httplimit.Event) {
		if e.Err != nil {
			t.Errorf("%+v", e)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		r := ask(m(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "12345")
			cancel()
		})), "GET", "/", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if r.Code != 200 {
			t.Errorf("%d %s", r.Code, r.Body)
		}
	}
	if got := left(t, g); got != 90 {
		t.Errorf("%d are left, want 90", got)
	}
}

// A measured ResponseWriter keeps the features of net/http's.
func TestMeterKeepsResponseWriterFeatures(t *testing.T) {
	text := "  - {name: a, limit: sliding_log 100000/1h, cost: {settle: bytes}}"
	g := gateOf(t, newClock().store(), text)
	m, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool, 1)
	inner := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/flush":
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			<-r.Context().Done() // the client disconnects after the first part
		case "/hijack":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			conn.Close()
		case "/copy":
			if _, ok := w.(io.ReaderFrom); !ok {
				t.Error("files are not copied by the kernel")
			}
			http.ServeFile(w, r, "doc.go")
		}
	}))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r); done <- true }))
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", s.url+"/flush", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(response.Body).Peek(5)
	if string(first) != "first" || err != nil {
		t.Errorf("%q, %v", first, err)
	}
	leave()
	<-done
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "101") {
		t.Errorf("%q, %v", line, err)
	}
	conn.Close()
	<-done
	copied := s.get("/copy")
	<-done
	if got := left(t, g); got != 100000-5-int64(len(copied.text)) || len(copied.text) < 100 {
		t.Errorf("%d are left after 5 and %d bytes", got, len(copied.text))
	}
}

// A hijackable writer is that of a connection that can be taken over.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func TestStatusOfHijackedResponse(t *testing.T) {
	for _, sent := range []int{0, 404} {
		seen := -1
		l, err := weir.New(newClock().store(), "a", weir.SlidingLog{Limit: 100, Window: 60e9})
		if err != nil {
			t.Fatal(err)
		}
		m, err := httplimit.New(l, httplimit.Constant("all"), &httplimit.Options{CostAfter: func(_ *http.Request, status int, _ http.Header, _ int64) int64 { seen = status; return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		handler := m(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if sent != 0 {
				w.WriteHeader(sent)
			}
			w.(http.Hijacker).Hijack()
		}))
		handler.ServeHTTP(hijackable{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
		if want := map[int]int{0: 101, 404: 404}[sent]; seen != want {
			t.Errorf("after %d the status is %d, want %d", sent, seen, want)
		}
	}
}

// TestBrowsersAreRefusedWithAPage where the rules state no body, and others as before.
func TestBrowsersAreRefusedWithAPage(t *testing.T) {
	const (
		page, problem = "text/html; charset=utf-8", "application/problem+json"
		text          = `
  - {name: usual, match: {path: /usual}, limit: fixed_window 1/1h, message: "<b>{retry_after}</b>"}
  - {name: problem, match: {path: /problem}, limit: fixed_window 1/1h, response: {body: problem}}
  - {name: json, match: {path: /json}, limit: fixed_window 1/1h, response: {body: json}}
  - {name: own, match: {path: /own}, limit: fixed_window 1/1h, response: {body: "<p>own</p>"}}
  - {name: key, match: {path: /key}, key: [query.k], limit: 9/1h}
deny: {query.who: mallory}`
	)
	g := gateOf(t, newClock().store(), text)
	for _, test := range []struct {
		target, kind string
		status       int
	}{
		{"/usual", page, 429}, {"/problem", problem, 429}, {"/json", "application/json", 429},
		{"/own", "text/plain; charset=utf-8", 429}, {"/?who=mallory", page, 403}, {"/key?k=1&k=2", page, 400},
	} {
		for _, pages := range []bool{true, false} {
			kind, vary := test.kind, "Accept-Language"
			if kind == page && pages {
				vary = "Accept, Accept-Language"
			} else if kind == page {
				kind = problem
			}
			m, err := httplimit.ByRules(g, &httplimit.RuleOptions{Pages: pages})
			if err != nil {
				t.Fatal(err)
			}
			ask(m(hello), "GET", test.target)
			browser := ask(m(hello), "GET", test.target, header("Accept", "text/html,*/*;q=0.8"))
			program := ask(m(hello), "GET", test.target, header("Accept", "*/*"))
			h := browser.Header()
			if browser.Code != test.status || h.Get("Content-Type") != kind || h.Get("Vary") != vary ||
				h.Get("Cache-Control") != "no-store" || (h.Get("Content-Security-Policy") != "") != (kind == page) {
				t.Errorf("%s, pages %v: %d %v", test.target, pages, browser.Code, h)
			}
			if body := browser.Body.String(); kind == page && !strings.Contains(body, "<dd>"+h.Get("X-Request-Id")+"</dd>") ||
				kind == page && test.status == 429 && !strings.Contains(body, ">&lt;b&gt;1 h&lt;/b&gt;</p>") {
				t.Errorf("%s: %s", test.target, body)
			}
			if got := program.Header(); test.kind == page && got.Get("Content-Type") != problem || got.Get("Vary") != vary {
				t.Errorf("%s, pages %v, a program: %v", test.target, pages, got)
			}
		}
	}
}
