package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/rules"
)

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// serveInMemory serves a handler until the test ends, and returns the dialer of its connections.
func serveInMemory(t *testing.T, handler http.Handler) func(context.Context, string, string) (net.Conn, error) {
	listener, server := make(pipes), &http.Server{Handler: handler}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		listener <- far
		return near, nil
	}
}

// latencyOf is the latency of a service in seconds after 45 requests: a window of the start has 40, after two for each
// request of the first limit. The service is reached by a dialer.
func latencyOf(t *testing.T, addresses string, body func() io.Reader,
	dial func(context.Context, string, string) (net.Conn, error)) float64 {
	set, err := rules.Load("f", []byte(`rules: []
services: [{name: search, addresses: [`+addresses+`], concurrency: {adaptive: gradient, min: 1, max: 1}}]
routes: [{name: all, service: search}]`))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	u := NewUpstreams(0, log)
	use, err := u.Prepare(set)
	if err != nil {
		t.Fatal(err)
	}
	use()
	defer u.Close()
	to := u.now.Load().services[0].transport
	to.DialContext = dial
	defer to.CloseIdleConnections()

	unlimited := func(next http.Handler) http.Handler { return next }
	handler, err := New(nil, unlimited, Config{Upstreams: u, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: serveInMemory(t, handler)}}
	defer client.CloseIdleConnections()
	for range 45 {
		response, err := client.Post("http://gateway/", "text/plain", body())
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Fatalf("answered %s, want 200", response.Status)
		}
	}
	return u.Services()[0].Concurrency.Latency
}

// slowly is a body that a client sends within a second.
type slowly struct{}

func (slowly) Read([]byte) (int, error) {
	time.Sleep(time.Second)
	return 0, io.EOF
}

const answers = 10 * time.Millisecond

func afterAWhile(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	time.Sleep(answers)
}

// The latency of a service begins at the end of the request's body: here each client takes a second for its body, and
// the service 10 ms for its answer.
func TestUploadsAreNotTheLatencyOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := serveInMemory(t, http.HandlerFunc(afterAWhile))
		slow := func() io.Reader { return slowly{} }
		if got := latencyOf(t, "http://127.0.0.1:1", slow, service); got != answers.Seconds() {
			t.Errorf("the latency of the service is %v s, want %v s", got, answers.Seconds())
		}
	})
}

// An address that cannot be reached takes a second to say so.
func TestFailedAttemptsAreNotTheLatencyOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := serveInMemory(t, http.HandlerFunc(afterAWhile))
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "127.0.0.1:1" {
				time.Sleep(time.Second)
				return nil, &notConnected{errors.New("no route to host")}
			}
			return service(ctx, network, address)
		}
		none := func() io.Reader { return http.NoBody }
		if got := latencyOf(t, "http://127.0.0.1:1, http://127.0.0.1:2", none, dial); got != answers.Seconds() {
			t.Errorf("the latency of the service is %v s, want %v s", got, answers.Seconds())
		}
	})
}

// Nothing that a client can cause counts as overload, or as a short latency.
func TestClientsCauseNoOverload(t *testing.T) {
	sending, failed, whole := &upload{begun: true}, &upload{err: io.ErrUnexpectedEOF}, &upload{err: io.EOF}
	broken, refused := errors.New("connection reset"), &notConnected{errors.New("connection refused")}
	status := func(status int, call string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Grpc-Status": {call}}}
	}
	for i, c := range []struct {
		response *http.Response
		err      error
		cause    error // of the end of the request
		body     *upload
		want     adaptive.Outcome
	}{
		{nil, context.Canceled, context.Canceled, nil, adaptive.Abandoned},
		{nil, context.Canceled, context.Canceled, whole, adaptive.Abandoned},
		{nil, context.Canceled, context.Canceled, sending, adaptive.Ignored},
		{nil, context.Canceled, errTotal, whole, adaptive.Overloaded},
		{nil, context.Canceled, errTotal, sending, adaptive.Ignored},
		{nil, broken, nil, failed, adaptive.Ignored},
		{nil, broken, nil, sending, adaptive.Ignored},
		{nil, broken, nil, whole, adaptive.Overloaded},
		{nil, refused, nil, sending, adaptive.Overloaded},
		{status(200, ""), nil, nil, sending, adaptive.Ignored},
		{status(200, "0"), nil, nil, whole, adaptive.Answered},
		{status(200, "5"), nil, nil, nil, adaptive.Answered},
		{status(200, "4"), nil, nil, nil, adaptive.Ignored},
		{status(200, "8"), nil, nil, nil, adaptive.Ignored},
		{status(200, "14"), nil, nil, nil, adaptive.Overloaded},
		{status(429, ""), nil, nil, nil, adaptive.Ignored},
		{status(503, ""), nil, nil, sending, adaptive.Overloaded},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		r, _ := http.NewRequestWithContext(ctx, "POST", "/", nil)
		p := &routedRequest{body: c.body}
		sent, _ := c.body.sent()
		if got := p.outcome(r, c.response, c.err, sent); got != c.want {
			t.Errorf("case %d: outcome %d, want %d", i, got, c.want)
		}
		cancel(nil)
	}
}
