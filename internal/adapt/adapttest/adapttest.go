// Package adapttest is the suite that the adapter of each framework passes, over real sockets.
package adapttest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A Framework is the subject of the suite.
type Framework struct {
	// Serve starts a server until the test ends, with the middleware before the routes of a Service, and returns its
	// URL. The server recovers panics, or ends their connections.
	Serve func(t testing.TB, limited adapt.Middleware, s *Service) (url string)
	// Route is the framework's pattern of /items/1.
	Route string
	// Lacks are the features that the framework does not have: hijack, stream, bytes, stream bytes; problem if it
	// renders refusals in its own form, and status if that form has a status of its own.
	Lacks []string
}

// Run runs the suite.
func Run(t *testing.T, f Framework) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Framework)
	}{
		{"a refusal has its status, fields and body", refusal},
		{"other fields", fields},
		{"shadow rules refuse nothing", shadow},
		{"count_if counts by the status", countIf},
		{"settle corrects the cost", settle},
		{"a unit is held while a request is served", concurrency},
		{"a panic releases a unit", panics},
		{"a client is known behind trusted proxies", client},
		{"the route is the pattern of the framework", route},
		{"rules and handlers read the same body", body},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, f) })
	}
}

func (f *Framework) lacks(feature string) bool { return slices.Contains(f.Lacks, feature) }

// A subject is a server of the framework whose requests are decided by some rules.
type subject struct {
	testing.TB
	url     string
	gate    *gate.Gate
	service *Service
	client  *http.Client
}

func (f *Framework) start(t *testing.T, text string) *subject {
	t.Helper()
	g := gatetest.New(t, memstore.New(), "rules:\n"+text)
	clients, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := httplimit.ByRules(g, &httplimit.RuleOptions{Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{TB: t, gate: g, service: newService(), client: &http.Client{Timeout: time.Minute}}
	s.url = f.Serve(t, limited, s.service)
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// A reply is a response with its body.
type reply struct {
	*http.Response
	text string
}

// get sends a request. fields are names and values in turn.
func (s *subject) get(path string, fields ...string) *reply {
	s.Helper()
	return s.send("GET", path, "", fields...)
}

func (s *subject) send(method, path, body string, fields ...string) *reply {
	s.Helper()
	response := s.begin(method, path, body, fields...)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return &reply{response, string(text)}
}

// begin sends a request and returns once there is the head of a response.
func (s *subject) begin(method, path, body string, fields ...string) *http.Response {
	s.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	return response
}

// want checks the status of a GET.
func (s *subject) want(status int, path string, fields ...string) *reply {
	s.Helper()
	r := s.get(path, fields...)
	if r.StatusCode != status {
		s.Errorf("GET %s: %d %s, want %d", path, r.StatusCode, r.text, status)
	}
	return r
}

// used is the number of units that the first limit has charged, by its largest cost.
func (s *subject) used() int64 {
	s.Helper()
	var v gate.Verdict
	if err := s.gate.Decide(context.Background(), &rules.Request{}, gate.Ask{}, &v); err != nil {
		s.Fatal(err)
	}
	check := v.At(0)
	return check.Claim.Limit.Capacity() - check.Decision.Remaining
}

// becomes polls a condition that the end of a request brings about, which its client does not wait for.
func (s *subject) becomes(what string, condition func() bool) {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("%s: never", what)
		}
	}
}

func refusal(t *testing.T, f Framework) {
	s := f.start(t, " - {name: r, limit: sliding_log 1/1h}")
	first := s.want(200, "/items/1")
	if got := first.Header.Get("RateLimit"); got != `"r";r=0;t=3600` {
		t.Errorf("RateLimit of the first response is %s", got)
	}
	if first.text != "item 1" {
		t.Errorf("the first response is %q", first.text)
	}
	second := s.want(429, "/items/1", "X-Request-Id", "abc")
	want := map[string]string{"RateLimit-Policy": `"r";q=1;w=3600`, "RateLimit": `"r";r=0;t=3600`,
		"Retry-After": "3600", "Cache-Control": "no-store", "X-Request-Id": "abc"}
	text := "Too many requests: try again in 1 hour."
	if !f.lacks("problem") {
		want["Content-Type"], text = "application/problem+json", `"violated-policies":["r"]`
	}
	for name, want := range want {
		if got := second.Header.Get(name); got != want {
			t.Errorf("%s of a refusal is %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(second.text, text) {
		t.Errorf("the refusal is %s", second.text)
	}
	if got := s.service.calls.Load(); got != 1 {
		t.Errorf("the handler was called %d times", got)
	}
}

func fields(t *testing.T, f Framework) {
	s := f.start(t, " - {name: r, limit: sliding_log 1/1h, response: {fields: seconds, status: 503, body: json}}")
	refused := 503
	if f.lacks("status") {
		refused = 429
	}
	for _, status := range []int{200, refused} {
		r := s.want(status, "/items/1")
		for name, want := range map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0",
			"X-RateLimit-Reset": "3600", "RateLimit": ""} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s of %d is %q, want %q", name, status, got, want)
			}
		}
	}
}

