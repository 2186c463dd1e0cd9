//go:build unix

package cli_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestNoCommandFailsWhileServersAreReplaced: as TestNoRequestFailsWhileServersAreReplaced for the Redis protocol. Its
// clients look at a connection before they send, as pools of clients do, and open another one where it has ended.
func TestNoCommandFailsWhileServersAreReplaced(t *testing.T) {
	replaced(t, "resp", (*balancer).command)
}

// TestNoCallFailsWhileServersAreReplaced: as above for gRPC.
func TestNoCallFailsWhileServersAreReplaced(t *testing.T) {
	replaced(t, "grpc", (*balancer).call)
}

// replaced replaces servers under the load of eight clients.
func replaced(t *testing.T, listener string, client func(*balancer)) {
	args := []string{"--" + listener, "127.0.0.1:0", "--set", "server.drain=1s"}
	now, next := call{}.serve(t, args...), call{}.serve(t, args...)
	b := &balancer{stop: make(chan struct{})}
	b.to.Store(now)
	for range 8 {
		b.clients.Go(func() { client(b) })
	}
	for range rolls() {
		b.await(t, 300)
		now.signal(syscall.SIGTERM)
		b.to.Store(next)
		if code := now.code(); code != 0 {
			t.Errorf("exit %d\n%s", code, now.logs())
		}
		now, next = next, call{}.serve(t, args...)
	}
	b.end()
	t.Logf("%d asked, %d failed", b.asked.Load(), b.failed.Load())
	if b.failed.Load() > 0 {
		t.Errorf("%d of %d failed; the first: %v", b.failed.Load(), b.asked.Load(), b.first.Load())
	}
	now.end()
	next.end()
}

// call sends calls on one client, which opens connections to the server of the moment.
func (b *balancer) call() {
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return b.dial(ctx, "grpc") }
	conn, err := grpc.NewClient("passthrough:///balanced", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		b.failed.Add(1)
		return
	}
	defer conn.Close()
	for {
		select {
		case <-b.stop:
			return
		default:
		}
		b.asked.Add(1)
		_, err := healthpb.NewHealthClient(conn).Check(context.Background(), new(healthpb.HealthCheckRequest))
		if err != nil {
			b.failed.Add(1)
			b.first.CompareAndSwap(nil, err.Error())
		}
	}
}

// command sends commands on one connection after the other.
func (b *balancer) command() {
	for {
		conn, err := b.dial(context.Background(), "resp")
		if err != nil {
			b.failed.Add(1)
			b.first.CompareAndSwap(nil, err.Error())
			return
		}
		for answer := make([]byte, 1000); !hasEnded(conn); {
			select {
			case <-b.stop:
				conn.Close()
				return
			default:
			}
			b.asked.Add(1)
			io.WriteString(conn, "CL.THROTTLE k 15 30 60\r\n")
			if _, err := conn.Read(answer); err != nil {
				b.failed.Add(1)
				b.first.CompareAndSwap(nil, err.Error())
				break
			}
		}
		conn.Close()
	}
}

// hasEnded reports whether the end of a connection has arrived, without waiting.
func hasEnded(conn net.Conn) (end bool) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	raw.Control(func(fd uintptr) {
		n, err := syscall.Read(int(fd), make([]byte, 1))
		end = n == 0 && err == nil
	})
	return end
}
