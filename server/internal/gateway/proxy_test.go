package gateway_test

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/server/internal/gateway"
)

type middleware = func(http.Handler) http.Handler

// unlimited passes every request.
func unlimited(next http.Handler) http.Handler { return next }

// limited grants n requests an hour to each address.
func limited(t testing.TB, n int64) middleware {
	t.Helper()
	limiter, err := weir.New(memstore.New(), "gate", weir.SlidingLog{Limit: n, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.PeerAddress, nil)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// seen passes every request and sends it to a channel.
func seen(requests chan<- *http.Request) middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests <- r
			next.ServeHTTP(w, r)
		})
	}
}

func newGateway(t testing.TB, upstream string, limit middleware, config ...gateway.Config) http.Handler {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	c := gateway.Config{}
	if len(config) > 0 {
		c = config[0]
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	handler, err := gateway.New(u, limit, c)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// An upstream counts its connections.
type upstream struct {
	*httptest.Server
	connections atomic.Int64
}

func open(t testing.TB, handler http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{Server: httptest.NewUnstartedServer(handler)}
	u.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			u.connections.Add(1)
		}
	}
	u.Config.Protocols = new(http.Protocols)
	u.Config.Protocols.SetHTTP1(true)
	u.Config.Protocols.SetUnencryptedHTTP2(true)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

// front serves a gateway with HTTP/1 and h2c.
func front(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.ErrorLog = log.New(panics{t}, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// panics fails the test where the server caught a panic, which it only logs.
type panics struct{ testing.TB }

func (p panics) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "panic serving") {
		p.Errorf("%s", line)
	}
	return len(line), nil
}

// raw sends bytes unchanged and reads one response.
func raw(t testing.TB, server *httptest.Server, request string) (*http.Response, string) {
	t.Helper()
	connection := dial(t, server)
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	return read(t, bufio.NewReader(connection), request)
}

func dial(t testing.TB, server *httptest.Server) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(time.Minute))
	return connection
}

func read(t testing.TB, reader *bufio.Reader, request string) (*http.Response, string) {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return response, string(body)
}

// A bare upstream is a socket: it sends the bytes of each request's head to a channel.
func bare(t testing.TB) (address string, heads <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	requests := make(chan string, 16)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go sendHeads(connection, requests)
		}
	}()
	return listener.Addr().String(), requests
}