func shadow(t *testing.T, f Framework) {
	s := f.start(t, " - {name: r, mode: shadow, limit: sliding_log 1/1h}")
	for range 3 {
		if r := s.want(200, "/items/1"); r.Header.Get("RateLimit") != "" {
			t.Errorf("a shadow rule is shown: %v", r.Header)
		}
	}
}

func countIf(t *testing.T, f Framework) {
	s := f.start(t, " - {name: failed, count_if: {status: [401]}, limit: sliding_log 3/1h}")
	for _, path := range []string{"/items/1", "/status/404", "/error/404", "/status/204", "/error/500"} {
		s.get(path)
		s.becomes(path+" is not counted", func() bool { return s.used() == 0 })
	}
	for i, path := range []string{"/status/401", "/error/401", "/status/401"} {
		s.want(401, path)
		s.becomes(path+" is counted", func() bool { return s.used() == int64(i)+1 })
	}
	s.want(429, "/items/1")
}

func settle(t *testing.T, f Framework) {
	for _, test := range []struct {
		by, path, lack string
		want           int64
	}{
		{"header.X-Cost", "/cost", "", 7},
		{"bytes", "/cost", "bytes", 700},
		{"bytes", "/stream", "stream bytes", int64(len(firstLine + lastLine))},
	} {
		if f.lacks(test.lack) {
			test.want = 1000 // the estimate
		}
		s := f.start(t, " - {name: c, cost: {default: 1000, settle: "+test.by+"}, limit: sliding_log 4000/1h}")
		if test.path == "/stream" {
			if f.lacks("stream") {
				continue
			}
			close(s.service.proceed)
		}
		s.want(200, test.path)
		what := fmt.Sprintf("%s of %s is %d", test.by, test.path, test.want)
		s.becomes(what, func() bool { return s.used() == test.want })
	}
}

// concurrency checks that other requests are refused while a request is served: by a handler that works, one that has
// begun to send a stream, and one that has taken the connection over.
func concurrency(t *testing.T, f Framework) {
	for _, path := range []string{"/hold", "/stream", "/hijack"} {
		if f.lacks(path[1:]) {
			continue
		}
		s := f.start(t, " - {name: c, limit: concurrency 1 ttl 1h}")
		done := make(chan string)
		go func() {
			response := s.begin("GET", path, "")
			defer response.Body.Close()
			text, _ := io.ReadAll(bufio.NewReader(response.Body))
			done <- string(text)
		}()
		<-s.service.entered
		s.want(429, "/items/1")
		close(s.service.proceed)
		if text := <-done; !strings.HasSuffix(text, lastLine) {
			t.Errorf("%s: the response is %q", path, text)
		}
		s.becomes("the unit of "+path+" is free", func() bool { return s.get("/items/1").StatusCode == 200 })
	}
}

func panics(t *testing.T, f Framework) {
	s := f.start(t, " - {name: c, limit: concurrency 1 ttl 1h}")
	if response, err := s.client.Get(s.url + "/panic"); err == nil {
		response.Body.Close()
	}
	s.becomes("the unit is free", func() bool { return s.get("/items/1").StatusCode == 200 })
}

func client(t *testing.T, f Framework) {
	s := f.start(t, " - {name: ip, key: [client.ip], limit: sliding_log 1/1h}")
	s.want(200, "/items/1", "X-Forwarded-For", "198.51.100.7")
	s.want(429, "/items/1", "X-Forwarded-For", "6.6.6.6, 198.51.100.7")
	s.want(429, "/items/1", "X-Forwarded-For", "198.51.100.7, 127.0.0.2", "X-Real-IP", "6.6.6.6")
	s.want(200, "/items/1", "X-Forwarded-For", "198.51.100.8")
	s.want(200, "/items/1")
	s.want(429, "/items/1")
}

func route(t *testing.T, f Framework) {
	s := f.start(t, fmt.Sprintf(" - {name: r, match: {route: %q}, key: [route], limit: sliding_log 1/1h}", f.Route))
	s.want(200, "/items/1")
	s.want(429, "/items/2")
	s.want(200, "/cost")
	s.want(200, "/cost")
}

func body(t *testing.T, f Framework) {
	s := f.start(t, " - {name: user, key: [body.user], on_missing: skip, limit: sliding_log 1/1h}")
	for _, test := range []struct {
		body   string
		status int
	}{{"user=ann&text=hello", 200}, {"user=ann", 429}, {"user=bob", 200}} {
		r := s.send("POST", "/form", test.body, "Content-Type", "application/x-www-form-urlencoded")
		if r.StatusCode != test.status || test.status == 200 && r.text != test.body {
			t.Errorf("%s: %d %s, want %d", test.body, r.StatusCode, r.text, test.status)
		}
	}
}
