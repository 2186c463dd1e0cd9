package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// A slow upstream holds each request until it is told.
type slow struct {
	*httptest.Server
	arrived, release chan struct{}
}

func startSlow(t *testing.T) *slow {
	s := &slow{arrived: make(chan struct{}, 16), release: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			s.echo(w)
			return
		}
		s.arrived <- struct{}{}
		select {
		case <-s.release:
			io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// echo takes the connection over, as for a WebSocket.
func (s *slow) echo(w http.ResponseWriter) {
	conn, both, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	s.arrived <- struct{}{}
	io.Copy(conn, both)
}

// ask sends a request and hands over what became of it.
func (s *slow) ask(p *process) <-chan string {
	answer := make(chan string, 1)
	go func() {
		response, err := http.Get(p.at("gateway") + "/") // it never gives up
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		answer <- fmt.Sprint(response.StatusCode, " ", string(body), " ", err)
	}()
	<-s.arrived
	return answer
}

func (s *slow) gateway(t *testing.T, args ...string) *process {
	return call{}.serve(t, append(args, "--gateway", "127.0.0.1:0", "--upstream", s.URL)...)
}

// gone reports whether a listener is closed.
func (p *process) gone(listener string) bool {
	_, address, _ := strings.Cut(p.at(listener), "://")
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

func TestShutdownFinishesRequestsInFlight(t *testing.T) {
	t.Parallel()
	upstream := startSlow(t)
	p := upstream.gateway(t)
	answer := upstream.ask(p)
	p.signal(syscall.SIGTERM)
	redistest.Await(t, "both listeners to close", func() bool { return p.gone("gateway") && p.gone("http") })
	close(upstream.release)
	if got := <-answer; got != "200 done <nil>" {
		t.Errorf("the request in flight: %s", got)
	}
	if code := p.code(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.logs())
	}
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	upstream := startSlow(t)
	p := upstream.gateway(t, "--set", "server.shutdown_timeout=1h")
	answer := upstream.ask(p)
	p.signal(syscall.SIGINT)
	redistest.Await(t, "the listener to close", func() bool { return p.gone("gateway") })
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 1 || !strings.Contains(p.logs(), "exit at once after a second signal") {
		t.Errorf("exit %d\n%s", code, p.logs())
	}
	if got := <-answer; strings.HasPrefix(got, "200") {
		t.Errorf("the request in flight: %s", got)
	}
}

func TestShutdownCutsOffSlowRequests(t *testing.T) {
	t.Parallel()
	upstream := startSlow(t)
	p := upstream.gateway(t, "--set", "server.shutdown_timeout=50ms")
	answer := upstream.ask(p)
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 1 || !strings.Contains(p.logs(), "gateway (1): requests in flight were cut off after ") {
		t.Errorf("exit %d\n%s", code, p.logs())
	}
	if got := <-answer; strings.HasPrefix(got, "200") {
		t.Errorf("the request in flight: %s", got)
	}
}

// TestShutdownWaitsForUpgradedConnections, which http.Server does not track, and cuts them off in the end.
func TestShutdownWaitsForUpgradedConnections(t *testing.T) {
	t.Parallel()
	for _, timeout := range []string{"50ms", "10s"} {
		upstream := startSlow(t)
		p := upstream.gateway(t, "--set", "server.shutdown_timeout="+timeout)
		_, address, _ := strings.Cut(p.at("gateway"), "://")
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != 101 {
			t.Fatal(response, err)
		}
		<-upstream.arrived
		p.signal(syscall.SIGTERM)
		redistest.Await(t, "the listener to close", func() bool { return p.gone("gateway") })
		want := 1
		if timeout == "10s" { // it still works, and ends by itself
			want = 0
			io.WriteString(conn, "still\n")
			if line, err := reader.ReadString('\n'); line != "still\n" {
				t.Errorf("the connection says %q, %v", line, err)
			}
			conn.Close()
		}
		if code := p.code(); code != want {
			t.Errorf("with %s: exit %d, want %d\n%s", timeout, code, want, p.logs())
		}
	}
}

// TestDrainServesWhileNotReady: load balancers see /readyz fail before connections do.
func TestDrainServesWhileNotReady(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--set", "server.drain=1h")
	p.signal(syscall.SIGTERM)
	redistest.Await(t, "readyz says no", func() bool {
		status, _, _ := get(t, p.at("http")+"/readyz")
		return status == 503
	})
	if status, _, _ := post(t, p.at("http")+"/v1/decide", `{"request": {"path": "/"}}`); status != 200 {
		t.Errorf("while it drains: %d", status)
	}
	if r := (call{}).run(t, "health", "--server", p.at("http")); r.code != 1 || !strings.Contains(r.err, "not ready: 503 Service Unavailable") {
		t.Error(r)
	}
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 1 || !strings.Contains(p.logs(), "second signal; no requests were in flight") || strings.Contains(p.logs(), "cut off") {
		t.Errorf("exit %d\n%s", code, p.logs())
	}
}

// Servers are replaced under load behind a balancer of connections: from /readyz on it opens
// new ones to the other server, and clients go on with those that they have. Each request must
// have an answer.
func TestNoRequestFailsWhileServersAreReplaced(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }))
	defer upstream.Close()
	args := []string{"--gateway", "127.0.0.1:0", "--upstream", upstream.URL, "--set", "server.drain=1s"}
	now, next := call{}.serve(t, args...), call{}.serve(t, args...)
	b := &balancer{}
	b.to.Store(now)
	b.load(8)
	for range rolls() {
		b.await(t, 300)
		now.signal(syscall.SIGTERM)
		redistest.Await(t, "readyz says no", func() bool {
			status, _, _ := get(t, now.at("http")+"/readyz")
			return status != 200
		})
		b.to.Store(next)
		if code := now.code(); code != 0 {
			t.Errorf("exit %d\n%s", code, now.logs())
		}
		now, next = next, call{}.serve(t, args...)
	}
	b.end()
	t.Logf("%d requests, %d failed", b.asked.Load(), b.failed.Load())
	if b.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed; the first: %v", b.failed.Load(), b.asked.Load(), b.first.Load())
	}
	now.end()
	next.end()
}

