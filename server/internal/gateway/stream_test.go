package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirproject/weir/server/internal/gateway"
)

// echo returns each line as it arrives, in both directions at once.
func echo(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.ProtoMajor == 1 {
			if err := control.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Trailer", "X-Sum, X-Asked")
		w.WriteHeader(200)
		control.Flush()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			io.WriteString(w, strings.ToUpper(line))
			control.Flush()
		}
		w.Header().Set("X-Sum", "42")
		w.Header().Set("X-Asked", r.Trailer.Get("X-Question"))
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "yes")
	}
}

// secured serves a gateway with TLS, and so HTTP/2 too.
func secured(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// The pattern of gRPC: streams and trailers in both directions.
func TestStreamsAndTrailersBothWays(t *testing.T) {
	up := open(t, echo(t))
	upTLS := secured(t, echo(t))
	trusting := gateway.NewTransport(&url.URL{Scheme: "https"})
	trusting.TLSClientConfig = &tls.Config{RootCAs: upTLS.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	t.Cleanup(trusting.CloseIdleConnections)
	toHTTP1 := newGateway(t, up.URL, unlimited)
	toH2C := newGateway(t, strings.Replace(up.URL, "http:", "h2c:", 1), unlimited)
	toTLS := newGateway(t, upTLS.URL, unlimited, gateway.Config{Transport: trusting})
	for name, handler := range map[string]http.Handler{"http/1.1 upstream": toHTTP1, "h2c upstream": toH2C, "https upstream": toTLS} {
		plain, encrypted := front(t, handler), secured(t, handler)
		for _, c := range []struct {
			name, url string
			client    *http.Client
			major     int
		}{
			{"http/1.1", plain.URL, plain.Client(), 1}, {"h2c", plain.URL, h2c(t), 2}, {"h2", encrypted.URL, encrypted.Client(), 2},
		} {
			t.Run(c.name+" to "+name, func(t *testing.T) { converse(t, c.client, c.url, c.major) })
		}
	}
}

func converse(t *testing.T, client *http.Client, url string, major int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reader, writer := io.Pipe()
	defer writer.Close()
	request, err := http.NewRequestWithContext(ctx, "POST", url, reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("TE", "trailers")
	request.Trailer = http.Header{"X-Question": nil}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != major {
		t.Errorf("%s was spoken", response.Proto)
	}
	answers := bufio.NewReader(response.Body)
	for _, line := range []string{"one\n", "two\n"} { // the second is written when the first was answered
		if _, err := io.WriteString(writer, line); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != strings.ToUpper(line) {
			t.Fatalf("%q is answered %q, %v", line, got, err)
		}
	}
	request.Trailer.Set("X-Question", "why")
	writer.Close()
	if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
		t.Fatalf("after the end came %q, %v", rest, err)
	}
	for name, want := range map[string]string{"X-Sum": "42", "X-Asked": "why", "X-Unannounced": "yes"} {
		if got := response.Trailer.Get(name); got != want {
			t.Errorf("trailer %s is %q, want %q", name, got, want)
		}
	}
}

func TestServerSentEventsAreFlushed(t *testing.T) {
	next := make(chan struct{})
	up := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			<-next
		}
	})
	server := front(t, newGateway(t, up.URL, limited(t, 5)))
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	events := bufio.NewReader(response.Body)
	for range 3 {
		if line, err := events.ReadString('\n'); line != "data: x\n" {
			t.Fatalf("%q, %v", line, err)
		}
		events.ReadString('\n')
		next <- struct{}{}
	}
}

