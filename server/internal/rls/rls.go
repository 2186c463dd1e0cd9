// Package rls answers Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService.
//
// A descriptor is one request to the rules: the domain is its service, the entries are its descriptors (of two entries
// with one key the first counts), and the entry remote_address is its client. All descriptors of a call are one
// decision: what one of them refuses is charged nowhere. The page docs/howto/envoy-filters.md has the meaning of each
// field.
//
// A refusal is always an answer: Envoy lets requests pass after an error, and may do so after an overall code UNKNOWN.
package rls

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/pause"
)

// Options change the answers. The zero Options are the usual ones.
type Options struct {
	// NoHeaders leaves out RateLimit, RateLimit-Policy, Retry-After and the X-RateLimit fields.
	NoHeaders bool
	// NoBody leaves out the body of refusals, which Envoy sends to gRPC clients as the message of the status.
	NoBody bool
	// Unavailable answers UNAVAILABLE, so that Envoy's failure_mode_deny decides, where the store does not answer and
	// a rule has on_store_error: deny. Otherwise such a call is OVER_LIMIT.
	Unavailable bool
	// Ratelimit, if non-nil, makes the service answer as envoyproxy/ratelimit does, without weir's fields and bodies.
	Ratelimit *Ratelimit
}

// A service implements the RateLimitService. It is safe for concurrent use.
type service struct {
	ratelimit.UnimplementedRateLimitServiceServer
	Options
	gate  *gate.Gate
	calls sync.Pool // of *call
	known atomic.Pointer[known]
}

// New returns a function that registers the service at a server.
func New(g *gate.Gate, options Options) func(grpc.ServiceRegistrar) {
	s := &service{Options: options, gate: g}
	s.calls.New = func() any { return new(call) }
	return func(to grpc.ServiceRegistrar) { ratelimit.RegisterRateLimitServiceServer(to, s) }
}

// ShouldRateLimit implements the RateLimitService.
func (s *service) ShouldRateLimit(ctx context.Context, r *ratelimit.RateLimitRequest) (
	*ratelimit.RateLimitResponse, error) {
	if s.Ratelimit != nil {
		if err := s.Ratelimit.check(r); err != nil {
			return nil, err
		}
	}
	c := s.calls.Get().(*call)
	defer s.release(c)
	if err := c.read(r); err != nil {
		return nil, refused(err)
	}
	s.adapt(r, c)
	if err := s.gate.DecideTogether(ctx, c.questions); err != nil {
		return nil, refused(err)
	}
	s.finish(ctx, c)
	if s.Unavailable && c.failed() {
		return nil, status.Error(codes.Unavailable, "the store does not answer, and a rule has on_store_error: deny")
	}
	if s.Ratelimit != nil {
		return s.likeTheirs(ctx, r, c), nil
	}
	return s.answer(c), nil
}

// adapt makes the questions of a call count as envoyproxy/ratelimit counts.
func (s *service) adapt(r *ratelimit.RateLimitRequest, c *call) {
	if s.Ratelimit == nil {
		return
	}
	set := s.gate.Rules()
	for i, d := range r.GetDescriptors() {
		s.Ratelimit.adapt(c.parts[i], r, d, &c.questions[i], set)
	}
}

// refused is the gRPC status of a call that could not be decided: a wrong one, or one without its caller.
func refused(err error) error {
	var input *weir.InputError
	if errors.As(err, &input) {
		return status.Error(codes.InvalidArgument, input.Error())
	}
	return status.FromContextError(err).Err()
}

// finish releases concurrency limits, since the end of a request is not reported: a call looks for a free unit, and
// holds no unit. Then it waits for the turn in a leaky queue, for at most three quarters of the time that its caller
// has.
func (s *service) finish(ctx context.Context, c *call) {
	var delay time.Duration
	for i := range c.questions {
		v := c.questions[i].Verdict
		if v.Holds() { // if that fails, the lease ends by itself
			_ = s.gate.Release(context.WithoutCancel(ctx), v.Receipt())
		}
		if v.Outcome == gate.Passed && v.Granted > 0 && c.questions[i].Act == gate.Decided {
			delay = max(delay, v.Delay)
		}
	}
	if end, ok := ctx.Deadline(); ok {
		delay = min(delay, time.Until(end)*3/4)
	}
	if delay > 0 {
		pause.For(delay, ctx.Done())
	}
}

// failed reports whether a rule refuses because the store does not answer.
func (c *call) failed() bool {
	for i := range c.questions {
		if c.questions[i].Verdict.Outcome == gate.Failed {
			return true
		}
	}
	return false
}

// maxKept is the number of descriptors whose memory is kept for other calls.
const maxKept = 32

func (s *service) release(c *call) {
	if len(c.questions) > maxKept {
		return
	}
	for i := range c.questions {
		c.questions[i].Request, c.questions[i].Ask = nil, gate.Ask{}
		c.parts[i].entries = nil
	}
	s.calls.Put(c)
}
