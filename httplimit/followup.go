package httplimit

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/rules"
)

// An admission lets a request go on. Without a request, the response is already written.
type admission struct {
	request  *http.Request
	delay    time.Duration // to sleep before the handler
	followUp *followUp     // may be nil
}

// A followUp is the work that a granted request leaves: renew its leases while it is served, then
// release them and settle the cost.
type followUp struct {
	detached time.Duration // time that the handler may go on after a disconnect; 0: its context is canceled
	measured bool          // head or end needs the length and status of the response
	toEnd    bool          // of a client's request: the end of the response matters, not its head alone
	keep     func(ctx context.Context, failed func(error)) (stop func())
	answer   *rules.Answer // of rules that settle; nil: none does
	read     bool          // the body of the response has the cost
	decoders Decoders
	step     stepper // of rules with charge: as_it_streams
	paced    []pacedRule
	// head, if not nil, is called when the head of the response is known and not yet sent, or before end.
	head func(ctx context.Context, s *served, notify func(Outcome, error))
	end  func(ctx context.Context, s *served, notify func(Outcome, error))
}

// served is a completed response.
type served struct {
	request  *http.Request
	header   http.Header
	ran      bool // the handler was called
	returned bool // the handler did not panic
	meter    *meter
	answer   *rules.Answer
	followUp *followUp
	after    context.Context // of the follow-up, which goes on after the client leaves
	notify   func(Outcome, error)

	unsent     bool     // a client's request was never sent
	stops      []func() // called before the response is concluded, the last one first
	unfinished bool     // see Unfinished
	unseen     bool     // the length and the body of the response are not known
	cut        bool     // the response was: see paced

	computed bool // cost was called
	units    int64
	err      error
}

// serve calls the handler, and does the follow-up.
func (c *config) serve(w http.ResponseWriter, p admission, next http.Handler) {
	if p.followUp != nil {
		c.serveWithFollowUp(w, p, next)
		return
	}
	if !pause.For(p.delay, p.request.Context().Done()) {
		c.unavailable(w, p.request)
		return
	}
	next.ServeHTTP(w, p.request)
}

// serveWithFollowUp does the follow-up even if the handler panics or the request's context ends.
func (c *config) serveWithFollowUp(w http.ResponseWriter, p admission, next http.Handler) {
	r, s := p.request, c.watch(p, w.Header())
	defer s.end(w)
	client := r.Context()
	if p.followUp.detached > 0 {
		detached, end := detach(client, p.followUp.detached)
		s.stops = append(s.stops, end)
		r, w = r.WithContext(detached), &detachedWriter{ResponseWriter: w, client: client, served: s}
	}
	s.stops = append(s.stops, s.keep(r.Context()))
	if !pause.For(p.delay, client.Done()) {
		c.unavailable(w, r)
		return
	}
	if p.followUp.measured {
		s.meter.ResponseWriter = w
		w = s.meter
	}
	if len(p.followUp.paced) > 0 {
		ctx, stop := context.WithCancel(r.Context())
		s.stops = append(s.stops, stop)
		r = r.WithContext(ctx)
		s.pace(stop)
	}
	s.run(next, w, r)
}

// A framework is a writer of a framework other than net/http.
type framework interface {
	// Later keeps end until the response is sent, if that is after the handler has returned, which Later reports.
	Later(end func()) bool
	// Unseen reports whether the body of the response does not pass through the writer.
	Unseen() bool
}

// end ends a request, or has a framework end it later.
func (s *served) end(w http.ResponseWriter) {
	end := func() {
		for _, stop := range slices.Backward(s.stops) {
			stop()
		}
		s.conclude()
	}
	f, ok := w.(framework)
	later := ok && s.returned && f.Later(end)
	if s.unseen = ok && f.Unseen(); !later {
		end()
	}
}

// watch makes the record of a response with this header to a request that has a follow-up.
func (c *config) watch(p admission, header http.Header) *served {
	r, f := p.request, p.followUp
	s := &served{request: r, header: header, answer: f.answer, followUp: f,
		after:  context.WithoutCancel(r.Context()),
		notify: func(outcome Outcome, err error) { c.notify(r, Event{Outcome: outcome, Err: err}) }}
	s.meter = &meter{bodiless: r.Method == http.MethodHead, served: s}
	if f.read {
		s.meter.read = func(h http.Header) io.WriteCloser { return s.reader(h, f.decoders) }
	}
	if f.head != nil {
		s.meter.head = func() { f.head(s.after, s, s.notify) }
	}
	return s
}

// keep renews the leases until stop is called.
func (s *served) keep(ctx context.Context) (stop func()) {
	if s.followUp.keep == nil {
		return func() {}
	}
	return s.followUp.keep(ctx, func(err error) { s.notify(Unrenewed, err) })
}

// pace charges the response while it is streamed; stop ends its request.
func (s *served) pace(stop context.CancelFunc) {
	s.meter.pace = &paced{served: s, rules: s.followUp.paced, step: s.followUp.step, stop: stop,
		failed: func(err error) { s.notify(Unsettled, err) }}
	for _, r := range s.followUp.paced {
		_, cut, _ := r.Steps()
		s.meter.pace.cuts = s.meter.pace.cuts || cut
	}
}

// conclude does the follow-up of a response that has ended.
func (s *served) conclude() {
	s.finish(s.followUp.head != nil)
	s.meter.close()
	s.followUp.end(s.after, s, s.notify)
}

