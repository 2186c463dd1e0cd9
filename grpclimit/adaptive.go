package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/inprogress"
)

// Adaptive makes a Server that limits the calls in progress by the latency of the handlers; it is httplimit.Adaptive
// for gRPC. class returns the class of a call, such as by its method or the metadata of its context, as an index of the
// limiter's classes; nil: all calls have the first class. Metadata is the client's choice, unless a proxy before the
// server sets it. Of the options, Exempt and Observe apply, and others are an error: exempt health checks, and streams
// that send their first message after hours. Put the interceptors after the interceptors of rate limits, so that a call
// that rate limits refuse takes no place.
//
// A call beyond the limit is UNAVAILABLE with RetryInfo and pushback of a second, because another server may have
// room; RESOURCE_EXHAUSTED would say that the client has used up its quota.
//
// A unary call is in progress until its handler returns; a stream until it sends its header or first message, and
// not while it waits longer than 100 ms for a message. Its latency is the time up to there, without these waits.
// UNAVAILABLE, and DEADLINE_EXCEEDED before the deadline of the call, count as overload. A call that its client has
// canceled, or whose deadline has passed, counts as [adaptive.Abandoned]. RESOURCE_EXHAUSTED, UNKNOWN,
// UNIMPLEMENTED, INTERNAL, DATA_LOSS, other CANCELLED, and a panic are ignored; other statuses are answers.
func Adaptive(limiter *adaptive.Limiter, class func(context.Context, *Call) int, options *Options) (*Server, error) {
	if limiter == nil {
		return nil, errors.New("grpclimit: the limiter is nil; give one of adaptive.New")
	}
	o := given(options)
	functions := o.Cost != nil || o.CostAfter != nil || o.Messages != nil
	if functions || o.Missing != 0 || o.StoreErrors != 0 || o.Fields != 0 {
		return nil, errors.New("grpclimit: Options of Adaptive have a field that does not apply; " +
			"allowed: Exempt, Observe")
	}
	return newServer(Server{decide: (&byLatency{limiter, class}).decide, exempt: o.Exempt, observe: o.Observe,
		isForCalls: true})
}

// byLatency decides by an adaptive limiter.
type byLatency struct {
	limiter *adaptive.Limiter
	class   func(context.Context, *Call) int
}

func (d *byLatency) decide(ctx context.Context, call *Call, a *admission) {
	class := 0
	if d.class != nil {
		class = d.class(ctx, call)
	}
	switch err := d.limiter.Acquire(ctx, class); {
	case errors.Is(err, adaptive.ErrRefused):
		a.event.Outcome = httplimit.Refused
		a.busy()
	case err != nil:
		a.event = httplimit.Event{Outcome: httplimit.Failed, Err: err}
		a.status = status.FromContextError(ctx.Err())
	default:
		a.place = &place{ctx: ctx, held: inprogress.Admitted(d.limiter)}
		a.followUp = &followUp{
			keep: func(context.Context, func(error)) func() { return func() {} },
			end:  func(_ context.Context, s *served, _ func(httplimit.Outcome, error)) { a.place.over(s) },
		}
	}
}

// busyWait is how long a client is told to wait.
const busyWait = time.Second

// busy refuses a call because the limit has no free place.
func (a *admission) busy() {
	a.wait = busyWait
	a.status = status.New(codes.Unavailable, "too many calls are in progress: retry after "+retryAfter(busyWait)+"s")
	if detailed, err := a.status.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(busyWait)}); err == nil {
		a.status = detailed
	}
}

// A place is a unit of the limit that one call holds. A nil place is not released.
type place struct {
	ctx  context.Context
	held inprogress.Place
}

// over releases the place after the handler has returned or panicked.
func (p *place) over(s *served) {
	if !s.returned {
		p.release(adaptive.Ignored)
		return
	}
	p.release(outcomeOf(s.err))
}

// head releases the place of a stream that begins to answer.
func (p *place) head() {
	if p != nil {
		p.release(adaptive.Answered)
	}
}

func (p *place) release(outcome adaptive.Outcome) {
	if outcome != adaptive.Ignored && p.ctx.Err() != nil {
		outcome = adaptive.Abandoned
	}
	p.held.Release(outcome)
}

// receive calls a function that waits for a message of the client.
func (p *place) receive(next func(any) error, message any) error {
	if p == nil {
		return next(message)
	}
	defer p.held.Wait()()
	return next(message)
}

// outcomeOf classifies the result of a handler.
func outcomeOf(err error) adaptive.Outcome {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = status.FromContextError(err).Err()
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return adaptive.Overloaded
	case codes.Canceled, codes.Unknown, codes.ResourceExhausted, codes.Unimplemented, codes.Internal, codes.DataLoss:
		return adaptive.Ignored
	}
	return adaptive.Answered
}
