package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/pace"
	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/internal/ratefields"
)

// A Client paces the calls of a gRPC client. Its methods Unary and Stream are interceptors. Before a call it waits as
// long as the server has requested in an earlier response to this method, and then until the client's own limiter
// grants a unit. A server requests a wait with RESOURCE_EXHAUSTED or UNAVAILABLE, by google.rpc.RetryInfo, retry-after
// or grpc-retry-pushback-ms, or by an exhausted RateLimit (r=0;t=…).
//
// If the call's deadline is before the end of the wait, the call fails at once with RESOURCE_EXHAUSTED and is not sent;
// the error is weir.ErrTooLong.
//
// The zero Client is ready to use. It is safe for concurrent use; do not change its fields, or copy it, after first
// use.
type Client struct {
	// Limiter is the client's own; nil for no limiter. A unit of a concurrency limit is held until the call has ended:
	// the unit of a stream when RecvMsg returns an error or the only response, or when its context ends.
	Limiter *weir.Limiter
	// Key is the limiter's key of a call, without a Message for streams; nil is the target of the connection. A call
	// without a key is not sent.
	Key Key
	// MaxWait caps the wait for a server; 0 is 30 seconds. After it the call is sent even if the server requested more:
	// no server stops a client for good. A call that waits longer for a unit of the limiter fails, at once if that is
	// known.
	MaxWait time.Duration
	// Retries is the maximum of repetitions of a unary call after a refusal that requests a wait. A call whose wait
	// exceeds MaxWait or its deadline is not repeated. Streams are not.
	Retries int

	waits pace.Waits
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(ctx context.Context, method string, message, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	for attempt := 0; ; attempt++ {
		release, err := c.await(ctx, conn, &Call{Method: method, Message: message})
		if err != nil {
			return err
		}
		var header, trailer metadata.MD
		all := append(slices.Clip(options), grpc.Header(&header), grpc.Trailer(&trailer))
		err = invoke(ctx, method, message, reply, conn, all...)
		release()
		wait := c.learn(target(conn, method), err, header, trailer)
		repeatable := err != nil && wait > 0 && wait <= c.maxWait() && pace.Fits(ctx, wait)
		if attempt >= c.Retries || !repeatable {
			return err
		}
		if !pause.For(wait, ctx.Done()) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Stream is a grpc.StreamClientInterceptor.
func (c *Client) Stream(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	release, err := c.await(ctx, conn, &Call{Method: method})
	if err != nil {
		return nil, err
	}
	stream, err := open(ctx, description, conn, method, options...)
	if err != nil {
		release()
		c.learn(target(conn, method), err, nil, nil)
		return nil, err
	}
	stop := context.AfterFunc(ctx, release)
	end := func() {
		stop() // otherwise the context of a caller that lives long would keep it
		release()
	}
	learn := func(err error, header, trailer metadata.MD) { c.learn(target(conn, method), err, header, trailer) }
	return &clientStream{stream, !description.ServerStreams, end, learn, false}, nil
}

// A clientStream reads the waits that the server requests, and ends the call's units.
type clientStream struct {
	grpc.ClientStream
	single   bool // the first response is the last one
	release  func()
	learn    func(err error, header, trailer metadata.MD)
	received bool
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err != nil || s.single {
		s.release()
	}
	switch {
	case err == io.EOF:
		s.learn(nil, nil, s.Trailer())
	case err != nil:
		s.learn(err, nil, s.Trailer())
	case !s.received:
		s.received = true
		header, _ := s.Header()
		s.learn(nil, header, nil)
	}
	return err
}

// target is what waits are for.
func target(conn *grpc.ClientConn, method string) string { return conn.Target() + method }

func (c *Client) maxWait() time.Duration {
	if c.MaxWait <= 0 {
		return pace.MaxWait
	}
	return c.MaxWait
}

// await waits for the server first, so that no unit of the limiter is wasted. release ends the call's units; it may be
// called more than once.
func (c *Client) await(ctx context.Context, conn *grpc.ClientConn, call *Call) (release func(), err error) {
	name := target(conn, call.Method)
	release = func() {}
	err = c.waits.Await(ctx, name)
	if err == nil && c.Limiter != nil {
		if held, refused := c.take(ctx, conn, call); refused != nil {
			err = refused
		} else {
			if held != nil {
				release = held
			}
			err = c.waits.Await(ctx, name) // another response may have requested a wait meanwhile
		}
	}
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() != nil:
		err = status.FromContextError(ctx.Err()).Err()
	default:
		err = &unsentError{err}
	}
	release()
	return nil, err
}

// take waits until the limiter grants a unit. release ends it; nil: it is not held.
func (c *Client) take(ctx context.Context, conn *grpc.ClientConn, call *Call) (release func(), err error) {
	key := c.Key
	if key == nil {
		key = func(context.Context, *Call) (string, error) { return "target:" + conn.Target(), nil }
	}
	text, err := httplimit.Deny.Choose(key(ctx, call))
	if err != nil {
		return nil, err
	}
	return pace.Take(ctx, c.Limiter, text, c.maxWait())
}

// An unsentError is the error of a call that was not sent.
type unsentError struct{ cause error }

func (e *unsentError) Error() string {
	return fmt.Sprintf("grpclimit: the call was not sent: %v", e.cause)
}

func (e *unsentError) Unwrap() error { return e.cause }

// GRPCStatus makes it a status for package status.
func (e *unsentError) GRPCStatus() *status.Status {
	code := codes.Internal
	switch {
	case errors.Is(e.cause, weir.ErrTooLong), errors.Is(e.cause, weir.ErrNever):
		code = codes.ResourceExhausted
	case errors.Is(e.cause, weir.ErrUnavailable):
		code = codes.Unavailable
	}
	return status.New(code, e.Error())
}

// learn records the wait that a response requests, and returns it.
func (c *Client) learn(name string, err error, header, trailer metadata.MD) time.Duration {
	wait := advice(err, header, trailer)
	c.waits.Block(name, min(wait, c.maxWait()))
	return wait
}

// advice is the wait that a response requests.
func advice(err error, header, trailer metadata.MD) time.Duration {
	s := status.Convert(err)
	if s.Code() == codes.ResourceExhausted || s.Code() == codes.Unavailable {
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				return max(0, info.GetRetryDelay().AsDuration())
			}
		}
		if n, ok := ratefields.Digits(first(trailer[fieldRetry])); ok {
			return ratefields.InSeconds(n)
		}
		if n, err := strconv.ParseInt(first(trailer[fieldPushback]), 10, 32); err == nil && n >= 0 {
			return time.Duration(n) * time.Millisecond
		}
	}
	return ratefields.Exhausted(slices.Concat(header[fieldLimit], trailer[fieldLimit]))
}
