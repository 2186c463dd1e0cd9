package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// DefaultMaxWait is the longest wait of a Transport that does not say another.
const DefaultMaxWait = 30 * time.Second

// A Transport is an http.RoundTripper that paces a client. Before it sends a request it
// waits as long as the host asked to be left alone in an earlier answer, and then until the
// client's own limiter grants a unit. A host asks to be left alone by
// Retry-After of a 429 or 503, in seconds or as a date, or by a RateLimit of which nothing
// is left (r=0;t=…).
//
// Where the request's context would end before the wait, it fails at once, with an error
// that is weir.ErrTooLong and context.DeadlineExceeded, and nothing is sent.
//
// The zero Transport is ready to use. It is safe for concurrent use; do not change its
// fields, or copy it, once it is used.
type Transport struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is the client's own; nil is none. Its limits hold no leases.
	Limiter *weir.Limiter
	// Key says which of the limiter's keys a request is charged to; nil is its host. A
	// request without a key is not sent.
	Key Key
	// MaxWait caps each wait; 0 is DefaultMaxWait. A host that asks for more is asked again
	// after it: no server stops a client for good. The own limiter is not: a request that
	// would wait longer for it fails at once.
	MaxWait time.Duration
	// Retries is how many times a request is sent again that was answered 429 or 503: after
	// what the server asks for, or a second, then two, four, …. A request whose body cannot
	// be read again (no GetBody) is never repeated, nor is one whose wait exceeds MaxWait or
	// the context: the caller gets that answer. Requests that were executed before they were
	// answered 503 are then executed twice.
	Retries int

	mu    sync.Mutex
	hosts map[string]time.Time // until when each is left alone
}

// maxHosts is how many hosts are remembered as left alone at a time.
const maxHosts = 1024

// RoundTrip sends a request when it may be sent.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := request
	for attempt := 0; ; attempt++ {
		if err := t.await(sent); err != nil {
			closeBody(sent)
			return nil, err
		}
		response, err := t.base().RoundTrip(sent)
		if err != nil {
			return nil, err
		}
		wait := advice(response, time.Now())
		t.leave(request.URL.Host, wait)
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
		if !pause(request.Context(), wait) {
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

// CloseIdleConnections closes those of the base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func (t *Transport) maxWait() time.Duration {
	if t.MaxWait <= 0 {
		return DefaultMaxWait
	}
	return t.MaxWait
}

// await waits for the host first: a unit of the own limiter is not to be taken in vain.
func (t *Transport) await(request *http.Request) error {
	ctx, host := request.Context(), request.URL.Host
	if err := t.awaitHost(ctx, host); err != nil || t.Limiter == nil {
		return err
	}
	key, err := t.key(request)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, t.maxWait())
	defer cancel()
	if err := t.Limiter.Wait(bounded, key); errors.Is(err, weir.ErrTooLong) {
		return fmt.Errorf("httplimit: waits are at most %v: %w", t.maxWait(), err)
	} else if err != nil {
		return err
	}
	return t.awaitHost(ctx, host) // it may have been told meanwhile, by another request
}

func (t *Transport) key(request *http.Request) (string, error) {
	if t.Key == nil {
		return Deny.key(func(r *http.Request) (string, error) { return "host:" + r.URL.Host, nil }, request)
	}
	return Deny.key(t.Key, request)
}

func (t *Transport) awaitHost(ctx context.Context, host string) error {
	wait := t.alone(host)
	if wait <= 0 {
		return ctx.Err()
	}
	if !fits(ctx, wait) {
		return fmt.Errorf("httplimit: %s asked to be left alone for another %v: %w", host, wait, errors.Join(weir.ErrTooLong, context.DeadlineExceeded))
	}
	if !pause(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

// fits reports whether a wait ends before the context does.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

// alone is how long a host is still to be left alone.
func (t *Transport) alone(host string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.hosts[host]
	if !ok {
		return 0
	}
	wait := time.Until(until)
	if wait <= 0 {
		delete(t.hosts, host)
	}
	return wait
}

// leave leaves a host alone for a while. Of two answers the longer one counts.
func (t *Transport) leave(host string, wait time.Duration) {
	if wait <= 0 {
		return
	}
	now := time.Now()
	until := now.Add(min(wait, t.maxWait()))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts == nil {
		t.hosts = make(map[string]time.Time)
	}
	if _, known := t.hosts[host]; !known && len(t.hosts) >= maxHosts {
		t.forget(now)
	}
	if len(t.hosts) < maxHosts && until.After(t.hosts[host]) {
		t.hosts[host] = until
	}
}

// forget makes room where it can. Where it cannot, a further host is not remembered.
func (t *Transport) forget(now time.Time) {
	for host, until := range t.hosts {
		if !until.After(now) {
			delete(t.hosts, host)
		}
	}
}

// again is the request once more, or nil if it must not be repeated.
func (t *Transport) again(request *http.Request, wait time.Duration) *http.Request {
	if wait > t.maxWait() || !fits(request.Context(), wait) {
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

// discard reads a short body to its end, so that the connection can be used again.
func discard(response *http.Response) {
	io.CopyN(io.Discard, response.Body, 64<<10)
	response.Body.Close()
}
