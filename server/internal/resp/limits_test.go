package resp_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/resp"
)

// TestLimitsEndTheConnection: input beyond a limit is answered an error, which arrives although the
// client goes on sending, and in a closed connection.
func TestLimitsEndTheConnection(t *testing.T) {
	h := open(t, resp.WithLimits(resp.Limits{Line: 1000, Elements: 20, Bulk: 2000, Request: 5000}))
	bulk := "$2000\r\n" + strings.Repeat("a", 2000) + "\r\n"
	for _, test := range []struct{ raw, want string }{
		{"*21\r\n", "invalid multibulk length"},
		{"*1000000000\r\n", "invalid multibulk length"},
		{"*99999999999999999999999999999999\r\n", "too big mbulk count string"},
		{"*" + strings.Repeat("1", 100_000), "too big mbulk count string"},
		{"*2\r\n$536870913\r\n" + strings.Repeat("a", 100_000), "invalid bulk length"},
		{"*2\r\n$" + strings.Repeat("1", 100_000), "too big bulk count string"},
		{"*3\r\n" + bulk + bulk + bulk, "too big request"},
		{strings.Repeat("a", 1001), "too big inline request"},
		{strings.Repeat("a", 100_000) + "\r\n", "too big inline request"},
		{strings.Repeat("a ", 21) + "\r\n", "too big inline request"},
		{"*1\r\n$4\r\nPINGxx", "expected CRLF after a bulk"},
		{"*1\n$4\nPING\n", "invalid multibulk length"},
		{"*1\r\n$4\nPING\r\n", "invalid bulk length"},
		{"*1\r\n\x00", "expected '$', got '?'"},
	} {
		c := h.dial()
		c.send("PING\r\n")
		io.WriteString(c, test.raw) // the last of it may meet a closed connection
		if got, want := c.closed(), "+PONG\r\n-ERR Protocol error: "+test.want+"\r\n"; got != want {
			t.Errorf("%.40q: %q, want %q", test.raw, got, want)
		}
	}
	c := h.dial()
	c.want(strings.Repeat("a", 2000), "ECHO", strings.Repeat("a", 2000))
}

// TestTooLongWordKeepsTheConnection: only its command is an error, and skipped bytes use no memory.
func TestTooLongWordKeepsTheConnection(t *testing.T) {
	c := open(t).dial()
	for _, n := range []int{65537, 70_000, 3 << 20} {
		want := "-ERR a word of 'cl.throttle' has " + strconv.Itoa(n) + " bytes; allowed: at most 65536"
		long := strings.Repeat("a", n)
		c.want(want, "CL.THROTTLE", long, "15", "30", "60")
		c.want(want, "CL.THROTTLE", "k", long, "30", "60")
		c.want("PONG", "PING")
	}
	c.want("[0 16 15 -1 2]", "CL.THROTTLE", strings.Repeat("a", 65536), "15", "30", "60")
	c.want("OK", "MULTI")
	c.want("-ERR a word of 'echo' has 70000 bytes; allowed: at most 65536", "ECHO", strings.Repeat("a", 70_000))
	c.want("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
}

// TestLongKeysAreHashed: a store keeps at most 256 bytes of a key, and two long keys
// are two.
func TestLongKeysAreHashed(t *testing.T) {
	h := open(t)
	c := h.dial()
	long := strings.Repeat("a", 60_000)
	c.want("[0 16 15 -1 2]", "CL.THROTTLE", long, "15", "30", "60")
	c.want("[0 16 14 -1 4]", "CL.THROTTLE", long, "15", "30", "60")
	c.want("[0 16 15 -1 2]", "CL.THROTTLE", long+"b", "15", "30", "60")
	c.words("WEIR.PEEK", "LIMIT", "cl.throttle", "16/32s", long)
	if got := c.reply(); !strings.Contains(got, "remaining 14 ") {
		t.Errorf("by its other name: %s", got)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := h.store.(*memstore.Store).Save(path); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.Stat(path); err != nil || kept.Size() > 1000 {
		t.Errorf("the store keeps %d bytes of two keys (%v)", kept.Size(), err)
	}
	c.want("1", "WEIR.RESET", "LIMIT", "cl.throttle", "1/1s", long)
	c.want("[0 16 15 -1 2]", "CL.THROTTLE", long, "15", "30", "60")
}

func TestUnauthenticatedConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, end := bubble(t, resp.Limits{Login: 10 * time.Second}, resp.WithPassword("", "secret"))
		defer end()
		began := time.Now()
		var sending sync.WaitGroup
		defer sending.Wait()
		sending.Go(func() {
			for range 20 { // lines that say nothing keep nothing open
				if _, err := io.WriteString(nc, "\r\n"); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("it ends with %v", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it ends after %v", took)
		}
	})
}

func TestAuthenticatedConnectionsMayBeIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, end := bubble(t, resp.Limits{Login: 10 * time.Second, Idle: time.Minute}, resp.WithPassword("", "secret"))
		defer end()
		io.WriteString(nc, "AUTH secret\r\n")
		io.ReadFull(nc, make([]byte, len("+OK\r\n")))
		time.Sleep(59 * time.Second)
		ping(t, nc)
		io.WriteString(nc, "RESET\r\n") // as newly connected
		io.ReadFull(nc, make([]byte, len("+RESET\r\n")))
		began := time.Now()
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != 10*time.Second {
			t.Errorf("after RESET it ends after %v with %v", time.Since(began), err)
		}
	})
}

