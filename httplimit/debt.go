package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// A passage is what becomes of a request that may go on. Without a request it was answered.
type passage struct {
	request *http.Request
	delay   time.Duration // to be slept before it is handed on
	debt    *debt         // nil: none
}

// A debt is what a request that was granted has still to do: keep what it holds while it
// is served, give it back afterwards, and pay what it really cost.
type debt struct {
	lasting  time.Duration // how long the handler goes on when the client has left; 0: it is called off
	measured bool          // end wants to know what was written
	keep     func(ctx context.Context, failed func(error)) (stop func())
	end      func(ctx context.Context, s *served, tell func(Outcome, error))
}

// served is a response that was written.
type served struct {
	request  *http.Request
	header   http.Header
	ran      bool // the handler was called
	returned bool // and did not panic
	meter    *meter

	asked bool // cost was
	units int64
	err   error
}

// serve hands a request on, and sees to its debt.
func (c *config) serve(w http.ResponseWriter, p passage, next http.Handler) {
	if p.debt != nil {
		c.serveIndebted(w, p, next)
		return
	}
	if !pause(p.request.Context(), p.delay) {
		c.unavailable(w, p.request)
		return
	}
	next.ServeHTTP(w, p.request)
}

// serveIndebted pays whatever becomes of the handler: it may panic, and the request's
// context may be over.
func (c *config) serveIndebted(w http.ResponseWriter, p passage, next http.Handler) {
	r := p.request
	tell := func(outcome Outcome, err error) { c.tell(r, Event{Outcome: outcome, Err: err}) }
	s := &served{request: r, header: w.Header()}
	defer func() { p.debt.end(context.WithoutCancel(r.Context()), s, tell) }()
	client := r.Context()
	if p.debt.lasting > 0 {
		lasting, end := outlive(client, p.debt.lasting)
		defer end()
		r, w = r.WithContext(lasting), &patient{ResponseWriter: w, client: client}
	}
	if p.debt.keep != nil { // something is held
		defer p.debt.keep(r.Context(), func(err error) { tell(Unrenewed, err) })()
	}
	if !pause(client, p.delay) {
		c.unavailable(w, r)
		return
	}
	if p.debt.measured {
		s.meter = &meter{ResponseWriter: w, bodiless: r.Method == http.MethodHead}
		w = s.meter
	}
	s.ran = true
	next.ServeHTTP(w, r)
	s.returned = true
}

// outlive is a context that goes on for some time when the client has left.
func outlive(client context.Context, more time.Duration) (lasting context.Context, end func()) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() {
		timer := time.NewTimer(more)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-lasting.Done():
		}
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// A patient response goes on when its client has left, so that the handler does: what cannot
// be written any more is dropped.
type patient struct {
	http.ResponseWriter
	client context.Context
}

// Write implements http.ResponseWriter.
func (p *patient) Write(b []byte) (int, error) {
	n, err := p.ResponseWriter.Write(b)
	if err != nil && p.client.Err() != nil {
		return len(b), nil
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// A costAfter is what a request has cost, see WithCostAfter.
type costAfter func(r *http.Request, status int, header http.Header, bytes int64) int64

// cost asks once, for all limits.
func (s *served) cost(after costAfter) (units int64, err error) {
	if s.asked {
		return s.units, s.err
	}
	s.asked = true
	s.units = after(s.request, s.status(), s.header, s.meter.bytes)
	if s.units < 0 || s.units > weir.MaxUnits {
		s.err = &weir.InputError{Field: "cost after the response", Given: s.units, Allowed: "0 to 4503599627370496 (2^52)"}
	}
	return s.units, s.err
}

// status is that of the response; 0 where the handler panicked before there was one.
func (s *served) status() int {
	if s.meter.status == 0 && s.returned {
		return http.StatusOK
	}
	return s.meter.status
}

// owed is the debt of what a gate granted. actual says what a claim has cost; ok is false
// where that stays as it is. nil leaves all.
func owed(g *gate.Gate, receipt gate.Receipt, actual func(*gate.Charged, *served) (units int64, ok bool, err error)) *debt {
	d, ttl := new(debt), timeToLive(receipt)
	if ttl > 0 {
		d.keep = func(ctx context.Context, failed func(error)) func() {
			return weir.KeepAlive(ctx, ttl, func(ctx context.Context) error { return g.Renew(ctx, receipt) }, failed)
		}
	}
	d.end = func(ctx context.Context, s *served, tell func(Outcome, error)) {
		if s.ran && actual != nil {
			if err := settle(ctx, g, receipt, s, actual); err != nil {
				tell(Unsettled, err)
			}
		}
		if ttl > 0 {
			if err := g.Release(ctx, receipt); err != nil {
				tell(Unreleased, err)
			}
		}
	}
	return d
}

func settle(ctx context.Context, g *gate.Gate, receipt gate.Receipt, s *served, actual func(*gate.Charged, *served) (int64, bool, error)) error {
	var unknown error
	err := g.Settle(ctx, receipt, func(c *gate.Charged) (int64, bool) {
		units, ok, err := actual(c, s)
		if err != nil && c.Rule != nil {
			err = fmt.Errorf("rule %s: %w", c.Rule.Name(), err)
		}
		if err != nil && (unknown == nil || unknown.Error() != err.Error()) { // of several claims once
			unknown = errors.Join(unknown, err)
		}
		return units, ok && err == nil
	})
	return errors.Join(unknown, err)
}

// timeToLive is the shortest of the leases; 0: there are none.
func timeToLive(receipt gate.Receipt) (ttl time.Duration) {
	for i := range receipt {
		if receipt[i].Claim.Lease != "" {
			ttl = shorter(ttl, receipt[i].Claim.Limit)
		}
	}
	return ttl
}

// shortest is the shortest time-to-live of what the limits hold; 0: they hold nothing.
func shortest(limits []*weir.Limit) (ttl time.Duration) {
	for _, limit := range limits {
		if limit.Algorithm() == weir.AlgorithmConcurrency {
			ttl = shorter(ttl, limit)
		}
	}
	return ttl
}

func shorter(ttl time.Duration, limit *weir.Limit) time.Duration {
	own := time.Duration(limit.Period()) * time.Microsecond
	if ttl == 0 {
		return own
	}
	return min(ttl, own)
}
