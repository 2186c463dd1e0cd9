package resp_test

import (
	"context"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/resp"
)

// alike is input that weir and Redis answer with the same bytes, errors included.
var alike = []string{
	"PING\r\n", "*1\r\n$4\r\nPING\r\n", "ping hello\r\n", "PING a b\r\n", "ECHO hi\r\n", "ECHO\r\n", "ECHO a b\r\n",
	"FOO bar baz\r\n", "*1\r\n$3\r\nFOO\r\n", wire("FOO", strings.Repeat("a", 200), "b"), wire("GET", "k"),
	wire("FOO", strings.Repeat("a", 60), strings.Repeat("b", 60), "c", "d"), wire(strings.Repeat("F", 300)), wire("FO\r\nO", "b\na"),
	"SELECT 0\r\n", "SELECT abc\r\n", "SELECT 17\r\n", "SELECT -1\r\n",
	// Input that is no command.
	"*-1\r\nPING\r\n", "*0\r\nPING\r\n", "\r\n\n\nPING\n", "  \r\nPING\r\n", "*abc\r\n", "*2147483648\r\n", "*01\r\n", "*+1\r\n", "* 1\r\n", "*\r\n", "*-\r\n",
	"*1\r\n!3\r\n", "*1\r\nPING\r\n", "*1\r\n$-1\r\n", "*1\r\n$x\r\n", "*1\r\n$\r\n", "*1\r\n$999999999999\r\n", "*2\r\n$4\r\nECHO\r\n$03\r\nabc\r\n",
	"PING\r\n*1\r\n$-1\r\nPING\r\n",
	// Lines as people type them.
	"PING \"a\r\n", "PING 'a'b\r\n", "PING \"\\x41\\n\\\\\\\"\\q\"\r\n", "PING 'a\\'\\n'\r\n", "PING a\"b c\"\r\n", "PING \"\"\r\n", "PING \"\\xzz\"\r\n", "PING\ta\r\n",
	// Authentication.
	"AUTH x\r\n", "AUTH x y\r\n", "AUTH default y\r\n", "AUTH\r\n", "AUTH a b c\r\n",
	"HELLO 4\r\n", "HELLO 1\r\n", "HELLO x\r\n", "HELLO 3 FOO\r\n", "HELLO 3 AUTH a\r\n", "HELLO 3 SETNAME\r\n", "HELLO 3 SETNAME \"a b\"\r\n", "HELLO 3 AUTH a b\r\n",
	"QUIT\r\nPING\r\n", "QUIT a\r\n", "RESET\r\n", "RESET a\r\n", "CLIENT SETNAME n\r\nRESET\r\nCLIENT GETNAME\r\n",
	"CLIENT\r\n", "CLIENT FOO\r\n", "CLIENT SETNAME\r\n", "CLIENT SETNAME 'a b'\r\n", "CLIENT GETNAME\r\n", "CLIENT SETNAME x\r\nCLIENT GETNAME\r\nCLIENT SETNAME ''\r\nCLIENT GETNAME\r\n",
	"CLIENT ID 3\r\n", "CLIENT TRACKING ON\r\n", "CLIENT TRACKING FOO\r\n", "CLIENT TRACKING ON FOO\r\n", "CLIENT TRACKING\r\n", "CLIENT NO-EVICT ON\r\n", "CLIENT NO-EVICT x\r\n",
	"COMMAND FOO\r\n", "COMMAND COUNT 1\r\n", "COMMAND INFO foo\r\n", "COMMAND DOCS nosuch\r\n", "INFO nosuch\r\n",
	"MULTI\r\nMULTI\r\nPING\r\nECHO a\r\nEXEC\r\nPING\r\n", "EXEC\r\n", "DISCARD\r\n", "MULTI\r\nPING\r\nDISCARD\r\nPING\r\n", "MULTI\r\nEXEC\r\n",
	"MULTI\r\nFOO\r\nPING\r\nEXEC\r\nPING\r\n", "MULTI\r\nECHO\r\nPING\r\nEXEC\r\n", "MULTI\r\nPING\r\nSELECT abc\r\nECHO a\r\nEXEC\r\n",
	"MULTI\r\nCLIENT FOO\r\nEXEC\r\n", "MULTI\r\nRESET\r\nEXEC\r\n", "MULTI\r\nPING\r\nQUIT\r\n", "MULTI a\r\n", "MULTI\r\nEXEC a\r\nEXEC\r\n",
	"MULTI\r\nWATCH k\r\nPING\r\nEXEC\r\n", "WATCH\r\n", "UNWATCH\r\n", "MULTI\r\nUNWATCH\r\nEXEC\r\n", "MULTI\r\nAUTH x\r\nEXEC\r\n", "MULTI\r\nCLIENT GETNAME\r\nEXEC\r\n",
	"MULTI\r\nMULTI\r\nEXEC\r\n", "MULTI\r\nWATCH\r\nEXEC\r\n", "EXEC a\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "Host: x\r\nPING\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	"SUBSCRIBE\r\n",
}