func sendHeads(connection net.Conn, requests chan<- string) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	for {
		var head strings.Builder
		for !strings.HasSuffix(head.String(), "\r\n\r\n") {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
		}
		requests <- head.String()
		io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// RFC 9112, section 3.2; RFC 3986, section 6.2.2.
func TestMatchedFormIsForwarded(t *testing.T) {
	address, heads := bare(t)
	requests := make(chan *http.Request, 1)
	server := front(t, newGateway(t, "http://"+address, seen(requests)))
	loose := front(t, newGateway(t, "http://"+address, seen(requests), gateway.Config{Form: pathform.Form{AllowEncodedSlash: true, AllowBackslash: true, IgnoreCase: true}}))
	strict := front(t, newGateway(t, "http://"+address, seen(requests), gateway.Config{StrictQuery: true}))
	for _, c := range []struct {
		server       *httptest.Server
		target, want string // want "": 400
	}{
		{server, "/", "/"},
		{server, "/login", "/login"},
		{server, "//x/../%6Cogin?next=/", "/login?next=/"},
		{server, "//evil.example/login", "/evil.example/login"},
		{server, "/a/%2e%2e/%6cogin/", "/login/"},
		{server, "/a%3ab%c3%a9;x=1/|\"", "/a%3Ab%C3%A9;x=1/%7C%22"},
		{server, "/%256cogin", "/%256cogin"},
		{server, "/a?", "/a?"},
		{server, "http://other.example//login?x", "/login?x"},
		{server, "http://other.example", "/"},
		{server, "/a?q=%6c;b&&=c&q=1", "/a?q=%6c;b&&=c&q=1"},
		{server, "/a?q=100%&x=%zz&\xff=é#f", "/a?q=100%&x=%zz&\xff=é#f"},
		{server, "/a?" + strings.Repeat("p&", 20_000), "/a?" + strings.Repeat("p&", 20_000)},
		{server, "/a%2fb", ""}, {server, `/a\b`, ""}, {server, "/a%5cb", ""}, {server, "/a%00", ""}, {server, "/..;/a", ""},
		{server, "/a#b", ""}, {server, "*", ""}, {server, "http:opaque", ""},
		{loose, "/A%2fB%5cc", "/a%2Fb%5Cc"}, {loose, "/a%00", ""},
		{strict, "/a?q=1&q=%6c+&é=", "/a?q=1&q=%6c+&é="},
		{strict, "/a?q=1;q=2", ""}, {strict, "/a?q=%zz", ""}, {strict, "/a?q=100%", ""}, {strict, "/a?q#x=1", ""},
	} {
		response, body := raw(t, c.server, "GET "+c.target+" HTTP/1.1\r\nHost: shop.example\r\n\r\n")
		if c.want == "" {
			if response.StatusCode != 400 || response.Header.Get("Content-Type") != "application/problem+json" && !strings.Contains(body, "400 Bad Request") {
				t.Errorf("%.60s: %s %s, want 400", c.target, response.Status, body)
			}
			continue
		}
		if response.StatusCode != 200 {
			t.Errorf("%.60s: %s %s", c.target, response.Status, body)
			continue
		}
		head, matched := <-heads, (<-requests).URL
		if line, _, _ := strings.Cut(head, "\r\n"); line != "GET "+c.want+" HTTP/1.1" {
			t.Errorf("%.60s: the upstream got %.60s, want %.60s", c.target, line, c.want)
		}
		if matched.RequestURI() != c.want {
			t.Errorf("%.60s: matched %.60s, forwarded %.60s", c.target, matched.RequestURI(), c.want)
		}
	}
	if len(heads) > 0 || len(requests) > 0 {
		t.Error("something that was refused was asked for, or forwarded")
	}
}

func TestHTTP2Paths(t *testing.T) {
	address, heads := bare(t)
	server := front(t, newGateway(t, "http://"+address, unlimited))
	host := server.Listener.Addr().String()
	for target, want := range map[string]string{
		"//x/../%6Cogin?next=/": "/login?next=/", "/a?b;c=%": "/a?b;c=%", "/a%2fb": "", `/a\b`: "", "/%00": "", "*": "",
	} {
		opaque := &url.URL{Scheme: "http", Host: host, Opaque: "//" + host + target}
		if target == "*" {
			opaque = &url.URL{Scheme: "http", Host: host, Opaque: "*"}
		}
		response, err := h2c(t).Do(&http.Request{Method: "GET", URL: opaque, Host: host})
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		response.Body.Close()
		if want == "" {
			if response.StatusCode != 400 {
				t.Errorf("%s: %s", target, response.Status)
			}
			continue
		}
		if head := <-heads; !strings.HasPrefix(head, "GET "+want+" HTTP/1.1\r\n") {
			t.Errorf("%s: the upstream got %q", target, head)
		}
	}
}

// h2c is a client of HTTP/2 without TLS.
func h2c(t testing.TB) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func TestUpstreamPathIsPrefixed(t *testing.T) {
	address, heads := bare(t)
	for base, want := range map[string]string{
		"": "/v1/a%3Ab", "/": "/v1/a%3Ab", "/base": "/base/v1/a%3Ab", "/base/": "/base/v1/a%3Ab", "/b%2Fc": "/b%2Fc/v1/a%3Ab", "/b c/": "/b%20c/v1/a%3Ab",
	} {
		server := front(t, newGateway(t, "http://"+address+base, unlimited))
		raw(t, server, "GET //v1/x/../a%3ab HTTP/1.1\r\nHost: h\r\n\r\n")
		if line, _, _ := strings.Cut(<-heads, "\r\n"); line != "GET "+want+" HTTP/1.1" {
			t.Errorf("%q: %s, want %s", base, line, want)
		}
	}
}

// header returns all lines of a field that an upstream got.
func header(head, name string) string {
	response, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		return err.Error()
	}
	if name == "Host" {
		return response.Host
	}
	return strings.Join(response.Header[name], " | ")
}

func extractor(t testing.TB, trusted string, opts ...clientaddr.Option) *clientaddr.Extractor {
	t.Helper()
	e, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix(trusted)}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRequestWithoutHostIsRefused(t *testing.T) {
	address, heads := bare(t)
	server := front(t, newGateway(t, "http://"+address, unlimited))
	for _, head := range []string{"GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"} {
		if r, _ := raw(t, server, head); r.StatusCode != 400 {
			t.Errorf("%q is answered %d, want 400", head, r.StatusCode)
		}
	}
	if len(heads) != 0 {
		t.Errorf("forwarded: %v", <-heads)
	}
}