// finish calls the meter's head for a response without a head, if it is needed: net/http sends 200 for a handler that
// returns without writing, and no response for one that panics.
func (s *served) finish(needed bool) {
	switch {
	case !needed || s.unsent || s.meter.status != 0:
	case s.returned:
		s.meter.begin(http.StatusOK)
	default:
		s.meter.head()
	}
}

// Unfinished says that the response about to be written is not the service's: the service got the request, and its
// response was not seen, as after a timeout or a connection that broke. A rule with count_if then counts the request,
// cost.settle leaves its cost, and hold_until: done holds its lease to the time-to-live: the service may have done the
// work, and a client can cause such a failure. A reverse proxy calls it in its ErrorHandler, and when it aborts a
// response, unless the request was never sent. w is the ResponseWriter that the handler got, or one that wraps it
// with an Unwrap method; without rules that need to know, the call has no effect.
func Unfinished(w http.ResponseWriter) {
	for w != nil {
		if s := servedBy(w); s != nil {
			s.unfinished = true
			return
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = wrapper.Unwrap()
	}
}

// servedBy is the record of a writer of this package, or nil.
func servedBy(w http.ResponseWriter) *served {
	switch w := w.(type) {
	case *meter:
		return w.served
	case *detachedWriter:
		return w.served
	}
	return nil
}

// response is the response for rules with count_if. There is no response if the client left before or the request's
// time ended: the handler may have been interrupted, and its status would be another.
func (s *served) response() gate.Response {
	if s.unfinished || s.request.Context().Err() != nil {
		return gate.Response{}
	}
	return gate.Response{Status: s.meter.status, Header: s.header}
}

// detach returns a context that ends some time after the client disconnects, or with end.
func detach(client context.Context, more time.Duration) (detached context.Context, end func()) {
	detached, cancel := context.WithCancel(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() {
		pause.For(more, detached.Done())
		cancel()
	})
	return detached, func() {
		stop()
		cancel()
	}
}

// A detachedWriter ignores write errors after the client has disconnected, so that the handler goes
// on.
type detachedWriter struct {
	http.ResponseWriter
	client context.Context
	served *served
}

// Write implements http.ResponseWriter.
func (p *detachedWriter) Write(b []byte) (int, error) {
	n, err := p.ResponseWriter.Write(b)
	if err != nil && p.client.Err() != nil {
		return len(b), nil
	}
	return n, err
}

// Unwrap supports http.ResponseController.
func (p *detachedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// A costAfter is Options.CostAfter.
type costAfter func(r *http.Request, status int, header http.Header, bytes int64) int64

// cost calls the function once, for all limits.
func (s *served) cost(after costAfter) (units int64, err error) {
	if s.computed {
		return s.units, s.err
	}
	s.computed = true
	s.units = after(s.request, s.status(), s.header, s.meter.bytes)
	if s.units < 0 || s.units > weir.MaxUnits {
		s.err = &weir.InputError{Field: "cost after the response", Given: s.units,
			Allowed: "0 to 4503599627370496 (2^52)"}
	}
	return s.units, s.err
}

// status is the status of the response; 0 if the handler panicked before sending one.
func (s *served) status() int {
	if s.meter.status == 0 && s.returned {
		return http.StatusOK
	}
	return s.meter.status
}

// An actualCost is the cost of a claim, known after the response; ok is false if the cost stays as
// charged.
type actualCost func(*gate.Charged, *served) (units int64, ok bool, err error)

// newFollowUp is the follow-up of a decision of a gate. With a nil actual, costs stay as charged; counted if a rule has
// count_if.
func newFollowUp(g *gate.Gate, receipt gate.Receipt, actual actualCost, counted bool) *followUp {
	d, settled := new(followUp), g.Open(receipt)
	d.keep = func(ctx context.Context, failed func(error)) func() { return g.KeepAlive(ctx, receipt, failed) }
	rest := receipt // what head did not give back; keep runs on another goroutine and reads receipt
	if counted {
		d.head = func(ctx context.Context, s *served, notify func(Outcome, error)) {
			var err error
			if rest, err = g.Respond(ctx, receipt, s.response()); err != nil {
				notify(Unsettled, err)
			}
		}
	}
	d.step = func(ctx context.Context, rule *rules.Rule, units int64, beyond bool) (bool, time.Duration, error) {
		return g.ChargeStep(ctx, rest, rule, units, beyond)
	}
	d.end = func(ctx context.Context, s *served, notify func(Outcome, error)) {
		defer settled()
		if s.unsent {
			if err := g.Settle(ctx, unfixed(rest), 0); err != nil {
				notify(Unsettled, err)
			}
		} else if s.ran && actual != nil {
			err := g.SettleEach(ctx, rest, func(c *gate.Charged) (int64, bool, error) { return actual(c, s) })
			if err != nil {
				notify(Unsettled, err)
			}
		}
		held := receipt
		if s.unfinished {
			held = g.Hold(receipt)
		}
		if err := g.Release(ctx, held); err != nil {
			notify(Unreleased, err)
		}
	}
	return d
}

// unfixed is a copy of a receipt, in which each charge may be given back.
func unfixed(receipt gate.Receipt) gate.Receipt {
	all := slices.Clone(receipt)
	for i := range all {
		all[i].Fixed = false
	}
	return all
}

// holds reports whether one of the limits is a concurrency limit.
func holds(limits []*weir.Limit) bool {
	return slices.ContainsFunc(limits, (*weir.Limit).Leases)
}
