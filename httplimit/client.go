package httplimit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/pause"
)

// TransportByRules makes an http.RoundTripper that decides each request by the rules of a gate before base sends it: a
// program that calls an API holds its own budget. base is http.DefaultTransport if it is nil. Rules are about the
// request as it is sent: its method, its URL, its header and its body; client.ip is missing.
//
// The transport works for a client as [ByRules] does for a server: it charges an estimate, asks for the usage of a
// stream if a rule says so, reads the usage from the response while the program reads it, and settles at the end of the
// body. A response is followed to the end of its body, so read it, or close it, as with any transport. A body that is
// closed early is read for at most 100 ms and 64 KiB more, since many programs stop at the last value. If its end is
// not reached by then, the response counts as broken off, and the estimate stays. With charge: as_it_streams and
// overrun: cut the body ends with the error event of the API. Apart from that and from ask_usage, requests and
// responses stay unchanged.
//
// A refusal is not an error but a response, which base did not send: with the status, the fields and the body that the
// rules define, such as the error of an API and Retry-After. So the program and its SDK treat a refusal by their own
// budget as a refusal by the service: they wait, repeat, or report it. If the request's context has ended, the error is
// the context's. A [Transport] around this one waits after refusals and repeats requests; a [Transport] as base repeats
// them within one charge.
//
// Each RoundTrip is charged; so are each repetition of an SDK and each redirect. A request that was never sent
// costs 0: the context ended before, or base got no connection, as an http.Transport reports by the request's
// httptrace.
//
// Options about the clients of a server have no effect here.
func TransportByRules(g *gate.Gate, base http.RoundTripper, options *RuleOptions) (http.RoundTripper, error) {
	d, err := newByRules(g, options)
	if err != nil {
		return nil, err
	}
	d.sends = true
	if base == nil {
		base = http.DefaultTransport
	}
	return &byRulesTransport{d.config().decider(d.decide, nil), base}, nil
}

type byRulesTransport struct {
	*middleware
	base http.RoundTripper
}

// CloseIdleConnections closes the idle connections of the base, for http.Client.CloseIdleConnections.
func (t *byRulesTransport) CloseIdleConnections() { closeIdle(t.base) }

// RoundTrip implements http.RoundTripper.
func (t *byRulesTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	w := &written{header: make(http.Header)}
	p := t.admit(w, asServed(request))
	if p.request == nil {
		closeBody(request)
		if err := request.Context().Err(); err != nil {
			return nil, err
		}
		return w.response(request), nil
	}
	p.request.URL = request.URL // as it was, not in the form that rules match
	if p.followUp == nil {      // no rule has charged it
		return t.base.RoundTrip(p.request)
	}
	return t.send(p)
}

// asServed is a copy of a client's request, with the parts filled in that clients may leave out and servers always
// have.
func asServed(request *http.Request) *http.Request {
	r := request.WithContext(request.Context())
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength == 0 { // the length is not known
		r.ContentLength = -1
	}
	return r
}

// send sends a request that was charged.
func (t *byRulesTransport) send(p admission) (*http.Response, error) {
	s := t.watch(p, nil)
	ctx, cancel := p.request.Context(), context.CancelFunc(func() {})
	if p.followUp.toEnd {
		ctx, cancel = context.WithCancel(ctx)
	}
	renewed := s.keep(ctx)
	stop := func() { renewed(); cancel() }
	if !pause.For(p.delay, ctx.Done()) || ctx.Err() != nil {
		closeBody(p.request)
		s.unsent = true
		s.fail(stop)
		return nil, ctx.Err()
	}
	s.ran = true
	var seen connecting
	response, err := t.base.RoundTrip(p.request.WithContext(httptrace.WithClientTrace(ctx, seen.trace())))
	if err != nil {
		s.unsent = seen.failed()
		s.fail(stop)
		return nil, err
	}
	s.follow(response, cancel, stop)
	return response, nil
}

// connecting records whether a transport has looked for a connection, and got it.
type connecting struct{ wanted, got atomic.Bool }

func (c *connecting) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}
}

func (c *connecting) failed() bool { return c.wanted.Load() && !c.got.Load() }

// fail does the follow-up of a request without a response.
func (s *served) fail(stop func()) {
	s.unfinished = !s.unsent
	stop()
	s.conclude()
}

// follow does the follow-up of a response as its body is read.
func (s *served) follow(response *http.Response, cancel context.CancelFunc, stop func()) {
	s.header, s.returned = response.Header, true
	w := &written{header: response.Header}
	s.meter.ResponseWriter = w
	if len(s.followUp.paced) > 0 {
		s.pace(cancel)
	}
	s.meter.begin(response.StatusCode)
	body := &followedBody{ReadCloser: response.Body, served: s, response: response, event: w, cancel: cancel,
		stop: stop}
	_, stream := response.Body.(io.Writer) // of a response 101
	switch {
	case stream:
		response.Body = heldUntilClosed(response.Body, func() { body.end(true) })
	case response.Body == http.NoBody || !s.followUp.toEnd:
		body.end(true)
	default:
		response.Body = body
	}
}

// A followedBody is the body of a response from which costs are read. Close may be called during Read.
type followedBody struct {
	io.ReadCloser
	served   *served
	response *http.Response
	event    *written // the end of a response that was cut
	cancel   context.CancelFunc
	stop     func() // cancels, and ends the renewals of leases

	mu    sync.Mutex // held by Read
	ended bool
}

// Read implements io.Reader.
func (b *followedBody) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.served.cut {
		n, err = b.ReadCloser.Read(p)
		if n > 0 && !b.ended && b.served.meter.passes(p[:n]) != nil {
			b.ReadCloser.Close()
			b.end(true)
		}
	}
	if b.served.cut {
		return b.event.body.Read(p)
	}
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

// The bounds for reading the rest of a body that is closed before its end. The end is near if the program has read all
// values that it needs.
const (
	drainedBytes = 64 << 10
	drainTime    = 100 * time.Millisecond
)

// Close implements io.Closer.
func (b *followedBody) Close() error {
	if b.mu.TryLock() { // else Read is waiting
		drained := b.ended
		b.mu.Unlock()
		if !drained {
			timer := time.AfterFunc(drainTime, func() { b.cancel(); b.ReadCloser.Close() })
			io.CopyN(io.Discard, b, drainedBytes)
			timer.Stop()
		}
	}
	err := b.ReadCloser.Close()
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(false)
	return err
}

// end does the follow-up once. whole reports whether the response is complete.
func (b *followedBody) end(whole bool) {
	if b.ended {
		return
	}
	b.ended = true
	s := b.served
	if !whole {
		s.unfinished, s.meter.broken = true, true
	}
	if len(b.response.Trailer) > 0 {
		s.header = s.header.Clone()
		for name, lines := range b.response.Trailer {
			s.header[http.TrailerPrefix+name] = lines
		}
	}
	b.stop()
	s.conclude()
}

// A written response, or the written part of a response, comes from the transport, not from the service.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *written) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *written) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *written) Write(b []byte) (int, error) { return w.body.Write(b) }

// response is the response to a client's request.
func (w *written) response(r *http.Request) *http.Response {
	return &http.Response{
		Status:        strconv.Itoa(w.status) + " " + http.StatusText(w.status),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		Body:          io.NopCloser(&w.body),
		ContentLength: int64(w.body.Len()),
		Request:       r,
	}
}
