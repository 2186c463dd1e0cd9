package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/wording"
)

// Adaptive makes middleware that limits the requests in progress by the latency of the handler. class returns the class
// of a request, an index of the limiter's classes; nil: all requests have the first class. Put the middleware behind
// the middleware of rate limits, so that a request that these refuse takes no place. A request beyond the limit is
// answered 503 with Retry-After: 1. The options define the form of that response; their other fields have no effect.
//
// A request is in progress until the handler returns, or until it flushes or hijacks the response, which is then a
// stream; the latency is the time up to there. Status 503 and 504 count as overload. Other statuses from 500, 429, a
// panic and a client that left are ignored. The latency includes the time in which the handler reads the body of the
// request: bound the time that clients may take to send a body, by [http.Server.ReadTimeout].
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
			p := &place{ResponseWriter: w, request: r, limiter: limiter, began: time.Now()}
			defer p.release(adaptive.Ignored) // if the handler panics
			next.ServeHTTP(p, r)
			p.over()
		})
	}, nil
}

// A place belongs to one request, and is the writer of its response.
type place struct {
	http.ResponseWriter
	request *http.Request
	limiter *adaptive.Limiter
	began   time.Time
	status  int // 0: not written yet
	free    bool
}

// over gives the place back when the head of the response is known.
func (p *place) over() {
	outcome := adaptive.Answered
	switch {
	case p.request.Context().Err() != nil:
		outcome = adaptive.Ignored
	case p.status == http.StatusServiceUnavailable, p.status == http.StatusGatewayTimeout:
		outcome = adaptive.Overloaded
	case p.status >= 500, p.status == http.StatusTooManyRequests:
		outcome = adaptive.Ignored
	}
	p.release(outcome)
}

func (p *place) release(outcome adaptive.Outcome) {
	if !p.free {
		p.free = true
		p.limiter.Release(outcome, time.Since(p.began))
	}
}

// WriteHeader implements http.ResponseWriter.
func (p *place) WriteHeader(status int) {
	if p.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		p.status = status
	}
	p.ResponseWriter.WriteHeader(status)
}

// ReadFrom implements io.ReaderFrom, by which a file is sent without a copy.
func (p *place) ReadFrom(r io.Reader) (int64, error) { return io.Copy(p.ResponseWriter, r) }

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
