package connectlimit_test

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirproject/weir/contrib/connectlimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

// newPinger stands for generated code.
func newPinger() (path string, handler http.Handler) {
	return "/ping.v1.Pinger/", connect.NewUnaryHandler("/ping.v1.Pinger/Ping", func(
		context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(new(emptypb.Empty)), nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects))
}

func Example() {
	limited := adapttest.Limited()

	mux := http.NewServeMux()
	path, handler := newPinger()
	mux.Handle(path, connectlimit.Wrap(limited)(handler))

	call := "/ping.v1.Pinger/Ping?connect=v1&encoding=json&message=%7B%7D"
	adapttest.Show(mux, call, call)
	// Output:
	// /ping.v1.Pinger/Ping?connect=v1&encoding=json&message=%7B%7D 200
	// /ping.v1.Pinger/Ping?connect=v1&encoding=json&message=%7B%7D 429
}