// unlike are those of alike whose answer differs on purpose, with the answer.
var unlike = map[string]string{
	wire("GET", "k"):                    "-ERR unknown command 'GET', with args beginning with: 'k' \r\n+OK\r\n",
	"GET / HTTP/1.1\r\nHost: x\r\n\r\n": "-ERR unknown command 'GET', with args beginning with: '/' 'HTTP/1.1' \r\n",
	"SUBSCRIBE\r\n":                     "-ERR unknown command 'SUBSCRIBE', with args beginning with: \r\n+OK\r\n",
}

// TestAnswersEqualRedis sends the same bytes to a real Redis and compares every byte of the
// answers. QUIT ends each, so that nothing is waited for in vain.
func TestAnswersEqualRedis(t *testing.T) {
	redis, h := redistest.Start(t).Addr(), open(t)
	for _, raw := range alike {
		want, special := unlike[raw]
		if !special {
			want = exchange(t, redis, raw)
		}
		if got := exchange(t, h.addr, raw); got != want {
			t.Errorf("%.100q:\n got %q\nwant %q", raw, got, want)
		}
	}
}

// exchange sends bytes and then QUIT, which anybody may say, and gives all that comes.
func exchange(t *testing.T, addr, raw string) string {
	t.Helper()
	c := dial(t, addr)
	io.WriteString(c, raw+wire("QUIT")) // the other side may have closed
	got, _ := io.ReadAll(c.in)
	return string(got)
}

func TestPassword(t *testing.T) {
	redis, h := redistest.Start(t, "--requirepass", "s3cret").Addr(), open(t, resp.WithPassword("", "s3cret"), resp.WithPassword("alice", "wonder"))
	for _, raw := range []string{
		"PING\r\n", "FOO\r\n", "PING a b\r\n", "ECHO\r\n", "AUTH x\r\n", "AUTH a b\r\n", "AUTH default s3cre\r\n", "AUTH default s3cret1\r\n", "AUTH alice s3cret\r\n", "HELLO 4\r\n", "HELLO 3 AUTH default x\r\n",
		"AUTH s3cret\r\n", "AUTH default s3cret\r\n", "*11\r\n", "*1\r\n$16385\r\n", "QUIT\r\n", "RESET\r\n", "COMMAND COUNT\r\n", "CLIENT ID\r\n", "CLIENT FOO\r\n",
		"AUTH s3cret\r\nPING\r\nRESET\r\nPING\r\n", "AUTH s3cret\r\nAUTH x\r\nPING\r\n",
	} {
		if got, want := exchange(t, h.addr, raw), exchange(t, redis, raw); got != want {
			t.Errorf("%q:\n got %q\nwant %q", raw, got, want)
		}
	}
	c := h.dial()
	c.want("-NOAUTH Authentication required.", w("CL.THROTTLE k 15 30 60")...)
	c.want("-NOAUTH Authentication required.", w("WEIR.DECIDE RULES method GET")...)
	c.want("-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time", "HELLO", "3")
	c.want("-WRONGPASS invalid username-password pair or user is disabled.", w("HELLO 3 AUTH alice s3cret")...)
	c.words(w("HELLO 3 AUTH alice wonder SETNAME me")...)
	if got := c.reply(); !strings.HasPrefix(got, "{server weir ") {
		t.Errorf("HELLO with a good password: %s", got)
	}
	c.want("me", "CLIENT", "GETNAME")
	if h.seen.Load() != 0 {
		t.Error("commands before authentication were counted")
	}
}

