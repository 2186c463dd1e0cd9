package redisconn

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/respguard"
)

func testDialer(t *testing.T, server *redistest.TLSServer) *dialer {
	d := &dialer{network: "tcp", tls: server.Config(), silence: quietest, attempts: make(map[string]*attempt)}
	t.Cleanup(d.close)
	return d
}

// TestDialOutlastsItsCall has a server that is too slow for the TLS handshake within a
// call. The attempt goes on, and a later call takes its connection up.
func TestDialOutlastsItsCall(t *testing.T) {
	server := redistest.StartTLS(t)
	d := testDialer(t, server)
	server.Stop()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := d.dial(ctx, server.Addr(), nil, nil)
		cancel()
		var far *unreachable
		if !errors.As(err, &far) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a stopped server is dialled: %v", err)
		}
	}
	pending := d.attempts[server.Addr()]
	server.Cont()
	<-pending.done
	conn, err := d.dial(t.Context(), server.Addr(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.(*respguard.Conn).Conn.(*watched).Conn != pending.conn {
		t.Error("the call did not take the connection that was under way")
	}
}

// TestDialPauses after a failure: the server is not dialed again at once.
func TestDialPauses(t *testing.T) {
	server := redistest.StartTLS(t)
	d := testDialer(t, server)
	server.Kill()
	if _, err := d.dial(t.Context(), server.Addr(), nil, nil); err == nil {
		t.Fatal("a dead server is dialled")
	}
	failed := d.attempts[server.Addr()]
	d.dial(t.Context(), server.Addr(), nil, nil)
	if d.attempts[server.Addr()] != failed && time.Since(failed.ended) < dialPause {
		t.Error("a second attempt was made at once")
	}
	server.Restart()
	redistest.Await(t, "a connection", func() bool {
		conn, err := d.dial(t.Context(), server.Addr(), nil, nil)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func TestDialAfterClose(t *testing.T) {
	server := redistest.StartTLS(t)
	d := testDialer(t, server)
	d.close()
	if _, err := d.dial(t.Context(), server.Addr(), nil, nil); !errors.Is(err, errDialClosed) {
		t.Errorf("a closed dialer dials: %v", err)
	}
}

// TestWatchedConnection pings a server over a connection as rueidis does when it
// pipelines: idle time does it no harm, a silence after a question ends it.
func TestWatchedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 20 * time.Millisecond
		ours, theirs := net.Pipe()
		frozen := make(chan struct{})
		go answerPings(theirs, silence-1, frozen)
		conn := &watched{Conn: ours, silence: silence, born: time.Now()}
		defer conn.Close()
		conn.SetDeadline(time.Time{})
		replies, ended := make(chan string), make(chan error, 1)
		go func() {
			buffer := make([]byte, 100)
			for {
				n, err := conn.Read(buffer)
				if err != nil {
					ended <- err
					return
				}
				replies <- string(buffer[:n])
			}
		}()
		for range 3 {
			conn.Write([]byte("PING\r\n"))
			select {
			case reply := <-replies:
				if reply != "+PONG\r\n" {
					t.Fatalf("PING gave %q", reply)
				}
			case err := <-ended:
				t.Fatalf("a connection in use ended: %v", err)
			}
			time.Sleep(3 * silence)
		}
		close(frozen)
		asked := time.Now()
		conn.Write([]byte("PING\r\n"))
		if err := <-ended; !errors.Is(err, errSilent) {
			t.Errorf("a frozen server's connection ended with %v", err)
		}
		if waited := time.Since(asked); waited < silence || waited > 2*silence {
			t.Errorf("it ended after %v of silence, want %v and a little", waited, silence)
		}
	})
}

// answerPings answers late, and not at all once frozen.
func answerPings(conn net.Conn, delay time.Duration, frozen chan struct{}) {
	buffer := make([]byte, 100)
	for {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
		time.Sleep(delay)
		select {
		case <-frozen:
		default:
			conn.Write([]byte("+PONG\r\n"))
		}
	}
}

// TestConcurrentDialsGetTheirOwnConnections, one attempt at a time.
func TestConcurrentDialsGetTheirOwnConnections(t *testing.T) {
	server := redistest.Start(t)
	d := &dialer{network: "tcp", silence: quietest, attempts: make(map[string]*attempt)}
	defer d.close()
	conns := make(chan net.Conn, 10)
	for range cap(conns) {
		go func() {
			conn, err := d.dial(t.Context(), server.Addr(), nil, nil)
			if err != nil {
				t.Error(err)
			}
			conns <- conn
		}()
	}
	seen := make(map[string]bool)
	for range cap(conns) {
		conn := <-conns
		defer conn.Close()
		seen[conn.LocalAddr().String()] = true
	}
	if len(seen) != cap(conns) {
		t.Errorf("%d callers have %d connections", cap(conns), len(seen))
	}
}

// TestDialEndsWithTheTimeoutOfACall: although the context of the dial has ten times as long, because
// rueidis makes every call to the node wait for the dial.
func TestDialEndsWithTheTimeoutOfACall(t *testing.T) {
	d := &dialer{network: "tcp", silence: quietest, timeout: 200 * time.Millisecond, attempts: make(map[string]*attempt)}
	d.opened.Store(true)
	defer d.close()
	patient, cancel := context.WithTimeout(t.Context(), 10*d.timeout)
	defer cancel()
	if _, err := d.dial(patient, silentAddr(t), nil, nil); !isUnreachable(err) || !errors.Is(err, errFar) {
		t.Errorf("a server that accepts nobody is dialled: %v", err)
	}
	server := redistest.Start(t)
	conn, err := d.dial(t.Context(), server.Addr(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server.Stop()
	conn.SetDeadline(time.Now().Add(time.Hour))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a greeting that does not come ends with %v", err)
	}
	server.Cont()
	conn.SetDeadline(time.Now().Add(time.Hour))
	conn.Write([]byte("BLPOP nothing 0.5\r\n"))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("after the greeting there is no time for an answer: %v", err)
	}
}

// silentAddr is one where connections are neither accepted nor refused: its queue is full.
func silentAddr(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 4 {
		if conn, err := net.DialTimeout("tcp", addr, 50*time.Millisecond); err == nil {
			t.Cleanup(func() { conn.Close() })
		}
	}
	return addr
}
