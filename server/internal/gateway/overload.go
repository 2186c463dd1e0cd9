package gateway

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/rules"
)

// limiterOf returns the limiter of a service; nil: the service has no limit. old is the service of that name before a
// reload, or nil: its limiter stays if the settings are equal; otherwise its counts and measurements are adopted.
func limiterOf(spec *rules.Service, old *service) (*adaptive.Limiter, error) {
	if spec.Concurrency == nil {
		return nil, nil
	}
	known := old != nil && old.limiter != nil
	if known && reflect.DeepEqual(spec.Concurrency, old.spec.Concurrency) {
		return old.limiter, nil
	}
	l, err := adaptive.New(*spec.Concurrency)
	if err == nil && known {
		l.Adopt(old.limiter)
	}
	return l, err
}

// admit acquires a place at the service for a request, which may wait for it.
func (p *routedRequest) admit(r *http.Request, user func(*http.Request) string) error {
	s := p.route.service
	if s.limiter == nil {
		return nil
	}
	class := 0
	if len(s.spec.Concurrency.Classes) > 0 {
		view := p.request
		view.Route, view.Service = p.route.Name, s.spec.Name
		if user != nil {
			view.User = user(r)
		}
		a := &attributes{}
		a.Host, a.RawQuery, a.Fields, a.Kind = r.Host, r.URL.RawQuery, r.Header, p.table.set.ServiceKind()
		view.Attributes = a
		class = s.spec.ClassOf(&view)
	}
	err := s.limiter.Acquire(r.Context(), class)
	p.admitted = err == nil
	return err
}

// attributes are the values of a request that decide its class.
type attributes struct{ webvalues.Request }

// Descriptor implements rules.Attributes.
func (*attributes) Descriptor(string) string { return "" }

// release gives the place of a request back, once.
func (p *routedRequest) release(outcome adaptive.Outcome, took time.Duration) {
	if p.admitted {
		p.admitted = false
		if p.body != nil && p.body.received != nil {
			p.body.received()
		}
		p.route.service.limiter.Release(outcome, took)
	}
}

// answered gives the place of a request back when the head of its response has arrived, so that streams and WebSockets
// hold no place. The latency is the time to the head, without the time in which the client sends its body, and without
// failed attempts at other addresses.
func (p *routedRequest) answered(r *http.Request, response *http.Response, err error) {
	if !p.admitted {
		return
	}
	began := p.began
	sent, at := p.body.sent()
	if sent && at.After(began) {
		began = at
	}
	p.release(p.outcome(r, response, err, sent), time.Since(began))
}

// outcome classifies the end of a request; sent: the client has sent its body. Slow or impatient clients cause no
// overload. A 429 concerns the client. Other errors of a service are ignored: they often come faster than its answers.
func (p *routedRequest) outcome(r *http.Request, response *http.Response, err error, sent bool) adaptive.Outcome {
	if err != nil {
		cause, not := context.Cause(r.Context()), (*notConnected)(nil)
		switch {
		case cause != nil && cause != errTotal && sent:
			return adaptive.Abandoned
		case cause != nil && cause != errTotal, !sent && !errors.As(err, &not):
			return adaptive.Ignored
		}
		return adaptive.Overloaded
	}
	status, call := response.StatusCode, response.Header.Get("Grpc-Status")
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout, call == "14": // UNAVAILABLE
		return adaptive.Overloaded
	case status >= 500, status == http.StatusTooManyRequests, ignoredCalls[call], !sent:
		return adaptive.Ignored
	}
	return adaptive.Answered
}

// ignoredCalls are statuses of gRPC that say nothing about the load: CANCELLED, UNKNOWN, DEADLINE_EXCEEDED (the
// deadline is the client's), RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL and DATA_LOSS.
var ignoredCalls = map[string]bool{"1": true, "2": true, "4": true, "8": true, "12": true, "13": true, "15": true}

// concurrency is the state of the limit for metrics and operators; nil without a limit.
func (s *service) concurrency() *servermetrics.Concurrency {
	if s.limiter == nil {
		return nil
	}
	return servermetrics.NewConcurrency(s.spec.Concurrency, s.limiter.State())
}
