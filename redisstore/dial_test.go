package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
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
	if conn.(*watched).Conn != pending.conn {
		t.Error("the call did not take the connection that was under way")
	}
}

// TestDialPauses asks again at once after a failure: the server is not knocked at.
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