// Gateways that trust no proxy, and gateways that trust this machine.
func TestForwardingFields(t *testing.T) {
	address, heads := bare(t)
	trustsNone := gateway.Config{Clients: &clientaddr.Extractor{}}
	loopback := gateway.Config{Clients: extractor(t, "127.0.0.0/8")}
	forwarded := gateway.Config{Clients: extractor(t, "127.0.0.0/8", clientaddr.WithHeader("Forwarded"))}
	for _, c := range []struct {
		name, sent string
		config     gateway.Config
		want       map[string]string
	}{
		{"no fields", "", trustsNone,
			map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "shop.example:81", "Host": "shop.example:81"}},
		{"a client lies", "X-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 7.7.7.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: /evil\r\n" +
			"X-Real-Ip: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nX_real_ip: 6.6.6.6\r\nX-Forwarded: 1\r\nX-Forwardedness: 1\r\n", trustsNone,
			map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "shop.example:81", "X-Forwarded-Prefix": "",
				"X-Real-Ip": "", "Forwarded": "", "X_forwarded_for": "", "X_real_ip": "", "X-Forwarded": "", "X-Forwardedness": "1"}},
		{"a trusted proxy", "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 443\r\n", loopback,
			map[string]string{"X-Forwarded-For": "198.51.100.7, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example", "X-Forwarded-Port": "443"}},
		{"a client lies to a proxy", "X-Forwarded-For: 6.6.6.6, 198.51.100.7\r\nX_Forwarded_For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n", loopback,
			map[string]string{"X-Forwarded-For": "198.51.100.7, 127.0.0.1", "Forwarded": "", "X_forwarded_for": ""}},
		{"two proxies say two things", "X-Forwarded-For: 198.51.100.7, 127.0.0.2\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a, b\r\n", loopback,
			map[string]string{"X-Forwarded-For": "198.51.100.7, 127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "shop.example:81"}},
		{"a proxy says nothing", "", loopback, map[string]string{"X-Forwarded-For": "127.0.0.1"}},
		{"a proxy says it in the other field", "X-Forwarded-For: 6.6.6.6\r\nForwarded: for=\"[2001:db8::7]:80\"\r\n", forwarded,
			map[string]string{"X-Forwarded-For": "2001:db8::7, 127.0.0.1", "Forwarded": ""}},
		{"the upstream's host", "", gateway.Config{UpstreamHost: true}, map[string]string{"Host": address, "X-Forwarded-Host": "shop.example:81"}},
	} {
		server := front(t, newGateway(t, "http://"+address, unlimited, c.config))
		raw(t, server, "GET / HTTP/1.1\r\nHost: shop.example:81\r\n"+c.sent+"\r\n")
		head := <-heads
		for name, want := range c.want {
			if got := header(head, name); got != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, want)
			}
		}
	}
}