// TestWrongPasswordsAreDelayed: few are not delayed, many wait a second each and end the connection.
func TestWrongPasswordsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, end := bubbles(t, resp.Limits{}, resp.WithPassword("", "secret"))
		defer end()
		began, guesses := time.Now(), 0
		for guesses < 200 {
			nc := dial()
			go io.WriteString(nc, strings.Repeat("AUTH wrong\r\n", 1000))
			answers, _ := io.ReadAll(nc)
			n := strings.Count(string(answers), "-WRONGPASS")
			if n != 5 || strings.Contains(string(answers), "OK") {
				t.Fatalf("one connection is answered %q", answers)
			}
			guesses += n
		}
		if took := time.Since(began); took < 15*time.Second {
			t.Errorf("%d guesses took %v", guesses, took)
		}
		began = time.Now()
		nc := dial()
		io.WriteString(nc, "AUTH secret\r\n")
		if n, err := io.ReadFull(nc, make([]byte, len("+OK\r\n"))); err != nil || time.Since(began) > time.Second {
			t.Errorf("the right password: %d, %v after %v", n, err, time.Since(began))
		}
	})
}

func TestTooManyConnections(t *testing.T) {
	h := open(t, resp.WithLimits(resp.Limits{Conns: 2}))
	first, second := h.dial(), h.dial()
	first.want("PONG", "PING")
	second.want("PONG", "PING")
	if got := h.dial().closed(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("the third gets %q", got)
	}
	first.Close()
	redistest.Await(t, "room for another", func() bool {
		c := h.dial()
		c.words("PING")
		got, err := readReply(c.in)
		c.Close()
		return err == nil && got == "PONG"
	})
	second.want("PONG", "PING")
}

// bubble is a server on a pipe, for tests in which time is the test's.
func bubble(t *testing.T, limits resp.Limits, opts ...resp.Option) (near net.Conn, end func()) {
	dial, end := bubbles(t, limits, opts...)
	return dial(), end
}

// bubbles is a server for several connections.
func bubbles(t *testing.T, limits resp.Limits, opts ...resp.Option) (dial func() net.Conn, end func()) {
	t.Helper()
	store := memstore.New()
	g, err := gate.New(store, gatetest.Rules(t, someRules), gate.WithLocal(store))
	if err != nil {
		t.Fatal(err)
	}
	server, err := resp.New(g, store, append(opts, resp.WithLimits(limits))...)
	if err != nil {
		t.Fatal(err)
	}
	pipes := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	go server.Serve(pipes)
	var open []net.Conn
	dial = func() net.Conn {
		near, far := net.Pipe()
		open = append(open, near)
		pipes.conns <- far
		return near
	}
	return dial, func() {
		for _, near := range open {
			near.Close()
		}
		server.Close()
		store.Close()
	}
}

func ping(t *testing.T, nc net.Conn) {
	t.Helper()
	if _, err := io.WriteString(nc, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, end := bubble(t, resp.Limits{Idle: time.Minute})
		defer end()
		for range 10 {
			ping(t, nc)
			time.Sleep(time.Minute - time.Second) // in the bubble
		}
		ping(t, nc)
		began := time.Now()
		if _, err := nc.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("an idle connection ends with %v", err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Minute/8 {
			t.Errorf("it ends after %v", took)
		}
	})
}

// TestSlowBytesAreIdle: bytes without a whole command do not keep a connection open.
func TestSlowBytesAreIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, end := bubble(t, resp.Limits{Idle: time.Minute})
		defer end()
		began := time.Now()
		for _, err := io.WriteString(nc, "*1\r\n$60000\r\n"); err == nil; _, err = nc.Write([]byte("a")) {
			time.Sleep(time.Second) // in the bubble
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("it was listened to for %v", took)
		}
	})
}

// TestClientThatDoesNotReadIsDisconnected: after a timeout, with bounded memory.
func TestClientThatDoesNotReadIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, end := bubble(t, resp.Limits{Write: time.Minute})
		defer end()
		began := time.Now()
		var err error
		sent := 0
		for ; err == nil; sent++ {
			_, err = io.WriteString(nc, wire("ECHO", strings.Repeat("a", 10_000)))
		}
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it was waited for for %v", took)
		}
		if sent > 20 {
			t.Errorf("%d commands were taken before", sent)
		}
	})
}

func TestConnectionsLeaveNoGoroutines(t *testing.T) {
	h := open(t)
	h.dial().want("PONG", "PING")
	before := runtime.NumGoroutine()
	for i := range 1000 {
		c := h.dial()
		c.want("[0 1000001 1000000 -1 1]", "CL.THROTTLE", strconv.Itoa(i), "1000000", "1000", "1")
		c.Close()
	}
	redistest.Await(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	store := memstore.New()
	g, err := gate.New(store, gatetest.Rules(t, someRules), gate.WithLocal(store))
	if err != nil {
		t.Fatal(err)
	}
	for want, opt := range map[string]resp.Option{
		"maximum of connections is 0;": resp.WithMaxConns(0),
		"a password is empty":          resp.WithPassword("alice", ""),
	} {
		if _, err := resp.New(g, store, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	if _, err := resp.New(nil, store); err == nil {
		t.Error("a server without a gate")
	}
	if _, err := resp.New(g, nil); err == nil {
		t.Error("a server without a store")
	}
}

// TestAnswersAreSentBeforeTheyGrow: long answers to short commands are sent as they are made, so
// that what waits for a client is never much more than one answer.
func TestAnswersAreSentBeforeTheyGrow(t *testing.T) {
	nc, end := bubble(t, resp.Limits{})
	defer end()
	nc.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(nc, strings.Repeat("COMMAND DOCS\r\n", 200)); err != nil {
		t.Fatal(err)
	}
	for total := 0; total < 200*1000; { // one write of the server is one read of a pipe
		n, err := nc.Read(make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if n > 64<<10 {
			t.Fatalf("%d bytes of answers had been kept", n)
		}
		total += n
	}
}
