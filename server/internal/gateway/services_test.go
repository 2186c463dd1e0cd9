package gateway_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/gateway"
)

// A routed gateway is one by a rule file, wired as the command does.
type routedGateway struct {
	*gateway.Upstreams
	gate   *gate.Gate
	server *httptest.Server
}

// dead are addresses where nothing listens.
var dead = []string{"http://127.0.0.1:1", "http://127.0.0.2:1", "http://127.0.0.3:1"}

func routed(t testing.TB, text, fallback string) *routedGateway {
	t.Helper()
	return routedWithLog(t, text, fallback, slog.New(slog.DiscardHandler))
}

func routedWithLog(t testing.TB, text, fallback string, log *slog.Logger) *routedGateway {
	t.Helper()
	g := &routedGateway{Upstreams: gateway.NewUpstreams(0, log)}
	var err error
	if g.gate, err = gate.New(memstore.New(), load(t, "rules: []"), gate.WithLocal(memstore.New())); err != nil {
		t.Fatal(err)
	}
	g.put(t, text)
	limit, err := httplimit.ByRules(g.gate, &httplimit.RuleOptions{Read: gateway.Read, Service: gateway.ServiceOf, GRPCStatus: true, Pages: true, RegisteredMethods: true, Observe: gateway.Decided})
	if err != nil {
		t.Fatal(err)
	}
	var upstream *url.URL
	if fallback != "" {
		if upstream, err = url.Parse(fallback); err != nil {
			t.Fatal(err)
		}
	}
	handler, err := gateway.New(upstream, limit, gateway.Config{Upstreams: g.Upstreams, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g.server = front(t, handler)
	return g
}

func load(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// put puts a rule file in force.
func (g *routedGateway) put(t testing.TB, text string) {
	t.Helper()
	set := load(t, text)
	use, err := g.Prepare(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.gate.Swap(set); err != nil {
		t.Fatal(err)
	}
	use()
}

// ask sends a request such as "GET shop.example /pay", and returns the status and the body.
func (g *routedGateway) ask(t testing.TB, request, body string) string {
	t.Helper()
	word := strings.Fields(request)
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", word[0], word[2], word[1],
		len(body), body)
	response, answer := raw(t, g.server, text)
	return fmt.Sprint(response.StatusCode, " ", answer)
}

// named is an upstream that answers with its name, the request line, the host and the body.
func named(t testing.TB, name string) *upstream {
	return open(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, strings.TrimSpace(strings.Join([]string{name, r.Method, r.RequestURI, r.Host, string(body)}, " ")))
	})
}

func TestRequestsGoToTheServiceOfTheirRoute(t *testing.T) {
	order, web, rest := named(t, "order"), named(t, "web"), named(t, "rest")
	text := fmt.Sprintf(`
services:
  - {name: order, addresses: %s}
  - {name: web, addresses: %s, host: address}
routes:
  - {name: pay, path: "/api/pay/**", service: order, strip_prefix: /api}
  - {name: v2, path: "/v1/**", method: POST, service: order, strip_prefix: /v1, add_prefix: /v2}
  - {name: web, host: "*.shop.example", service: web}
rules:
  - {name: one, match: {route: v2, service: order}, limit: 1/1h}
  - {name: shown, match: {route: pay}, key: [service, route], limit: 9/1h}
`, order.URL, web.URL)
	g, only := routed(t, text, rest.URL), routed(t, text, "")
	for _, test := range []struct{ request, want string }{
		{"GET any.example /api/pay/42?x=%zz;y", "200 order GET /pay/42?x=%zz;y any.example"},
		{"GET any.example /api/x/../%70ay/a%3Ab", "200 order GET /pay/a%3Ab any.example"},
		{"GET any.example /api;v=1/pay;x", "200 order GET /pay;x any.example"},
		{"POST any.example /v1/", "200 order POST /v2/ any.example"},
		{"POST any.example /v1", "429 "},
		{"GET www.shop.example /a//b", "200 web GET /a/b " + strings.TrimPrefix(web.URL, "http://")},
		{"GET any.example /v1/", "200 rest GET /v1/ any.example"},
		{"GET any.example /api%2fpay", "400 "},
		{"GET bad_host:x:y /api/pay", "400 "},
		{"TRACE any.example /api/pay", "501 "},
	} {
		if got := g.ask(t, test.request, ""); got != test.want && (len(test.want) > 4 || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %s, want %s", test.request, got, test.want)
		}
	}
	if got := only.ask(t, "GET any.example /v1/", ""); !strings.HasPrefix(got, "404 ") ||
		!strings.Contains(got, "No route of this gateway") {
		t.Errorf("without a route: %s", got)
	}
	if got := only.ask(t, "POST any.example /v1/x", "body"); got != "200 order POST /v2/x any.example body" {
		t.Errorf("with a body: %s", got)
	}
	routes := fmt.Sprint(g.Routes())
	if routes != "[{pay order 3 3 0 0 0} {v2 order 2 1 1 0 0} {web web 1 1 0 0 0}]" {
		t.Errorf("counted: %s", routes)
	}
}

// TestOutcomesOfRequests: what no rule refused is not counted as refused.
func TestOutcomesOfRequests(t *testing.T) {
	up := named(t, "up")
	g := routed(t, fmt.Sprintf(`
services: [{name: s, addresses: %s}]
routes: [{name: r, service: s}]
deny: {client.ip: 198.51.100.9}
rules:
  - {name: few, match: {path: /few}, key: [query.k], on_missing: skip, limit: 2/1h}
  - {name: needed, match: {path: /key}, key: [header.X-Key], on_missing: deny, limit: 9/1h}
  - {name: queue, match: {path: /queue}, limit: leaky_queue 1/1h queue 5}
`, up.URL), "")
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, test := range []struct {
		request, want string // Requests, Forwarded, Refused, Invalid, Gone
		client        context.Context
	}{
		{"GET /few?k=1", "1 1 0 0 0", nil},
		{"GET /few?k=1", "2 2 0 0 0", nil},
		{"GET /few?k=1", "3 2 1 0 0", nil},
		{"GET /few?k=1", "4 2 2 0 0", left}, // decided nevertheless
		{"GET /few?k=2&k=3", "5 2 2 1 0", nil},
		{"BREW /few?k=2", "6 2 2 2 0", nil},
		{"GET /key", "7 2 3 2 0", nil},
		{"GET /queue", "8 3 3 2 0", nil},
		{"GET /queue", "9 3 3 2 1", left},
	} {
		method, target, _ := strings.Cut(test.request, " ")
		r := httptest.NewRequest(method, target, nil)
		if test.client != nil {
			r = r.WithContext(test.client)
		}
		g.server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
		if got := fmt.Sprint(g.Routes()); got != "[{r s "+test.want+"}]" {
			t.Errorf("after %s: %s, want %s", test.request, got, test.want)
		}
	}
}

// TestLargeBodiesAreRefused: by their length before a rule is charged, and others when they pass the bound.
func TestLargeBodiesAreRefused(t *testing.T) {
	ends := make(chan error, 1) // of the last body at the service, which may not learn of one that was cut early
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.WriteHeader(http.StatusOK)
			control := http.NewResponseController(w)
			control.EnableFullDuplex()
			control.Flush()
		}
		if _, err := io.Copy(io.Discard, r.Body); err == nil || r.URL.Path == "/begun" {
			ends <- err
		}
	})
	witness := newWitness()
	g := routedWithLog(t, fmt.Sprintf("services: [{name: s, addresses: %s, max_body: 10}]\n"+
		"routes: [{name: r, path: /*, service: s}, {name: large, path: /large, service: s, max_body: 1MiB}]\n"+
		"rules: [{name: all, limit: 100/1h}]", up.URL), "", witness.lines)
	const ten, more, chunked = "0123456789", "0123456789x", "Transfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct {
		path, rest      string
		want            int
		forwarded, kept bool
	}{
		{"/x", "Content-Length: 10\r\n\r\n" + ten, 200, true, true},
		{"/x", "Content-Length: 11\r\n\r\n" + more, 413, false, true},
		{"/x", "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n", 413, false, false},
		{"/x", "Content-Length: 999999999999\r\n\r\n", 413, false, false},
		{"/large", "Content-Length: 11\r\n\r\n" + more, 200, true, true},
		{"/x", chunked + "a\r\n" + ten + "\r\n0\r\n\r\n", 200, true, true},
		{"/large", chunked + "b\r\n" + more + "\r\n0\r\n\r\n", 200, true, true},
		{"/x", chunked + "b\r\n" + more + "\r\n", 413, true, false}, // and no end
	} {
		response, body := raw(t, g.server, "POST "+test.path+" HTTP/1.1\r\nHost: h\r\n"+test.rest)
		charged := response.Header.Get("RateLimit") != ""
		if response.StatusCode != test.want || charged != test.forwarded || response.Close == test.kept {
			t.Fatalf("%s %q: %v %s", test.path, test.rest, response, body)
		}
		if test.want == 200 {
			<-ends
		}
	}
	for length, want := range map[int64]int{10: 200, 11: 413, -1: 413} {
		body := strings.NewReader(more[:cmp.Or(max(length, 0), 11)])
		r, _ := http.NewRequest("POST", g.server.URL+"/x", io.NopCloser(body))
		r.ContentLength = length
		response, err := h2c(t).Do(r)
		if err != nil || response.StatusCode != want {
			t.Fatalf("HTTP/2, length %d: %v %v", length, response, err)
		}
		response.Body.Close()
		if want == 200 {
			<-ends
		}
	}
	connection := dial(t, g.server)
	io.WriteString(connection, "POST /begun HTTP/1.1\r\nHost: h\r\n"+chunked)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	io.WriteString(connection, "b\r\n"+more+"\r\n")
	if _, err := io.ReadAll(response.Body); err == nil || <-ends == nil {
		t.Errorf("a body that grew too large after the head of the response: %v", err)
	}
	g.server.CloseClientConnections()
	g.server.Close() // waits for the requests
	if routes := fmt.Sprint(g.Routes()); routes != "[{r s 10 6 0 4 0} {large s 2 2 0 0 0}]" {
		t.Errorf("counted: %s", routes)
	}
	a := g.Services()[0].Addresses[0]
	if a.Failures != 0 || a.InProgress != 0 || a.Attempts[servermetrics.AttemptBrokenOff] != 0 || witness.text() != "" {
		t.Errorf("the service is blamed: %+v %s", a, witness.text())
	}
}

