// Package kratoslimit limits the requests of kratos servers, over HTTP and gRPC.
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	limit := kratoslimit.Server(limited)
//	http.NewServer(http.Middleware(recovery.Recovery(), limit))
//	grpc.NewServer(grpc.Middleware(recovery.Recovery(), limit))
package kratoslimit

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-kratos/kratos/v2/errors"
	"github.com/go-kratos/kratos/v2/middleware"
	"github.com/go-kratos/kratos/v2/transport"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"google.golang.org/grpc/peer"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
)

// Server makes middleware for kratos of middleware that httplimit or an engine made. A refusal is an error of kratos
// with the status and the message of the rule; its reason is RATELIMIT for an exceeded limit, and its metadata has
// retry_after in seconds. The fields of the limits are in the header of the reply.
//
// The route of a request, for rules and for httplimit.Route, is its operation, such as /helloworld.v1.Greeter/SayHello.
// Over gRPC, rules see a POST of that path, with the metadata as its header. An error of a handler has its status for
// rules with count_if. The reply is encoded after all middleware: rules that settle by its body keep the estimate. To
// measure bodies over HTTP, and to limit streams and connections that are taken over, give limited itself to
// http.Filter, which knows no operation.
func Server(limited func(http.Handler) http.Handler) middleware.Middleware {
	return func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, message any) (reply any, err error) {
			server, ok := transport.FromServerContext(ctx)
			if !ok {
				return next(ctx, message)
			}
			x := &exchange{header: make(http.Header)}
			adapt.Serve(limited, x, request(ctx, server), func(w http.ResponseWriter, r *http.Request) (status int) {
				x.describe(server)
				reply, err = next(r.Context(), message)
				x.take(server)
				if w != nil {
					w.WriteHeader(errors.Code(err))
				}
				return 0
			})
			if x.refusal != nil {
				x.describe(server)
				return nil, failure(x.refusal)
			}
			return reply, err
		}
	}
}

// request is the request as middleware of net/http reads it.
func request(ctx context.Context, server transport.Transporter) (r *http.Request) {
	if own, ok := khttp.RequestFromServerContext(ctx); ok {
		r = own.WithContext(ctx)
		r.Pattern = server.Operation()
		return r
	}
	call := http.Request{Method: http.MethodPost, URL: &url.URL{Path: server.Operation()}, Pattern: server.Operation(),
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: make(http.Header), Body: http.NoBody}
	r = call.WithContext(ctx)
	if caller, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = caller.Addr.String()
	}
	header := server.RequestHeader()
	for _, name := range header.Keys() {
		if strings.EqualFold(name, ":authority") {
			r.Host = header.Get(name)
			continue
		}
		r.Header[http.CanonicalHeaderKey(name)] = header.Values(name)
	}
	return r
}

// failure is a refusal as an error of kratos.
func failure(refusal *httplimit.Refusal) error {
	reason := strings.ReplaceAll(strings.ToUpper(http.StatusText(refusal.Status)), " ", "_")
	if refusal.Exceeded {
		reason = "RATELIMIT" // as kratos' own middleware has it
	}
	metadata := make(map[string]string)
	if refusal.RetryAfter > 0 {
		metadata["retry_after"] = strconv.FormatInt(refusal.RetryAfter, 10)
	}
	if refusal.Label != "" {
		metadata["label"] = refusal.Label
	}
	return errors.New(refusal.Status, reason, refusal.Message).WithMetadata(metadata)
}

// An exchange is the response as middleware of net/http writes and sees it.
type exchange struct {
	header  http.Header
	refusal *httplimit.Refusal
}

// describe copies the fields of the limits to the reply.
func (x *exchange) describe(server transport.Transporter) {
	for name, values := range x.header {
		for _, value := range values {
			server.ReplyHeader().Add(name, value)
		}
	}
}

// take shows the middleware the fields of the reply.
func (x *exchange) take(server transport.Transporter) {
	header := server.ReplyHeader()
	for _, name := range header.Keys() {
		x.header[http.CanonicalHeaderKey(name)] = header.Values(name)
	}
}

func (x *exchange) Header() http.Header { return x.header }

func (x *exchange) WriteHeader(int) {}

func (x *exchange) Write(b []byte) (int, error) { return len(b), nil }

// Refuse, Later and Unseen implement what httplimit asks of writers of a framework.
func (x *exchange) Refuse(refusal *httplimit.Refusal) bool {
	x.refusal = refusal
	return true
}

func (x *exchange) Later(func()) bool { return false }

func (x *exchange) Unseen() bool { return true }