// An endless body is streamed and never buffered whole.
func TestUploadsAreStreamed(t *testing.T) {
	const chunk, chunks = 1 << 20, 64
	read := make(chan int)
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		buffer := make([]byte, chunk)
		for {
			n, err := io.ReadFull(r.Body, buffer)
			if read <- n; err != nil {
				return
			}
		}
	})
	server := front(t, newGateway(t, up.URL, unlimited))
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		response, err := server.Client().Post(server.URL, "application/octet-stream", reader)
		if err == nil {
			response.Body.Close()
		}
		done <- err
	}()
	piece := make([]byte, chunk)
	for i := range chunks {
		if _, err := writer.Write(piece); err != nil {
			t.Fatal(err)
		}
		if n := <-read; n != chunk { // it is there before the next piece is written
			t.Fatalf("piece %d: %d bytes", i, n)
		}
	}
	writer.Close()
	<-read
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWebSocket(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				return
			}
			c.Write(r.Context(), kind, []byte(strings.ToUpper(string(message))))
		}
	})
	server := front(t, newGateway(t, up.URL, limited(t, 1)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, response, err := websocket.Dial(ctx, server.URL, &websocket.DialOptions{Subprotocols: []string{"chat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if response.StatusCode != 101 || response.Header.Get("RateLimit") == "" || c.Subprotocol() != "chat" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	for _, word := range []string{"one", "two"} {
		if err := c.Write(ctx, websocket.MessageText, []byte(word)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || string(got) != strings.ToUpper(word) {
			t.Errorf("%q is answered %q, %v", word, got, err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	_, response, err = websocket.Dial(ctx, server.URL, nil)
	if err == nil || response == nil || response.StatusCode != 429 || response.Header.Get("Retry-After") == "" || response.Header.Get("Upgrade") != "" {
		t.Errorf("the second is answered %v, %v", response, err)
	}
	if n := up.connections.Load(); n != 1 {
		t.Errorf("%d connections were opened to the upstream", n)
	}
}

// Another upgrade would give a client an uncounted connection to the upstream.
func TestOtherUpgradesAreNotForwarded(t *testing.T) {
	address, heads := bare(t)
	server := front(t, newGateway(t, "http://"+address, unlimited))
	for _, upgrade := range []string{"Upgrade: h2c", "Upgrade: TLS/1.2", "Upgrade: websocket, h2c", "Upgrade: h2c\r\nUpgrade: websocket"} {
		response, body := raw(t, server, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\n"+upgrade+"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		head := <-heads
		if response.StatusCode != 200 || header(head, "Upgrade") != "" || header(head, "Connection") != "" || header(head, "Http2-Settings") != "" {
			t.Errorf("%s: %s %s\n%s", upgrade, response.Status, body, head)
		}
	}
}

func TestUnrequestedUpgradeIsRefused(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	})
	server := front(t, newGateway(t, up.URL, unlimited))
	response, body := raw(t, server, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	if response.StatusCode != 502 {
		t.Errorf("%s %s", response.Status, body)
	}
}

// RFC 9110, section 10.1.1.
func TestExpectContinue(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/full" {
			http.Error(w, "no room", http.StatusInsufficientStorage) // nothing is read, so no 100 is sent
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	server := front(t, newGateway(t, up.URL, limited(t, 2)))
	ask := func(path string) (*bufio.Reader, func(string)) {
		connection := dial(t, server)
		io.WriteString(connection, "PUT "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		return bufio.NewReader(connection), func(body string) { io.WriteString(connection, body) }
	}
	answer, send := ask("/") // is told to continue once
	if line, err := answer.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	answer.ReadString('\n')
	send("hello")
	if response, body := read(t, answer, "PUT /"); response.StatusCode != 200 || body != "hello" || response.Header.Get("RateLimit") == "" {
		t.Errorf("%s %q %v", response.Status, body, response.Header)
	}
	answer, _ = ask("/full")
	if response, body := read(t, answer, "PUT /full"); response.StatusCode != 507 || body != "no room\n" {
		t.Errorf("%s %q", response.Status, body)
	}
	answer, _ = ask("/")
	if response, _ := read(t, answer, "PUT /"); response.StatusCode != 429 || !response.Close {
		t.Errorf("%s; a body may follow, so the connection must end", response.Status)
	}
}

// RFC 8297. ReverseProxy clears all fields after an informational answer.
func TestInformationalResponsesKeepHeaderFields(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("RateLimit", `"theirs";r=7`)
		w.WriteHeader(http.StatusTeapot)
	})
	server := front(t, newGateway(t, up.URL, limited(t, 5)))
	for name, client := range map[string]*http.Client{"http/1.1": server.Client(), "h2c": h2c(t)} {
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				hints = append(hints, h.Get("Link")+h.Get("RateLimit"))
				return nil
			},
		})
		request, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if strings.Join(hints, "") != "</style.css>; rel=preload" || response.StatusCode != 418 || len(response.Header["Link"]) != 1 {
			t.Errorf("%s: %s with %v, hints %v", name, response.Status, response.Header["Link"], hints)
		}
		if both := response.Header["Ratelimit"]; len(both) != 2 || !strings.HasPrefix(both[0], `"gate";r=`) || both[1] != `"theirs";r=7` || len(response.Header["Ratelimit-Policy"]) != 1 {
			t.Errorf("%s: RateLimit is %q, RateLimit-Policy %q", name, both, response.Header["Ratelimit-Policy"])
		}
	}
}

func TestHeadAndContentLength(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "1000")
		}
		w.Header().Set("Content-Encoding", "gzip") // it is not; the gateway must not decode it
		if r.Method != "HEAD" {
			io.Copy(w, io.LimitReader(neverending{}, 1000))
		}
	})
	server := front(t, newGateway(t, up.URL, unlimited))
	for line, want := range map[string]int64{"HEAD /length": 1000, "HEAD /": -1, "GET /length": 1000, "GET /chunked": -1} {
		response, body := raw(t, server, line+" HTTP/1.1\r\nHost: h\r\n\r\n")
		chunked := len(response.TransferEncoding) == 1
		if response.ContentLength != want && !chunked || strings.HasPrefix(line, "GET") != (len(body) == 1000) || response.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d bytes announced, %d came; %v", line, response.ContentLength, len(body), response.Header)
		}
	}
}