func TestForwardingFieldsOnUnixSocket(t *testing.T) {
	address, heads := bare(t)
	for _, c := range []struct {
		opts []clientaddr.Option
		want string
	}{{nil, ""}, {[]clientaddr.Option{clientaddr.WithTrustedUnix()}, "198.51.100.7"}} {
		e, err := clientaddr.New(nil, c.opts...)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(newGateway(t, "http://"+address, unlimited, gateway.Config{Clients: e}))
		server.Listener.Close()
		if server.Listener, err = net.Listen("unix", t.TempDir()+"/s"); err != nil {
			t.Fatal(err)
		}
		server.Start()
		defer server.Close()
		connection, err := net.Dial("unix", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		io.WriteString(connection, "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6, 198.51.100.7\r\n\r\n")
		if got := header(<-heads, "X-Forwarded-For"); got != c.want {
			t.Errorf("X-Forwarded-For is %q, want %q", got, c.want)
		}
	}
}

// RFC 9110, section 7.6.1.
func TestConnectionFieldsAreNotMatched(t *testing.T) {
	address, heads := bare(t)
	requests := make(chan *http.Request, 1)
	server := front(t, newGateway(t, "http://"+address, seen(requests)))
	raw(t, server, "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Api-Key\r\nConnection: x-user\r\nX-Api-Key: random\r\nX-User: me\r\n"+
		"X-Kept: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: secret\r\nTE: trailers, gzip\r\n\r\n")
	head, matched := <-heads, (<-requests).Header
	for _, name := range []string{"X-Api-Key", "X-User", "X-Kept"} {
		if got, want := header(head, name), matched.Get(name); got != want || (got != "") != (name == "X-Kept") {
			t.Errorf("%s: %q was matched, %q was forwarded", name, want, got)
		}
	}
	for name, want := range map[string]string{"Connection": "", "Keep-Alive": "", "Proxy-Authorization": "", "Te": "trailers", "User-Agent": "", "Accept-Encoding": ""} {
		if got := header(head, name); got != want {
			t.Errorf("%s: %q was forwarded, want %q", name, got, want)
		}
	}
}

func TestMethods(t *testing.T) {
	address, heads := bare(t)
	server := front(t, newGateway(t, "http://"+address, unlimited))
	for line, want := range map[string]int{
		"GET / HTTP/1.1": 200, "OPTIONS /a HTTP/1.1": 200, "BREW /pot HTTP/1.1": 200, "get / HTTP/1.1": 200, "GET / HTTP/1.0": 200,
		"TRACE / HTTP/1.1": 501, "CONNECT db.example:5432 HTTP/1.1": 501, "CONNECT / HTTP/1.1": 501,
	} {
		response, body := raw(t, server, line+"\r\nHost: h\r\n\r\n")
		if response.StatusCode != want {
			t.Errorf("%s: %s %s", line, response.Status, body)
		}
		method, _, _ := strings.Cut(line, " ")
		if want == 200 && !strings.HasPrefix(<-heads, method+" /") {
			t.Errorf("%s was forwarded as another method", line)
		}
	}
	if response, _ := raw(t, server, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"); response.StatusCode != 200 || len(heads) > 0 {
		t.Errorf("OPTIONS *: %s, %d were forwarded", response.Status, len(heads))
	}
}

func TestUpstreamURLs(t *testing.T) {
	for text, says := range map[string]string{
		"http://h": "", "https://h:8443/base/": "", "h2c://h:50051": "", "http://[::1]:80": "",
		"h:80": "scheme", "ftp://h": "scheme", "http://": "host", "http:///x": "host", "http://:80": "host", "http:h": "host",
		"http://u:hush@h": "without user", "http://h?a=1": "without query", "http://h/?": "without query", "http://h#f": "without query",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = gateway.New(u, unlimited, gateway.Config{})
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := gateway.New(nil, unlimited, gateway.Config{}); err == nil {
		t.Error("no URL is accepted")
	}
	if _, err := gateway.New(&url.URL{Scheme: "http", Host: "h"}, nil, gateway.Config{}); err == nil {
		t.Error("no limit is accepted")
	}
}

// For every input, the limit reads the form that is forwarded.
func FuzzForwarding(f *testing.F) {
	for _, seed := range []string{"//x/../%6Cogin?next=/", "/a%2fb", "/é|?é|;%", "http://h//a?", "*", "/\x00", "/..;/a", "/a?b#c"} {
		f.Add(seed, "Connection: a, B\r\nA: 1\r\n", true)
	}
	var matched, sent *http.Request
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody}, nil
	})
	limit := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { matched = r; next.ServeHTTP(w, r) })
	}
	f.Fuzz(func(t *testing.T, target, fields string, strict bool) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n")))
		if err != nil {
			return
		}
		config := gateway.Config{Transport: transport, StrictQuery: strict}
		matched, sent = nil, nil
		r.RemoteAddr = "192.0.2.1:1"
		w := httptest.NewRecorder()
		newGateway(t, "http://upstream/base", limit, config).ServeHTTP(w, r.WithContext(context.Background()))
		if sent == nil {
			if w.Code != 400 || matched != nil {
				t.Fatalf("%q: %d, and nothing was sent", target, w.Code)
			}
			return
		}
		if got, want := sent.URL.RequestURI(), "/base"+matched.URL.RequestURI(); got != want || sent.URL.Host != "upstream" {
			t.Errorf("%q: matched %q, sent %q to %q", target, want, got, sent.URL.Host)
		}
		for name := range sent.Header {
			if _, there := matched.Header[name]; !there && !strings.HasPrefix(name, "X-Forwarded-") && name != "User-Agent" && name != "Connection" {
				t.Errorf("%q is sent and was not matched", name)
			}
		}
		if got := sent.Header.Get("X-Forwarded-For"); got != "192.0.2.1" {
			t.Errorf("X-Forwarded-For is %q", got)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