// TestOwnAnswersAreInTheLanguageOfTheClient, in the title and the detail.
func TestOwnAnswersAreInTheLanguageOfTheClient(t *testing.T) {
	slow := open(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	g := routed(t, fmt.Sprintf(`rules: []
services: [{name: away, addresses: %s}, {name: slow, addresses: %s, timeout: {header: 1ms}}]
routes: [{name: away, path: /away, service: away}, {name: slow, path: /slow, service: slow}]`, dead[0], slow.URL), "")
	for _, test := range []struct{ request, en, zh string }{
		{"GET /away", "Bad Gateway|The upstream could not be reached", "网关错误|无法连接上游服务"},
		{"GET /slow", "Gateway Timeout|The upstream did not respond in time.", "网关超时|上游服务未能及时响应。"},
		{"GET /none", "Not Found|No route of this gateway", "未找到|网关没有与该请求匹配的路由。"},
		{"GET /a%2fb", "Bad Request|The path of this request is not allowed; allowed: ", "请求无效|请求的 path 无效，允许的是："},
		{"TRACE /away", "Not Implemented|This gateway does not forward TRACE.", "不支持该请求|网关不转发 TRACE 请求。"},
	} {
		for language, want := range map[string]string{"en": test.en, "zh": test.zh} {
			r, body := raw(t, g.server, test.request+" HTTP/1.1\r\nHost: h\r\nAccept-Language: "+language+"\r\n\r\n")
			title, detail, _ := strings.Cut(want, "|")
			if !strings.Contains(body, `"title":"`+title+`"`) || !strings.Contains(body, `"detail":"`+detail) ||
				r.Header.Get("Content-Language") != language || r.Header.Get("Vary") != "Accept, Accept-Language" {
				t.Errorf("%s in %s: %v %s", test.request, language, r.Header, body)
			}
			r, body = raw(t, g.server, test.request+" HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\nAccept-Language: "+language+"\r\n\r\n")
			if r.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(body, "<h1>"+title+"</h1>") ||
				!strings.Contains(body, ">"+detail) || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s in %s, a page: %v %s", test.request, language, r.Header, body)
			}
		}
	}
}

