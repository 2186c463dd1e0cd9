package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/grpclimit"
	"github.com/weirproject/weir/memstore"
)

func TestGreetings(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	server, err := serve(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	for _, want := range []string{"Hello, Ann", "Hello, Ann", "ResourceExhausted: too many requests: retry after 1s"} {
		if got := greet(listener.Addr().String(), plain); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	// The clock of the store goes on while the client waits.
	waited := false
	pass := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, options...)
		if err != nil {
			waited = true
			now.Add(time.Second.Microseconds())
		}
		return err
	}
	pacer := &grpclimit.Client{Retries: 1}
	got := greet(listener.Addr().String(), plain, grpc.WithChainUnaryInterceptor(pacer.Unary, pass))
	if !strings.HasPrefix(got, "Hello") || !waited {
		t.Errorf("%s, waited: %v", got, waited)
	}
}