func TestHello(t *testing.T) {
	h := open(t)
	c := h.dial()
	const two = "[server weir version 7.0.15 proto 2 id 1 mode standalone role master modules []]"
	const three = "{server weir version 7.0.15 proto 3 id 1 mode standalone role master modules []}"
	c.want(two, "HELLO")
	c.want(two, "HELLO", "2")
	c.want("-ERR Syntax error in HELLO option 'x'", "HELLO", "3", "x")
	c.want("nil", "CLIENT", "GETNAME")
	c.want(three, w("HELLO 3 SETNAME me")...)
	c.want("me", "CLIENT", "GETNAME")
	c.want(three, "HELLO")
	c.want("RESET", "RESET")
	c.want(two, "HELLO")
	if c := h.dial(); true {
		c.want("2", "CLIENT", "ID")
		c.words("CLIENT", "LIST")
		if got := c.reply(); !regexp.MustCompile(`^id=2 addr=127\.0\.0\.1:\d+ laddr=` + regexp.QuoteMeta(h.addr) + ` name= age=\d+ idle=0 flags=N db=0 user=default resp=2\n$`).MatchString(got) {
			t.Errorf("CLIENT LIST: %s", got)
		}
	}
}

func TestClientSetInfo(t *testing.T) {
	c := open(t).dial()
	c.want("OK", w("CLIENT SETINFO LIB-NAME go-redis(,go1.26)")...)
	c.want("OK", w("CLIENT SETINFO lib-ver 9")...)
	c.want("-ERR Unrecognized option 'lib'", w("CLIENT SETINFO lib x")...)
	c.want("-ERR lib-ver cannot contain spaces, newlines or special characters.", "CLIENT", "SETINFO", "LIB-VER", "a b")
	c.want("OK", w("CLIENT NO-TOUCH on")...)
}

func TestCommand(t *testing.T) {
	c := open(t).dial()
	c.want("21", "COMMAND", "COUNT")
	c.want("[[cl.throttle -1 [write] 1 1 1 [@weir] [] [] []] nil]", w("COMMAND INFO CL.THROTTLE nosuch")...)
	c.want("[cl.throttle [summary Rate limit a key by a token bucket, as redis-cell does group weir]]", w("COMMAND DOCS cl.throttle")...)
	c.want("[cl.throttle weir.decide weir.peek weir.refund weir.release weir.reset auth client command echo hello info ping quit reset select discard exec multi unwatch watch]", "COMMAND", "LIST")
	for _, words := range [][]string{{"COMMAND"}, {"COMMAND", "INFO"}, {"COMMAND", "DOCS"}, {"CLIENT", "HELP"}, {"COMMAND", "HELP"}, {"INFO"}} {
		c.words(words...)
		if got := c.reply(); len(got) < 70 || strings.HasPrefix(got, "-") {
			t.Errorf("%q: only %s", words, got)
		}
	}
	c.want("-ERR syntax error", w("COMMAND LIST FILTERBY MODULE x")...)
}

// TestPipeline: commands that arrive together are answered together, in order.
func TestPipeline(t *testing.T) {
	h := open(t)
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	pipes := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	pipes.conns <- far
	go h.server.Serve(pipes)
	near.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(near, strings.Repeat(wire("CL.THROTTLE", "k", "15", "30", "60"), 20)+"PING\r\n"+wire("ECHO", "x")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096) // one write of the server is one read of a pipe
	n, err := near.Read(answer)
	if err != nil || !strings.HasSuffix(string(answer[:n]), "+PONG\r\n$1\r\nx\r\n") || strings.Count(string(answer[:n]), "*5\r\n") != 20 {
		t.Errorf("the first write of the answer is %q (%v)", answer[:n], err)
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// cutting is a store during whose decision the client resets its connection.
type cutting struct {
	weir.Store
	cut func()
}

func (c *cutting) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := c.Store.Decide(ctx, claims, times, d)
	if times > 0 {
		c.cut()
	}
	return granted, err
}

// A lease whose answer could not be sent is released, unless the client chose its id and so can release it.
func TestLeaseOfAnUnsentAnswerIsReleased(t *testing.T) {
	for name, words := range map[string][]string{"released": nil, "kept": {"LEASE", "id-of-the-client"}} {
		t.Run(name, func(t *testing.T) {
			store := &cutting{Store: memstore.New()}
			h := openOn(t, store)
			line := h.dial()
			gone := make(chan struct{})
			store.cut = func() {
				line.Conn.(*net.TCPConn).SetLinger(0)
				line.Close()
				close(gone)
			}
			question := []string{"RULES", "path", "/exports", "host", "example.com", "user", "eve"}
			line.words(append(append([]string{"WEIR.DECIDE"}, words...), question...)...)
			<-gone
			other := h.dial()
			redistest.Await(t, "the answer of a peek", func() bool {
				free := other.verdict(append([]string{"WEIR.PEEK"}, question...)...)["remaining"] == "1"
				return free == (words == nil)
			})
		})
	}
}
