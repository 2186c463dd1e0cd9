package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/resp"
)

const someRules = `
rules:
  - name: whole-site
    limit: 1000/1h
  - name: login
    match: {method: POST, path: /login}
    key: [client.ip, header.X-Device]
    limit: sliding_log 2/1m
  - name: exports
    match: {path: /exports, host: example.com}
    key: [user]
    limit: concurrency 1 ttl 30s
  - name: closed
    match: {descriptor: {plan: "*"}, path: /closed}
    key: [user]
    on_missing: deny
    limit: 5/1m
`

// start is a clock's first time: a round one, so that the instants in docs are short.
const start = weir.Instant(1_800_000_000_000_000)

// A testServer is a server over a store with a clock of the test.
type testServer struct {
	t         testing.TB
	server    *resp.Server
	addr      string
	someRules string
	clock     *atomic.Int64
	store     weir.Store
	seen      *atomic.Int64 // verdicts of the gate's observer
	served    chan error
}

func open(t testing.TB, opts ...resp.Option) *testServer { return openWith(t, someRules, opts...) }

func openWith(t testing.TB, someRules string, opts ...resp.Option) *testServer {
	t.Helper()
	h := &testServer{clock: new(atomic.Int64), someRules: someRules}
	h.clock.Store(int64(start))
	h.store = memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(h.clock.Load()) }))
	return h.open(t, opts...)
}

func openOn(t testing.TB, store weir.Store, opts ...resp.Option) *testServer {
	t.Helper()
	h := &testServer{store: store, clock: new(atomic.Int64), someRules: someRules}
	return h.open(t, opts...)
}

func (h *testServer) open(t testing.TB, opts ...resp.Option) *testServer {
	t.Helper()
	h.t, h.seen, h.served = t, new(atomic.Int64), make(chan error, 1)
	observe := gate.WithObserver(func(*gate.Verdict) { h.seen.Add(1) })
	server, err := resp.New(gatetest.New(t, h.store, h.someRules, observe), h.store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	h.server = server
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = listener.Addr().String()
	go func() { h.served <- h.server.Serve(listener) }()
	t.Cleanup(h.server.Close)
	return h
}

func (h *testServer) pass(d time.Duration) { h.clock.Add(d.Microseconds()) }

func (h *testServer) port() string {
	_, port, _ := net.SplitHostPort(h.addr)
	return port
}

// A line is a connection that reads answers byte by byte.
type line struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (h *testServer) dial() *line { return dial(h.t, h.addr) }

func dial(t testing.TB, addr string) *line {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	return &line{t: t, Conn: nc, in: bufio.NewReader(nc)}
}

func (l *line) send(raw string) {
	l.t.Helper()
	if _, err := io.WriteString(l, raw); err != nil {
		l.t.Fatal(err)
	}
}

// words sends a command as clients do.
func (l *line) words(words ...string) {
	l.t.Helper()
	l.send(wire(words...))
}

func wire(words ...string) string {
	var raw strings.Builder
	fmt.Fprintf(&raw, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&raw, "$%d\r\n%s\r\n", len(word), word)
	}
	return raw.String()
}

// reply reads one, as a text that a test can state: integers and texts as they are,
// errors with their minus, arrays in brackets, maps in braces.
func (l *line) reply() string {
	l.t.Helper()
	text, err := readReply(l.in)
	if err != nil {
		l.t.Fatalf("no reply: %v", err)
	}
	return text
}

func readReply(in *bufio.Reader) (string, error) {
	head, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := head[0], strings.TrimSuffix(head[1:], "\r\n")
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "-" + rest, nil
	case '_':
		return "nil", nil
	}
	var n int
	if _, err := fmt.Sscan(rest, &n); err != nil {
		return "", fmt.Errorf("%q is no reply", head)
	}
	switch kind {
	case '$', '=':
		if n < 0 {
			return "nil", nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	case '%':
		return readElements(in, 2*n, "{", "}")
	case '*', '~':
		return readElements(in, n, "[", "]")
	}
	return "", fmt.Errorf("%q is no reply", head)
}

func readElements(in *bufio.Reader, n int, open, close string) (string, error) {
	if n < 0 {
		return "nil", nil
	}
	list := make([]string, n)
	for i := range list {
		text, err := readReply(in)
		if err != nil {
			return "", err
		}
		list[i] = text
	}
	return open + strings.Join(list, " ") + close, nil
}

// want sends a command and compares what comes.
func (l *line) want(want string, words ...string) {
	l.t.Helper()
	l.words(words...)
	if got := l.reply(); got != want {
		l.t.Errorf("%q:\n got %s\nwant %s", words, got, want)
	}
}

// closed reads to the end.
func (l *line) closed() string {
	l.t.Helper()
	rest, err := io.ReadAll(l.in)
	if err != nil {
		l.t.Errorf("the connection was not closed in order: %v", err)
	}
	return string(rest)
}

// words of a command that has no spaces within them.
func w(command string) []string { return strings.Fields(command) }

// A broken store does not answer.
type broken struct {
	weir.Store
	err error
}

func (b broken) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, b.err
}

func (b broken) Refund(context.Context, []weir.Claim, weir.Instant, []weir.Decision) error {
	return b.err
}

func (b broken) Reset(context.Context, []weir.Claim) error { return b.err }

var errGone = fmt.Errorf("dial: %w", errors.Join(weir.ErrUnavailable, errors.New("connection refused")))
