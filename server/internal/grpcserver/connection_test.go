package grpcserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/grpcserver"
	"github.com/weirproject/weir/server/internal/web"
)

// opened sends the header of a call without its message.
func (f *fixture) opened(t *testing.T, token string) grpc.ClientStream {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	stream, err := f.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, echo)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// stranger opens an HTTP/2 connection without a call.
func (f *fixture) stranger(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", f.Target())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
	if _, err := io.ReadFull(conn, make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestTokenIsCheckedBeforeTheMessage, which a stranger never completes.
func TestTokenIsCheckedBeforeTheMessage(t *testing.T) {
	f := start(t, web.Token{Secret: secret, Write: true})
	for range 100 {
		if err := f.opened(t, "").RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("%v, want Unauthenticated", err)
		}
	}
	redistest.Await(t, "the counts", func() bool { return f.began.Load() == 100 && f.has(echo+" Unauthenticated") })
	if f.warned.Load() != 100 {
		t.Errorf("%d warnings", f.warned.Load())
	}
}

func TestConnectionsOfStrangersAreCut(t *testing.T) {
	f := start(t, web.Token{Secret: secret, Write: true})
	conn := f.stranger(t)
	if _, err := f.call(t, echo, secret, ""); err != nil { // another connection, which stays
		t.Fatal(err)
	}
	for range grpcserver.FirstCall {
		f.Tick()
	}
	// until it ends: by a reset, if the server had not read all yet
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	for range grpcserver.StrangerAge {
		f.Tick()
	}
	if _, err := f.call(t, echo, secret, ""); err != nil {
		t.Error(err)
	}
	open := start(t) // where everybody may call, an idle connection has minutes
	conn = open.stranger(t)
	for range grpcserver.StrangerAge {
		open.Tick()
	}
	conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to an open server was cut: %v", err)
	}
}

func TestLateMessageEndsItsConnection(t *testing.T) {
	f := start(t, web.Token{Secret: secret, Write: true})
	stream := f.opened(t, secret)
	redistest.Await(t, "the call", func() bool { return f.began.Load() == 1 })
	for range grpcserver.LateMessage + 1 {
		f.Tick()
	}
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
	redistest.Await(t, "its end", func() bool { return f.has(echo+" Canceled") || f.has(echo+" Unknown") })
}

func TestStrangersWatchesAreBounded(t *testing.T) {
	f := start(t, web.Token{Secret: secret, Write: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func() error {
		stream, err := healthpb.NewHealthClient(f).Watch(ctx, new(healthpb.HealthCheckRequest))
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for range grpcserver.MaxWatches {
		if err := watch(); err != nil {
			t.Fatal(err)
		}
	}
	if err := watch(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v, want ResourceExhausted", err)
	}
}
