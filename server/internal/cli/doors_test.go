//go:build unix

package cli_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
)

// TestMetricsElsewhere: an address for metrics takes them away from where strangers may come.
func TestMetricsElsewhere(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--metrics", "127.0.0.1:0", "--set", "server.metrics.path=/stats/prometheus")
	for url, want := range map[string]int{
		p.at("http") + "/metrics": 404, p.at("http") + "/livez": 200, p.at("http") + "/readyz": 200,
		p.at("metrics") + "/stats/prometheus": 200, p.at("http") + "/stats/prometheus": 404,
		p.at("metrics") + "/metrics": 200, p.at("metrics") + "/livez": 200, p.at("metrics") + "/readyz": 200,
		p.at("metrics") + "/v1/openapi.json": 404, p.at("metrics") + "/v1/admin/rules": 404,
		p.at("metrics") + "/-/reload": 404,
	} {
		if got := status(t, url); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}
	if strings.Count(p.banner, "/metrics") != 1 {
		t.Errorf("the banner is\n%s", p.banner)
	}
	p.end()
	p = call{}.serve(t, "--metrics", "off")
	if got := status(t, p.at("http")+"/metrics"); got != 404 || strings.Contains(p.banner, "metrics") {
		t.Errorf("off: %d\n%s", got, p.banner)
	}
	p.end()
	p = call{}.serve(t, "--http", "off", "--upstream", "demo", "--gateway", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
	if got := status(t, p.at("metrics")+"/metrics"); got != 200 {
		t.Errorf("of a gateway alone: %d", got)
	}
	p.end()
}

// TestFullListeners: clients beyond the maximum get an error or are disconnected. Health checks are answered, and a
// front end with an address of its own goes on.
func TestFullListeners(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--set", "server.http.max_connections=1", "--resp", "127.0.0.1:0", "--set", "server.resp.max_connections=1",
		"--metrics", "127.0.0.1:0")
	for listener, want := range map[string]string{"http": "", "resp": "-ERR max number of clients reached\r\n"} {
		_, address, _ := strings.Cut(p.at(listener), "://")
		hold(t, address)
		beyond := hold(t, address)
		if listener == "http" {
			io.WriteString(beyond, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if text, err := io.ReadAll(beyond); string(text) != want {
			t.Errorf("%s: %q %v, want %q", listener, text, err, want)
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if got := status(t, p.at("http")+path); got != 200 {
			t.Errorf("%s of the full listener: %d", path, got)
		}
	}
	if got := status(t, p.at("metrics")+"/readyz"); got != 200 {
		t.Errorf("%d", got)
	}
	for _, server := range []string{"http", "resp"} {
		line := `weir_connections_refused_total{server="` + server + `"} 1`
		if _, _, text := get(t, p.at("metrics")+"/metrics"); !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
		if !strings.Contains(p.logs(), "connection limit reached") {
			t.Errorf("not logged:\n%s", p.logs())
		}
	}
	// Otherwise it was hung up on because it said nothing for too long.
	redistest.Await(t, "the log", func() bool { return strings.Contains(p.logs(), "new connections are closed") })
	p.end()
}

// TestUnreadRequestsAreCounted: what net/http answers, resets or gives up on its own is a request that no rule saw.
func TestUnreadRequestsAreCounted(t *testing.T) {
	t.Parallel()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("server", "server-key")
	p := call{}.serve(t, "--metrics", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--upstream", "demo",
		"--set", "server.http.tls_cert="+a.File("server"), "--set", "server.http.tls_key="+a.File("server-key"))
	const prefaced = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, c := range []struct {
		name, listener, sent string
		unread               int
	}{
		{"nothing", "gateway", "", 0},
		{"a request", "gateway", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0},
		{"a request about no path", "gateway", "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0},
		{"a malformed line", "gateway", "GET\r\n\r\n", 1},
		{"a header with a control character", "gateway", "GET / HTTP/1.1\r\nHost: h\r\nA: \x01\r\n\r\n", 1},
		{"a head of 80 KiB", "gateway", "GET / HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("a", 80<<10) + "\r\n\r\n", 1},
		{"half a head", "gateway", "GET / HTTP/1.1\r\nHo", 1},
		{"half a head after a request", "gateway", "GET / HTTP/1.1\r\nHo", 1},
		{"HTTP/2 without a path", "gateway", prefaced + "\x00\x00\x02\x01\x05\x00\x00\x00\x01\x82\x86", 1},
		{"HTTP/2 with a broken frame", "gateway", prefaced + "\x00\x00\x02\x01\x05\x00\x00\x00\x02\x82\x86", 1},
		{"nothing, with TLS", "http", "", 0},
		{"no TLS", "http", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1},
		{"nothing in TLS", "TLS", "", 0},
		{"a request in TLS", "TLS", "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n", 0},
		{"a malformed line in TLS", "TLS", "GET\r\n\r\n", 1},
		{"a malformed line after a request in TLS", "TLS", "GET /" + strings.Repeat("a", 60) + "\r\n\r\n", 1},
		{"nothing after a request in TLS", "TLS", "", 0},
	} {
		secured := c.listener == "TLS"
		if secured {
			c.listener = "http"
		}
		before := unread(t, p, c.listener)
		_, address, _ := strings.Cut(p.at(c.listener), "://")
		conn := hold(t, address)
		if secured {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		if strings.Contains(c.name, "after a request") {
			io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, response.Body)
		}
		io.WriteString(conn, c.sent)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		io.ReadAll(conn)
		conn.Close()
		redistest.Await(t, c.name, func() bool { return unread(t, p, c.listener) >= before+c.unread })
		if got := unread(t, p, c.listener) - before; got != c.unread {
			t.Errorf("%s: %d requests are counted, want %d", c.name, got, c.unread)
		}
	}
	p.end()
}

// unread returns the requests that a server counts as unread.
func unread(t *testing.T, p *process, server string) (n int) {
	t.Helper()
	_, _, text := get(t, p.at("metrics")+"/metrics")
	_, line, _ := strings.Cut(text, `weir_http_requests_total{server="`+server+`",status="unread"} `)
	fmt.Sscan(line, &n)
	return n
}

// hold opens a connection and says nothing.
func hold(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn
}

// TestHealthAnswersAnyHost, as a balancer's plain check sends none, with the status alone: names of rules and sources,
// and metrics, stay hidden from pages whose name resolves to this machine.
func TestHealthAnswersAnyHost(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--store", "redis://127.0.0.1:1") // nothing listens there: ready, with a problem
	_, address, _ := strings.Cut(p.at("http"), "://")
	ask := func(head string) string {
		conn := hold(t, address)
		io.WriteString(conn, head+"\r\n\r\n")
		text, _ := io.ReadAll(conn)
		return string(text)
	}
	const alone, full = "\r\n{\"status\":\"ready\"}\n", `"degraded":["the last store call failed`
	for _, test := range []struct{ head, status, body string }{
		{"GET /readyz HTTP/1.0", "200 OK", alone},
		{"GET /livez HTTP/1.0", "200 OK", "\r\n{\"status\":\"alive\"}\n"},
		{"GET /readyz HTTP/1.1\r\nHost: node1:8080\r\nConnection: close", "200 OK", alone},
		{"GET /livez HTTP/1.1\r\nHost: node1\r\nConnection: close", "200 OK", "alive"},
		{"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close", "200 OK", full},
		{"GET /metrics HTTP/1.1\r\nHost: node1\r\nConnection: close", "403 Forbidden", "host is"},
	} {
		if text := ask(test.head); !strings.Contains(text, " "+test.status+"\r\n") || !strings.Contains(text, test.body) {
			t.Errorf("%q is answered\n%s\nwant %s and %s", test.head, text, test.status, test.body)
		}
	}
	p.end()
}

// TestASlotIsARequest: at each front end a request takes one slot, however many tokens it takes; only acquire asks for
// slots.
func TestASlotIsARequest(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", `
server: {trusted_proxies: [127.0.0.1]}
rules:
  - name: tokens
    match: {any: [{path: /chat}, {descriptor: {chat: "1"}}]}
    cost: {from: header.X-Tokens, default: 1, max: 1000}
    limit: fixed_window 100000/1h
  - {name: slots, match: {any: [{path: /chat}, {descriptor: {chat: "1"}}]}, limit: concurrency 9 ttl 1h}
`)
	p := call{}.serve(t, "--config", file, "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--gateway", "127.0.0.1:0",
		"--upstream", "demo")
	tokens := 100_000
	took := func(at, text string, units, slots int) {
		t.Helper()
		tokens -= units
		want := regexp.MustCompile(fmt.Sprintf(`(?s)\b%d\b.*\b%d\b`, tokens, 9-slots))
		if !want.MatchString(text) {
			t.Errorf("%s: %s; want %d tokens and %d slots left", at, text, tokens, 9-slots)
		}
	}
	const chat = `"request": {"path": "/chat"}`
	remaining := func(path, body string) string {
		_, _, answer := post(t, p.at("http")+path, body)
		_, checks, _ := strings.Cut(answer, `"checks"`)
		if _, token, held := strings.Cut(answer, `"token":"`); held {
			token, _, _ = strings.Cut(token, `"`)
			end, rest := "/v1/release", `"}`
			if path == "/v1/reserve" {
				end, rest = "/v1/settle", `", "actual": 300}`
			}
			if status, _, text := post(t, p.at("http")+end, `{"token": "`+token+rest); status != 200 {
				t.Errorf("%s: %d %s", end, status, text)
			}
		}
		return strings.Join(regexp.MustCompile(`"remaining":\d+`).FindAllString(checks, -1), " ")
	}
	took("decide", remaining("/v1/decide", `{`+chat+`, "cost": 300}`), 300, 1)
	took("peek", remaining("/v1/peek", `{`+chat+`, "cost": 300}`), 0, 0)
	took("reserve", remaining("/v1/reserve", `{`+chat+`, "cost": 300}`), 300, 1)
	took("claims", remaining("/v1/reserve", `{"claims": [{"name": "tokens", "limit": "fixed_window 100000/1h", "key": "all"}, `+
		`{"name": "slots", "limit": "concurrency 9 ttl 1h", "key": "all"}], "cost": 300}`), 300, 1) // the keys of the rules
	took("acquire", remaining("/v1/acquire", `{`+chat+`, "cost": 3}`), 3, 3)

	_, address, _ := strings.Cut(p.at("resp"), "://")
	resp := hold(t, address)
	lines := bufio.NewReader(resp)
	say := func(command, until string) {
		fmt.Fprint(resp, command+"\r\n")
		for line := ""; line != until+"\r\n"; {
			var err error
			if line, err = lines.ReadString('\n'); err != nil || line[0] == '-' {
				t.Fatalf("%s: %q %v", command, line, err)
			}
		}
	}
	say("WEIR.DECIDE RULES COST 300 path /chat LEASE mine", "degraded")
	took("RESP", remaining("/v1/peek", `{`+chat+`, "cost": 0}`), 300, 1)
	say("WEIR.RELEASE mine RULES path /chat", ":1")

	limits := ratelimit.NewRateLimitServiceClient(dialGRPC(t, p, nil))
	answer, err := limits.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: "any", HitsAddend: 300,
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "chat", Value: "1"}}}}})
	if err != nil || answer.OverallCode != ratelimit.RateLimitResponse_OK {
		t.Errorf("rate limit service: %v %v", answer, err)
	}
	tokens -= 300
	for at, url := range map[string]string{"gateway": p.at("gateway") + "/chat", "forward-auth": p.at("http") + "/v1/forward-auth"} {
		status, header, _ := get(t, url, "X-Tokens", "300", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/chat",
			"X-Forwarded-Host", "localhost")
		took(at, header.Get("Ratelimit"), 300, 1)
		if status != 200 && status != 404 {
			t.Errorf("%s: %d", at, status)
		}
	}
	p.end()
}
