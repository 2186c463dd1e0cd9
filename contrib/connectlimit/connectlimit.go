// Package connectlimit limits the calls of connect handlers, and refuses them in the protocol of each call: Connect,
// gRPC or gRPC-Web.
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	path, handler := pingv1connect.NewPingServiceHandler(service)
//	mux.Handle(path, connectlimit.Wrap(limited)(handler))
package connectlimit

import (
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
)

// Wrap makes middleware for handlers of connect of middleware that httplimit or an engine made. A refusal is an error
// of connect, with the message of the rule: resource_exhausted with google.rpc.RetryInfo for an exceeded limit. The
// fields of the limits are metadata. Requests that are no calls are refused as over HTTP. The options are those of the
// handlers.
//
// The route of a call, for rules and httplimit.Route, is its procedure, such as /ping.v1.PingService/Ping, if its
// descriptor is in the program, as generated code has it. Rules read the response as HTTP has it: calls over gRPC have
// the status 200 whatever their error, so count_if cannot tell them apart.
func Wrap(limited func(http.Handler) http.Handler, options ...connect.HandlerOption) func(http.Handler) http.Handler {
	protocols := connect.NewErrorWriter(options...)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isProcedure(r.URL.Path) {
				r.Pattern = r.URL.Path
			}
			refuser := &writer{w, r, protocols}
			adapt.Serve(limited, refuser, r, func(needed http.ResponseWriter, r *http.Request) (status int) {
				if needed == nil {
					needed = w
				}
				next.ServeHTTP(needed, r)
				return 0
			})
		})
	}
}

// isProcedure reports whether a path is a method in the program. Other paths would be routes that clients make up.
func isProcedure(path string) bool {
	service, method, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok {
		return false
	}
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return false
	}
	known, ok := descriptor.(protoreflect.ServiceDescriptor)
	return ok && known.Methods().ByName(protoreflect.Name(method)) != nil
}

// A writer refuses calls in their protocol.
type writer struct {
	http.ResponseWriter
	request   *http.Request
	protocols *connect.ErrorWriter
}

// Unwrap supports http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Refuse implements what httplimit asks of writers that render refusals.
func (w *writer) Refuse(refusal *httplimit.Refusal) bool {
	if !w.protocols.IsSupported(w.request) {
		return false
	}
	failure := connect.NewError(code(refusal), errors.New(refusal.Message))
	if wait := refusal.Wait(); wait > 0 {
		add(failure, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if refusal.Label != "" {
		add(failure, &errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "weir",
			Metadata: map[string]string{"label": refusal.Label}})
	}
	_ = w.protocols.Write(w.ResponseWriter, w.request, failure) // the connection is gone
	return true
}

func add(failure *connect.Error, message proto.Message) {
	if detail, err := connect.NewErrorDetail(message); err == nil { // else its text is not UTF-8
		failure.AddDetail(detail)
	}
}

func code(refusal *httplimit.Refusal) connect.Code {
	switch {
	case refusal.Exceeded:
		return connect.CodeResourceExhausted
	case refusal.Status == http.StatusForbidden:
		return connect.CodePermissionDenied
	case refusal.Status == http.StatusConflict:
		return connect.CodeAlreadyExists
	case refusal.Status == http.StatusInternalServerError:
		return connect.CodeInternal
	case refusal.Status < http.StatusInternalServerError:
		return connect.CodeInvalidArgument
	}
	return connect.CodeUnavailable
}