// TestUnconnectedRequestsAreRetried: whatever the method is, and with the body.
func TestUnconnectedRequestsAreRetried(t *testing.T) {
	up := named(t, "up")
	g := routed(t, fmt.Sprintf("services: [{name: s, addresses: [%s, %s], health: {failures: 1000}}]\n"+
		"routes: [{name: r, service: s}]\nrules: []", dead[0], up.URL), "")
	for i := range 8 {
		body := strings.Repeat("x", 1+i*40_000)
		if got := g.ask(t, "POST a.example /", body); got != "200 up POST / a.example "+body {
			t.Fatalf("%d: %.80s", i, got)
		}
		if got := g.ask(t, "GET a.example /", ""); got != "200 up GET / a.example" {
			t.Fatalf("%d: %.80s", i, got)
		}
	}
	s := g.Services()[0]
	if s.Retries != 8 || s.Addresses[0].Attempts[6] != 8 || s.Addresses[1].Attempts[2] != 16 {
		t.Errorf("%+v", s)
	}
	for _, a := range s.Addresses {
		if a.InProgress != 0 {
			t.Errorf("%d in progress at %s", a.InProgress, a.URL)
		}
	}
	none := routed(t, fmt.Sprintf("services: [{name: s, retries: 3, addresses: [%s]}]\n"+
		"routes: [{name: r, service: s}]\nrules: []", strings.Join(dead, ", ")), "")
	if got := none.ask(t, "GET a.example /", ""); !strings.HasPrefix(got, "502 ") {
		t.Error(got)
	}
	off := routed(t, fmt.Sprintf("services: [{name: s, retries: 0, addresses: [%s, %s]}]\n"+
		"routes: [{name: r, service: s}]\nrules: []", dead[0], up.URL), "")
	if got := off.ask(t, "GET a.example /", ""); !strings.HasPrefix(got, "502 ") {
		t.Error(got)
	}
}

