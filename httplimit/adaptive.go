package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/inprogress"
	"github.com/weirproject/weir/internal/wording"
)

// Adaptive makes middleware that limits the requests in progress by the latency of the handler. class returns the class
// of a request, an index of the limiter's classes; nil: all requests have the first class. Put the middleware behind
// the middleware of rate limits, so that a request that these refuse takes no place. A request beyond the limit is
// answered 503 with Retry-After: 1. The options define the form of that response; their other fields have no effect.
//
// A request is in progress until the handler returns, or until it flushes or hijacks the response, writes more than
// 2 KiB, or has io.Copy write it, which is then a stream that its client may read slowly. The latency is the time up to
// there, without the time in which the handler waits for the body of the request. While one wait is longer than 100 ms,
// another request may take the place. Status 503 and 504, and the end of a context by a deadline, count as overload; a
// client that left counts as [adaptive.Abandoned]. Other statuses from 500, 429, and a panic are ignored.
func Adaptive(limiter *adaptive.Limiter, class func(*http.Request) int, options *Options) (
	func(http.Handler) http.Handler, error,
) {
	if limiter == nil {
		return nil, errors.New("httplimit: the limiter is nil; give one of adaptive.New")
	}
	_, c, err := configured(options)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			of := 0
			if class != nil {
				of = class(r)
			}
			if limiter.Acquire(r.Context(), of) != nil {
				w.Header().Set(fieldRetry, "1")
				c.answer(w, r, &Refusal{Status: http.StatusServiceUnavailable, say: wording.Busy}, c.body)
				return
			}
			p := &place{ResponseWriter: w, request: r, held: inprogress.Admitted(limiter)}
			defer p.held.Release(adaptive.Ignored) // if the handler panics
			if r.Body != nil && r.Body != http.NoBody {
				r.Body = &received{r.Body, p}
			}
			next.ServeHTTP(p, r)
			p.over()
		})
	}, nil
}

// A place belongs to one request, and is the writer of its response.
type place struct {
	http.ResponseWriter
	request *http.Request
	held    inprogress.Place
	status  int // 0: not written yet
	written int // bytes
}

// A received is the body of a request.
type received struct {
	io.ReadCloser
	place *place
}

// Read implements io.Reader.
func (r *received) Read(b []byte) (int, error) {
	defer r.place.held.Wait()()
	return r.ReadCloser.Read(b)
}

// over gives the place back when the head of the response is known.
func (p *place) over() {
	outcome, ended := adaptive.Answered, p.request.Context().Err()
	switch {
	case errors.Is(ended, context.DeadlineExceeded):
		outcome = adaptive.Overloaded
	case ended != nil:
		outcome = adaptive.Abandoned
	case p.status == http.StatusServiceUnavailable, p.status == http.StatusGatewayTimeout:
		outcome = adaptive.Overloaded
	case p.status >= 500, p.status == http.StatusTooManyRequests:
		outcome = adaptive.Ignored
	}
	p.held.Release(outcome)
}

// WriteHeader implements http.ResponseWriter.
func (p *place) WriteHeader(status int) {
	if p.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		p.status = status
	}
	p.ResponseWriter.WriteHeader(status)
}

// buffered is the number of bytes that net/http writes without waiting for the client.
const buffered = 2 << 10

// Write implements http.ResponseWriter.
func (p *place) Write(b []byte) (int, error) {
	if p.written += len(b); p.written > buffered {
		p.over()
	}
	return p.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, by which a file is sent without a copy.
func (p *place) ReadFrom(r io.Reader) (int64, error) {
	p.over()
	return io.Copy(p.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (p *place) Flush() { _ = p.FlushError() }

// FlushError is for http.ResponseController.
func (p *place) FlushError() error {
	p.over()
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (p *place) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err == nil {
		p.over()
	}
	return conn, buffered, err
}

// Unwrap is for http.ResponseController.
func (p *place) Unwrap() http.ResponseWriter { return p.ResponseWriter }