type neverending struct{}

func (neverending) Read(p []byte) (int, error) { return len(p), nil }

// hasty responds before it has read the body.
func hasty(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.ProtoMajor == 1 { // otherwise net/http waits for the body
		_ = control.EnableFullDuplex()
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	_ = control.Flush()
	_, _ = io.Copy(io.Discard, r.Body) // or net/http panics, which is not what is tested here
}

// An upstream that refuses a body responds before the body has arrived.
func TestEarlyResponses(t *testing.T) {
	up := open(t, hasty)
	server := front(t, newGateway(t, up.URL, unlimited))
	for name, client := range map[string]*http.Client{"http/1.1": server.Client(), "h2c": h2c(t)} {
		reader, writer := io.Pipe() // of which nothing ever comes
		response, err := client.Post(server.URL, "application/octet-stream", reader)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		response.Body.Close()
		writer.Close()
		if response.StatusCode != 413 {
			t.Errorf("%s: %s", name, response.Status)
		}
	}
	for _, size := range []int64{64 << 20, 100 << 10, 100 << 10, 100 << 10, 1 << 20, 10} {
		response, err := server.Client().Post(server.URL, "application/octet-stream", io.LimitReader(neverending{}, size))
		if err != nil {
			t.Fatalf("a body of %d bytes: %v", size, err)
		}
		response.Body.Close()
		if response.StatusCode != 413 {
			t.Errorf("a body of %d bytes: %s", size, response.Status)
		}
	}
}

// Bytes after an early response are not read as a request.
func TestUnreadBodyIsNotTheNextRequest(t *testing.T) {
	var seen atomic.Int64
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		hasty(w, r)
	})
	server := front(t, newGateway(t, up.URL, unlimited))
	connection := dial(t, server)
	io.WriteString(connection, "POST /first HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n0123456789")
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || answer.StatusCode != 413 || !answer.Close {
		t.Fatalf("%v, %v", answer, err)
	}
	for range 100 { // while the gateway reads past, and after it
		io.WriteString(connection, "GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	rest, _ := io.ReadAll(connection) // the gateway closes it
	if len(rest) > 0 || seen.Load() != 1 {
		t.Errorf("the upstream saw %d requests, the client %q", seen.Load(), rest)
	}
}