// breaks is the address of a server that reads a request, counts it, and ends the connection. It is no name: when one
// is first resolved, its address is another, and begins without failures.
func breaks(t *testing.T, heads *atomic.Int64) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if _, err := http.ReadRequest(bufio.NewReader(connection)); err == nil {
					heads.Add(1)
				}
				connection.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// TestSentRequestsAreNotRetried: a service that ends the connection may have done the work. Requests without effects are
// sent once more.
func TestSentRequestsAreNotRetried(t *testing.T) {
	var heads atomic.Int64
	one, other := breaks(t, &heads), breaks(t, &heads)
	for _, test := range []struct {
		fields, request, body string
		want                  int64
	}{
		{"retries: 3", "POST a.example /", "x", 1},
		{"retries: 3", "PUT a.example /", "", 1},
		{"retries: 3", "GET a.example /", "x", 1},
		{"retries: 3", "GET a.example /", "", 2},
		{"retries: 1", "HEAD a.example /", "", 2},
		{"retries: 0", "GET a.example /", "", 1},
		{"retry_safe: never", "GET a.example /", "", 1},
	} {
		g := routed(t, fmt.Sprintf("services: [{name: s, %s, addresses: [http://%s, http://%s]}]\n"+
			"routes: [{name: r, service: s}]\nrules: []", test.fields, one, other), "")
		heads.Store(0)
		if got := g.ask(t, test.request, test.body); !strings.HasPrefix(got, "502 ") {
			t.Error(got)
		}
		s := g.Services()[0]
		failed := s.Addresses[0].Failures + s.Addresses[1].Failures
		if n := heads.Load(); n != test.want || failed != test.want {
			t.Errorf("%s, %s with %q was sent %d times, and failed %d", test.fields, test.request, test.body, n, failed)
		}
	}
}

// TestFailingAddressesAreLeftOut: after failures in a row only the others get requests.
func TestFailingAddressesAreLeftOut(t *testing.T) {
	up := named(t, "up")
	g := routed(t, fmt.Sprintf("services: [{name: s, retries: 0, addresses: [%s, %s], health: {failures: 3, eject: 1h}}]\n"+
		"routes: [{name: r, service: s}]\nrules: []", dead[0], up.URL), "")
	failed := 0
	for range 40 {
		if got := g.ask(t, "GET a.example /", ""); strings.HasPrefix(got, "502 ") {
			failed++
		}
	}
	s := g.Services()[0]
	if failed != 3 || s.Addresses[0].Healthy || s.Addresses[0].Ejections != 1 || s.Addresses[0].EjectedFor < 3000 {
		t.Errorf("%d failed; %+v", failed, s)
	}
}

