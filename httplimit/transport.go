package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pace"
	"github.com/weirproject/weir/internal/pause"
)

// A Transport is an http.RoundTripper that paces a client. Before a request it waits as long as the host has requested
// in an earlier response, and then until the client's own limiter grants a unit. A host requests a wait by Retry-After
// of a 429 or 503, in seconds or as a date, or by a RateLimit with no unit left (r=0;t=…).
//
// If the request's context ends before the wait, the request fails at once, with an error that is
// weir.ErrTooLong and context.DeadlineExceeded, and is not sent.
//
// The zero Transport is ready to use. It is safe for concurrent use; do not change its fields, or
// copy it, after first use.
type Transport struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is the client's own; nil: no limiter. A unit of a concurrency limit is held until the response's body is
	// closed.
	Limiter *weir.Limiter
	// Key is the limiter's key of a request; nil is its host. A request without a key is not
	// sent.
	Key Key
	// MaxWait caps the wait for a host; 0 is 30 seconds. After it the request is sent even if
	// the host requested more: no server stops a client for good. A request that waits longer for
	// a unit of the limiter fails, at once if that is known.
	MaxWait time.Duration
	// Retries is the maximum of repetitions of a request that is answered 429 or 503: after the
	// requested wait, or after a second, then two, four, …. A request is not repeated if its body
	// cannot be read again (no GetBody), or if its wait exceeds MaxWait or the context: the caller
	// gets the response. A request that the server executed before answering 503 is executed twice.
	Retries int

	hosts pace.Waits
}

// RoundTrip sends a request after the waits.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := request
	for attempt := 0; ; attempt++ {
		release, err := t.await(sent)
		if err != nil {
			closeBody(sent)
			return nil, err
		}
		response, err := t.base().RoundTrip(sent)
		if err != nil {
			if release != nil {
				release()
			}
			return nil, err
		}
		if release != nil {
			response.Body = heldUntilClosed(response.Body, release)
		}
		wait := advice(response, time.Now())
		t.hosts.Block(request.URL.Host, min(wait, t.maxWait()))
		if attempt >= t.Retries || !refused(response.StatusCode) {
			return response, nil
		}
		if wait == 0 {
			wait = time.Second << min(attempt, 30)
		}
		again := t.again(request, wait)
		if again == nil {
			return response, nil
		}
		discard(response)
		if !pause.For(wait, request.Context().Done()) {
			closeBody(again)
			return nil, request.Context().Err()
		}
		sent = again
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// CloseIdleConnections closes the idle connections of the base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() { closeIdle(t.base()) }

func closeIdle(base http.RoundTripper) {
	if closer, ok := base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func (t *Transport) maxWait() time.Duration {
	if t.MaxWait <= 0 {
		return pace.MaxWait
	}
	return t.MaxWait
}

// await waits for the host first, so that no unit of the limiter is wasted. release ends the request's units; nil if no
// unit is held.
func (t *Transport) await(request *http.Request) (release func(), err error) {
	ctx, host := request.Context(), request.URL.Host
	if err := t.awaitHost(ctx, host); err != nil || t.Limiter == nil {
		return nil, err
	}
	key, err := t.key(request)
	if err != nil {
		return nil, err
	}
	release, err = pace.Take(ctx, t.Limiter, key, t.maxWait())
	if errors.Is(err, weir.ErrTooLong) {
		return nil, fmt.Errorf("httplimit: %w", err)
	} else if err != nil {
		return nil, err
	}
	if err := t.awaitHost(ctx, host); err != nil { // another response may have requested a wait meanwhile
		if release != nil {
			release()
		}
		return nil, err
	}
	return release, nil
}

// heldBody is a body that releases the units of its request when it is closed.
type heldBody struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// A heldStream is the body of a response 101, which the client writes to.
type heldStream struct {
	*heldBody
	io.Writer
}

func heldUntilClosed(body io.ReadCloser, release func()) io.ReadCloser {
	held := &heldBody{body, release}
	if stream, ok := body.(io.Writer); ok {
		return &heldStream{held, stream}
	}
	return held
}

func (t *Transport) key(request *http.Request) (string, error) {
	if t.Key == nil {
		return Deny.key(func(r *http.Request) (string, error) { return "host:" + r.URL.Host, nil }, request)
	}
	return Deny.key(t.Key, request)
}

func (t *Transport) awaitHost(ctx context.Context, host string) error {
	err := t.hosts.Await(ctx, host)
	if errors.Is(err, weir.ErrTooLong) {
		return fmt.Errorf("httplimit: %w", err)
	}
	return err
}

// again is a copy of the request, or nil if it must not be repeated.
func (t *Transport) again(request *http.Request, wait time.Duration) *http.Request {
	if wait > t.maxWait() || !pace.Fits(request.Context(), wait) {
		return nil
	}
	again := request.Clone(request.Context())
	if request.Body == nil || request.Body == http.NoBody {
		return again
	}
	if request.GetBody == nil {
		return nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil
	}
	again.Body = body
	return again
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		request.Body.Close()
	}
}

// discard reads a short body to its end, so that the connection can be reused.
func discard(response *http.Response) {
	io.CopyN(io.Discard, response.Body, 64<<10)
	response.Body.Close()
}