// rolls is how often servers are replaced: WEIR_ROLLS says how often for a longer run.
func rolls() int {
	if n, err := strconv.Atoi(os.Getenv("WEIR_ROLLS")); err == nil {
		return n
	}
	if testing.Short() {
		return 1
	}
	return 2
}

// A balancer opens connections to one of two servers.
type balancer struct {
	to            atomic.Pointer[process]
	asked, failed atomic.Int64
	first         atomic.Value
	stop          chan struct{}
	clients       sync.WaitGroup
}

func (b *balancer) load(clients int) {
	b.stop = make(chan struct{})
	for range clients {
		b.clients.Go(func() {
			transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return b.dial(ctx, "gateway")
			}}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: time.Minute}
			for {
				select {
				case <-b.stop:
					return
				default:
					b.ask(client)
				}
			}
		})
	}
}

// dial connects to the server of the moment. On a busy machine that may have ended before it is connected to: then it is
// the next one.
func (b *balancer) dial(ctx context.Context, listener string) (net.Conn, error) {
	for {
		p := b.to.Load()
		_, address, _ := strings.Cut(p.at(listener), "://")
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil || b.to.Load() == p {
			return conn, err
		}
	}
}

// ask sends what net/http does not send again by itself.
func (b *balancer) ask(client *http.Client) {
	b.asked.Add(1)
	response, err := client.Post("http://balanced/", "text/plain", io.NopCloser(strings.NewReader("x")))
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	if err != nil {
		b.failed.Add(1)
		b.first.CompareAndSwap(nil, err.Error())
	}
}

// await waits until so many more requests were sent.
func (b *balancer) await(t *testing.T, n int64) {
	from := b.asked.Load()
	redistest.Await(t, "the load", func() bool { return b.asked.Load() >= from+n })
}

func (b *balancer) end() {
	close(b.stop)
	b.clients.Wait()
}

func TestAnswersOfADrainingServerEndTheirConnections(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	p := call{}.serve(t, "--set", "server.drain=1h", "--gateway", "127.0.0.1:0", "--upstream", upstream.URL)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	two := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	for _, draining := range []bool{false, true} {
		for _, listener := range []string{"http", "gateway"} {
			response, err := http.Get(p.at(listener) + "/livez")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.Close != draining {
				t.Errorf("draining %v: the %s server closes: %v", draining, listener, response.Close)
			}
			for range 2 {
				response, err := two.Get(p.at(listener) + "/livez")
				if err != nil || response.StatusCode != 200 {
					t.Errorf("HTTP/2, draining %v, %s: %v %v", draining, listener, response, err)
				}
			}
		}
		if !draining {
			p.signal(syscall.SIGTERM)
			redistest.Await(t, "readyz says no", func() bool {
				status, _, _ := get(t, p.at("http")+"/readyz")
				return status == 503
			})
		}
	}
	p.signal(syscall.SIGTERM)
	p.code()
}

func TestAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if r := (call{}).run(t, "serve", "--http", listener.Addr().String()); r.code != 1 || !strings.Contains(r.err, "server.http: listen tcp "+listener.Addr().String()) || !strings.Contains(r.err, "address already in use: stop the program that listens there, or give another address") {
		t.Error(r)
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	const nobody = "http://127.0.0.1:1"
	want := nobody + " is not responding: dial tcp 127.0.0.1:1: connect: connection refused; use --server to name another server\n"
	for _, command := range [][]string{{"health"}, {"rules", "list"}, {"explain"}} {
		r := (call{}).run(t, append(command, "--server", nobody)...)
		if r.code != 1 || !strings.HasPrefix(r.err, "weir: ") || !strings.HasSuffix(r.err, want) {
			t.Errorf("%v: %+v", command, r)
		}
	}
}