func TestTimeoutsOfAService(t *testing.T) {
	release := make(chan struct{})
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	g := routed(t, fmt.Sprintf(`
services:
  - {name: header, addresses: %[1]s, timeout: {header: 20ms}}
  - {name: total, addresses: %[1]s, timeout: {total: 50ms}}
routes: [{name: h, host: h.example, service: header}, {name: t, host: t.example, service: total}]
rules: []
`, up.URL), "")
	for _, host := range []string{"h.example", "t.example"} {
		if got := g.ask(t, "GET "+host+" /", ""); !strings.HasPrefix(got, "504 ") {
			t.Errorf("%s: %s", host, got)
		}
	}
	services := g.Services()
	if services[0].Addresses[0].Failures != 1 || services[1].Addresses[0].Failures != 0 {
		t.Errorf("only a late header is a failure of the address: %+v", services)
	}
	redistest.Await(t, "a response that begins in time", func() bool {
		connection := dial(t, g.server)
		io.WriteString(connection, "GET /begun HTTP/1.1\r\nHost: t.example\r\nConnection: close\r\n\r\n")
		text, err := io.ReadAll(connection)
		if strings.HasSuffix(string(text), "0\r\n\r\n") {
			t.Errorf("a response that is cut looks whole: %q %v", text, err)
		}
		return strings.HasPrefix(string(text), "HTTP/1.1 200")
	})
}

// TestWebSocketsHaveNoTotalTime: they are open for long, and are counted by least requests meanwhile.
func TestWebSocketsHaveNoTotalTime(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(connection, buffered)
	})
	g := routed(t, fmt.Sprintf("services: [{name: s, addresses: %s, timeout: {total: 300ms}}]\n"+
		"routes: [{name: r, service: s}]\nrules: []", up.URL), "")
	var connection net.Conn
	var reader *bufio.Reader
	redistest.Await(t, "an upgrade in time", func() bool {
		connection = dial(t, g.server)
		io.WriteString(connection, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		reader = bufio.NewReader(connection)
		response, err := http.ReadResponse(reader, nil)
		return err == nil && response.StatusCode == 101
	})
	time.Sleep(400 * time.Millisecond) // longer than the total time
	if n := g.Services()[0].Addresses[0].InProgress; n != 1 {
		t.Errorf("%d in progress", n)
	}
	io.WriteString(connection, "hello\n")
	if line, err := reader.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
}

