// Package rpcapi answers weir.v1.Limiter, the API of package api over gRPC. A message is turned into the JSON object
// that api reads, and its answer into a message, so that bounds, errors and semantics are the same.
package rpcapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/server/api"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/pathform"
	weirv1 "github.com/weirproject/weir/proto/weir/v1"
)

// A service implements weir.v1.Limiter. It is safe for concurrent use.
type service struct {
	weirv1.UnimplementedLimiterServer
	do api.Do
}

// New returns a function that registers the service at a server, which checks the access of callers. form is that of
// the paths of requests.
func New(g *gate.Gate, form pathform.Form) (func(grpc.ServiceRegistrar), error) {
	do, err := api.Direct(g, form)
	if err != nil {
		return nil, err
	}
	return func(to grpc.ServiceRegistrar) { weirv1.RegisterLimiterServer(to, &service{do: do}) }, nil
}

// Decide implements weir.v1.Limiter.
func (s *service) Decide(ctx context.Context, r *weirv1.DecideRequest) (*weirv1.DecideResponse, error) {
	d := new(weirv1.Decision)
	return &weirv1.DecideResponse{Decision: d}, s.answer(ctx, "/v1/decide", r, d)
}

// Reserve implements weir.v1.Limiter.
func (s *service) Reserve(ctx context.Context, r *weirv1.ReserveRequest) (*weirv1.ReserveResponse, error) {
	d := new(weirv1.Decision)
	return &weirv1.ReserveResponse{Decision: d}, s.answer(ctx, "/v1/reserve", r, d)
}

// Settle implements weir.v1.Limiter.
func (s *service) Settle(ctx context.Context, r *weirv1.SettleRequest) (*weirv1.SettleResponse, error) {
	settled := new(weirv1.SettleResponse)
	return settled, s.answer(ctx, "/v1/settle", r, settled)
}

// Acquire implements weir.v1.Limiter.
func (s *service) Acquire(ctx context.Context, r *weirv1.AcquireRequest) (*weirv1.AcquireResponse, error) {
	d := new(weirv1.Decision)
	return &weirv1.AcquireResponse{Decision: d}, s.answer(ctx, "/v1/acquire", r, d)
}

// Renew implements weir.v1.Limiter.
func (s *service) Renew(ctx context.Context, r *weirv1.RenewRequest) (*weirv1.RenewResponse, error) {
	renewed := new(weirv1.RenewResponse)
	return renewed, s.answer(ctx, "/v1/renew", r, renewed)
}

// Release implements weir.v1.Limiter.
func (s *service) Release(ctx context.Context, r *weirv1.ReleaseRequest) (*weirv1.ReleaseResponse, error) {
	released := new(weirv1.ReleaseResponse)
	return released, s.answer(ctx, "/v1/release", r, released)
}

// answer carries out the operation with this path.
func (s *service) answer(ctx context.Context, path string, request, into proto.Message) error {
	body := appendMessage(nil, request.ProtoReflect())
	err := s.do(ctx, path, body, func(text []byte) error { return protojson.Unmarshal(text, into) })
	var problem *web.Problem
	if errors.As(err, &problem) {
		return refused(problem)
	}
	return err
}

var codesOf = map[int]codes.Code{
	http.StatusBadRequest:            codes.InvalidArgument,
	http.StatusConflict:              codes.FailedPrecondition,
	http.StatusRequestEntityTooLarge: codes.ResourceExhausted, // as grpc-go says of a message that is too large
	http.StatusServiceUnavailable:    codes.Unavailable,
}

// refused is a problem as an error of gRPC. That of a wrong value names it in a detail.
func refused(p *web.Problem) error {
	code, known := codesOf[p.Status]
	if !known {
		code = codes.Internal
	}
	s := status.New(code, p.Detail)
	if p.Field == "" {
		return s.Err()
	}
	violation := &errdetails.BadRequest_FieldViolation{
		Field:       strings.ToValidUTF8(p.Field, "\uFFFD"), // shortened, perhaps within a character
		Description: p.Detail,
	}
	detailed, err := s.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}
