package httplimit

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

// New makes middleware that asks a limiter about each request. With several limits the field
// RateLimit describes the deciding one; [Together] describes all.
func New(limiter *weir.Limiter, key Key, options *Options) (func(http.Handler) http.Handler, error) {
	if limiter == nil || key == nil {
		return nil, errors.New("httplimit: the limiter or the key is nil; give both, such as PeerAddress for the key")
	}
	o, c, err := configured(options)
	if err != nil {
		return nil, err
	}
	d := &byLimiter{Options: o, limiter: limiter, key: key, holds: holds(limiter.Limits())}
	return c.middleware(d.decide, limiter.Limits()), nil
}

// A Part has limits that share a key.
type Part struct {
	Key     Key
	Limits  []*weir.Limit // such as Limiter.Limits()
	Missing Missing
	Cost    func(*http.Request) int64 // of this part; nil: Options.Cost, or 1
}

// Together makes middleware that asks limits with separate keys in one call of the store: a request that one of them
// refuses is not charged. A limit may be in one part only.
func Together(store weir.Store, parts []Part, options *Options) (func(http.Handler) http.Handler, error) {
	if store == nil {
		return nil, errors.New("httplimit: the store is nil; give one, such as memstore.New()")
	}
	o, c, err := configured(options)
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(parts)
	if err != nil {
		return nil, err
	}
	d, err := newByClaims(o, store)
	if err != nil {
		return nil, err
	}
	d.claims, d.own = claimsOf(o, slices.Clone(parts))
	return c.middleware(d.decide, limits), nil
}

// ByRequest makes middleware that asks about the claims that a function returns for each request, in one call of the
// store: limits from a database, or several of one request. Without claims the request passes. A claim without a key
// has Options.Missing, one without a cost Options.Cost, or 1. An error that is ErrMissing is answered 403, others are
// errors of the store.
func ByRequest(store weir.Store, claims func(*http.Request) ([]weir.Claim, error), options *Options) (
	func(http.Handler) http.Handler, error,
) {
	if store == nil || claims == nil {
		return nil, errors.New("httplimit: the store or the function is nil; give both")
	}
	o, c, err := configured(options)
	if err != nil {
		return nil, err
	}
	d, err := newByClaims(o, store)
	if err != nil {
		return nil, err
	}
	d.claims = func(decided *call) error { return o.claimsBy(claims, decided) }
	return c.middleware(d.decide, nil), nil
}

// limitsOf checks the parts as the store would, with the same key for all: a duplicate limit would
// fail as soon as two keys are equal.
func limitsOf(parts []Part) (limits []*weir.Limit, err error) {
	var claims []weir.Claim
	for _, part := range parts {
		if part.Key == nil || len(part.Limits) == 0 || part.Missing > Deny {
			return nil, errors.New("httplimit: a Part needs a Key, Limits, and a Missing of Anonymous, Skip or Deny")
		}
		for _, limit := range part.Limits {
			claim := weir.Claim{Key: "key", Limit: limit, Cost: 1}
			if limit != nil && limit.Leases() {
				claim.Lease = "lease"
			}
			claims = append(claims, claim)
			limits = append(limits, limit)
		}
	}
	return limits, weir.Check(claims, 1, nil)
}

// A middleware decides each request and serves the requests that may go on.
type middleware struct {
	*config
	decide func(*call)
	limits int      // number of the limits of policy
	policy []string // value of RateLimit-Policy where all limits are described; nil if it varies
	pool   sync.Pool
}

// middleware is the middleware of a decider; limits are the limits that each request may meet, if they are known.
func (c *config) middleware(decide func(*call), limits []*weir.Limit) func(http.Handler) http.Handler {
	m := c.decider(decide, limits)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if a := m.admit(w, r); a.request != nil {
				c.serve(w, a, next)
			}
		})
	}
}

func (c *config) decider(decide func(*call), limits []*weir.Limit) *middleware {
	m := &middleware{config: c, decide: decide, limits: len(limits)}
	m.pool.New = func() any { return new(call) }
	policy := ratefields.Policy(limits, "")
	if c.partition == nil && limits != nil && len(policy) < ratefields.MaxBytes/2 {
		// One slice for all requests, without spare capacity: appending a value copies it.
		m.policy = []string{policy}
	}
	return m
}

// A call is the decision on one request. It is pooled.
type call struct {
	request  *http.Request // as the handler gets it
	writer   http.ResponseWriter
	event    Event
	refusal  *Refusal           // nil: the request goes on
	body     Body               // of the refusal
	checks   []ratefields.Check // that fields describe
	policy   []string           // value of RateLimit-Policy of the checks, if it is known
	followUp *followUp

	// The memory of the deciders and of the fields.
	verdict    gate.Verdict
	batch      []gate.Question // of several messages, whose verdicts are each one's
	claims     []weir.Claim
	rules      *rules.Set // that decide; nil: those in force
	view       rules.Request
	attributes attributes
	cost       int64
	fields     ratefields.Fields
}

// admit decides a request and adds the fields of its limits. Where it may not go on, admit writes the
// response and returns no request.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) admission {
	c := m.pool.Get().(*call)
	defer m.done(c)
	c.request, c.writer = r, w
	m.decide(c)
	if m.observe != nil { // copying an event that was just written is slow
		m.tell(c)
	}
	m.describe(w.Header(), c)
	if c.refusal != nil {
		c.refusal.RequestID = c.attributes.made // which observers have seen
		m.answer(w, c.request, c.refusal, c.body)
		return admission{}
	}
	return admission{request: c.request, delay: c.event.Answer.Delay, followUp: c.followUp}
}

// tell tells the observer of a decision. One that panics leaves no follow-up undone.
func (m *middleware) tell(c *call) {
	observed := false
	defer func() {
		if !observed && c.followUp != nil {
			m.watch(admission{request: c.request, followUp: c.followUp}, c.writer.Header()).conclude()
		}
	}()
	m.observe(c.request, c.event)
	observed = true
}

// done drops the references to the request and pools the memory.
func (m *middleware) done(c *call) {
	clear(c.checks)
	clear(c.claims)
	c.checks, c.claims = c.checks[:0], c.claims[:0]
	c.request, c.writer, c.event, c.refusal, c.body, c.followUp = nil, nil, Event{}, nil, nil, nil
	c.policy, c.batch = nil, nil
	if c.view.Attributes != nil {
		c.rules, c.view, c.attributes = nil, rules.Request{}, attributes{}
	}
	c.verdict.Err = nil
	m.pool.Put(c)
}

// refuse refuses a request that no limit refused.
func (c *call) refuse(status int, say wording.Text, body Body) {
	c.refusal, c.body = &Refusal{Status: status, say: say}, body
}

// exceed refuses a request that exceeds its limits, and tells the client to wait.
func (c *call) exceed(status int, wait time.Duration, body Body) {
	c.event.Outcome = Refused
	r := &Refusal{Status: status, Exceeded: true, Answer: c.event.Answer, RetryAfter: -1, say: wording.Exceeded(wait)}
	if wait != weir.Never {
		r.RetryAfter = max(1, ratefields.Seconds(wait)) // 0 would mean "retry at once"
	}
	for i := range c.checks {
		k := &c.checks[i]
		hidden := c.event.Rule != nil && k.Style == ratefields.None
		if !hidden && k.Decision != nil && k.Decision.RetryAfter != 0 {
			r.Violated = append(r.Violated, k.Limit.Name())
		}
	}
	c.refusal, c.body = r, body
}

func (c *config) notify(r *http.Request, e Event) {
	if c.observe != nil {
		c.observe(r, e)
	}
}