func TestTLSToAService(t *testing.T) {
	authority, other := certtest.New(t, t.TempDir(), "internal"), certtest.New(t, t.TempDir(), "other")
	authority.Issue("gateway", "gateway-key")
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS.ServerName, " ", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.EnableHTTP2 = true
	up.TLS = &tls.Config{Certificates: authority.Identity("up"), ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: authority.Pool()}
	up.StartTLS()
	defer up.Close()
	text := func(fields string) string {
		return fmt.Sprintf("services: [{name: s, addresses: %s, tls: {%s}}]\nroutes: [{name: r, service: s}]\nrules: []",
			up.URL, fields)
	}
	pair := fmt.Sprintf("cert: %s, key: %s", authority.File("gateway"), authority.File("gateway-key"))
	g := routed(t, "rules: []", "")
	for _, test := range []struct{ fields, want string }{
		{pair + ", ca: " + authority.File("ca"), "200 HTTP/2.0  gateway"},
		{pair + ", server_name: localhost, ca: " + authority.File("ca"), "200 HTTP/2.0 localhost gateway"},
		{pair + ", verify: none", "200 HTTP/2.0  gateway"},
		{pair, "502 "},
		{pair + ", server_name: order.internal, ca: " + authority.File("ca"), "502 "},
		{pair + ", ca: " + other.File("ca"), "502 "},
		{"ca: " + authority.File("ca"), "502 "},
	} {
		g.put(t, text(test.fields))
		if got := g.ask(t, "GET a.example /", ""); got != test.want && (len(test.want) > 4 ||
			!strings.HasPrefix(got, test.want)) {
			t.Errorf("%s: %s, want %s", test.fields, got, test.want)
		}
	}
	g.put(t, text(pair+", ca: "+authority.File("ca")))
	authority.Write("gateway", []byte("half a certificate"))
	if got := g.ask(t, "GET a.example /", ""); got != "200 HTTP/2.0  gateway" {
		t.Errorf("with a half-written file: %s", got)
	}
	cert, key := authority.Leaf("renewed")
	authority.Write("gateway", cert)
	authority.Write("gateway-key", key)
	up.CloseClientConnections()
	redistest.Await(t, "a connection by the changed files", func() bool {
		return g.ask(t, "GET a.example /", "") == "200 HTTP/2.0  renewed"
	})
	for _, wrong := range []string{"ca: /no/such/file", "ca: " + authority.File("gateway-key"),
		fmt.Sprintf("cert: %s, key: %s", authority.File("ca"), authority.File("gateway-key"))} {
		if _, err := g.Prepare(load(t, text(wrong))); err == nil || !strings.Contains(err.Error(), "service s: tls.") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// TestRequestsSeeOneVersion: while the file is swapped under load, each request is routed and decided by one version.
func TestRequestsSeeOneVersion(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	version := func(service, url, other string) string {
		return fmt.Sprintf("services: [{name: %[1]s, addresses: %[2]s}]\nroutes: [{name: to-%[1]s, service: %[1]s}]\n"+
			"deny: {service: [%[3]s], route: [to-%[3]s]}\n"+
			"rules: [{name: r, match: {service: %[1]s, route: to-%[1]s}, limit: 1000000/1s}]", service, url, other)
	}
	texts := []string{version("a", a.URL, "b"), version("b", b.URL, "a")}
	g := routed(t, texts[0], "")
	stop := make(chan struct{})
	var load sync.WaitGroup
	counts := map[string]*atomic.Int64{"200 a": {}, "200 b": {}}
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				response, err := http.Get(g.server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				got := fmt.Sprintf("%d %.1s", response.StatusCode, body)
				if n := counts[got]; n == nil {
					t.Errorf("%d %s: the route of one version, the rules of another", response.StatusCode, body)
				} else if n.Add(1); response.Header.Get("RateLimit") == "" {
					t.Error("the rule of the route did not decide")
				}
			}
		})
	}
	for i := range 200 {
		g.put(t, texts[i%2])
		for seen := counts["200 a"].Load() + counts["200 b"].Load(); !t.Failed() && counts["200 a"].Load()+
			counts["200 b"].Load() < seen+3; {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	load.Wait()
	for name, n := range counts {
		if n.Load() == 0 {
			t.Errorf("no request was answered %s", name)
		}
	}
}

// TestAddressThatDiesFailsNoGet: requests in progress at it are sent elsewhere, and later ones go elsewhere.
func TestAddressThatDiesFailsNoGet(t *testing.T) {
	each := 100
	if testing.Short() {
		each = 20
	}
	var served atomic.Int64
	var one *upstream
	answer := func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) == int64(20*each) {
			go one.die()
		}
		io.WriteString(w, "ok")
	}
	one = open(t, answer)
	g := routed(t, fmt.Sprintf("services: [{name: s, addresses: [%s, %s, %s], health: {failures: 3}}]\n"+
		"routes: [{name: r, service: s}]\nrules: []", one.URL, open(t, answer).URL, open(t, answer).URL), "")
	var failed atomic.Int64
	var clients sync.WaitGroup
	for range 50 {
		clients.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for range each {
				r, _ := http.NewRequest("GET", g.server.URL, nil)
				response, err := transport.RoundTrip(r)
				if err != nil || response.StatusCode != http.StatusOK {
					failed.Add(1)
				}
				if err == nil {
					io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			}
		})
	}
	clients.Wait()
	if failed.Load() > 0 || g.Services()[0].Retries == 0 {
		t.Errorf("%d of %d failed; %+v", failed.Load(), 50*each, g.Services()[0])
	}
}

// die ends the service as a killed process does.
func (u *upstream) die() {
	u.Listener.Close()
	u.CloseClientConnections()
}

// TestEachServiceIsLogged: a service that fails often does not hide the failure of another.
func TestEachServiceIsLogged(t *testing.T) {
	half := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	witness := newWitness()
	g := routedWithLog(t, fmt.Sprintf("services: [{name: down, addresses: %s}, {name: off, addresses: %s}, "+
		"{name: half, addresses: %s}]\nroutes: [{name: d, host: d, service: down}, {name: o, host: o, service: off}, "+
		"{name: h, host: h, service: half}]\nrules: []", dead[0], dead[1], half.URL), "",
		witness.lines)
	for range 20 {
		g.ask(t, "GET d /", "")
	}
	g.ask(t, "GET o /", "")
	connection := dial(t, g.server)
	io.WriteString(connection, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	io.Copy(io.Discard, connection)
	g.server.Close()
	for _, line := range []string{"upstream=down ", "upstream=off ", `broke off" upstream=half error="unexpected EOF"`} {
		if !strings.Contains(witness.text(), line) {
			t.Errorf("no line has %s:\n%s", line, witness.text())
		}
	}
	if a := g.Services()[2].Addresses[0]; a.Attempts[2] != 1 || a.Attempts[servermetrics.AttemptBrokenOff] != 1 {
		t.Errorf("%+v", a)
	}
}

// TestCallsOfGRPCAreRefusedAsSuch: a client takes a status of HTTP for UNAVAILABLE, which it may retry at once.
func TestCallsOfGRPCAreRefusedAsSuch(t *testing.T) {
	g := routed(t, "services: [{name: s, addresses: "+dead[0]+"}]\nroutes: [{name: r, path: /a.B/*, service: s}]\n"+
		"rules: [{name: one, match: {path: /a.B/Limited}, limit: fixed_window 1/1h}]\n", "")
	client, err := grpc.NewClient(strings.TrimPrefix(g.server.URL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, test := range []struct {
		method string
		want   codes.Code
		text   string
	}{
		{"/a.B/Limited", codes.Unavailable, "The upstream could not be reached, or its response is invalid."},
		{"/a.B/Limited", codes.ResourceExhausted, "Too many requests: try again in 1 hour."},
		{"/c.D/E", codes.Unimplemented, "No route of this gateway matches the request."},
	} {
		var fields metadata.MD
		err := client.Invoke(t.Context(), test.method, new(emptypb.Empty), new(emptypb.Empty), grpc.Trailer(&fields))
		s := status.Convert(err)
		if s.Code() != test.want || s.Message() != test.text {
			t.Errorf("%s: %v %q, want %v", test.method, s.Code(), s.Message(), test.want)
		}
		limited := test.want == codes.ResourceExhausted
		if limited != (len(s.Details()) == 1) || limited != (len(fields.Get("retry-after")) == 1) {
			t.Errorf("%s: %v %v", test.method, s.Details(), fields)
		}
	}
}

// Checks leave out an address that hangs or answers another status, before a request meets it, and use it again.
func TestChecksFindAnAddressThatIsUnwell(t *testing.T) {
	for name, unwell := range map[string]http.HandlerFunc{
		"hangs":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			broken.Store(true)
			sick := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if broken.Load() {
					unwell(w, r)
				}
			}))
			well := front(t, http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) {}))
			g := routed(t, fmt.Sprintf(`rules: []
services: [{name: a, addresses: [%s, %s], health: {path: "/healthz?deep=1", interval: 500ms}}]
routes: [{name: all, service: a}]`, sick.URL, well.URL), "")
			t.Cleanup(g.Upstreams.Close)
			state := func() servermetrics.Address { return g.Services()[0].Addresses[0] }
			redistest.Await(t, "the address to be left out", func() bool { return state().CheckFails && !state().Healthy })
			for range 4 {
				response, err := http.Get(g.server.URL)
				if err != nil || response.StatusCode != http.StatusOK {
					t.Fatal(response, err)
				}
				response.Body.Close()
			}
			if n := state().Attempts[2] + state().Attempts[5]; n != 0 {
				t.Errorf("%d requests were sent to it", n)
			}
			broken.Store(false)
			redistest.Await(t, "the address to be used again", func() bool { return state().Healthy })
		})
	}
}
