package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// New makes middleware that asks a limiter about each request. With several limits the field
// RateLimit describes the deciding one; [Together] describes all.
func New(limiter *weir.Limiter, key Key, options ...Option) (func(http.Handler) http.Handler, error) {
	if limiter == nil || key == nil {
		return nil, errors.New("httplimit: the limiter or the key is nil; give both, such as PeerAddress for the key")
	}
	c, err := configure(options, forLimits)
	if err != nil {
		return nil, err
	}
	limits := limiter.Limits()
	l := newLimitMiddleware(c, limits)
	l.oneKey = true
	l.decider = &byLimiter{limiter: limiter, key: key, missing: c.missing, ttl: shortest(limits), after: c.after}
	return l.middleware(l.admit), nil
}

// A Part has limits that share a key.
type Part struct {
	Key     Key
	Limits  []*weir.Limit // such as Limiter.Limits()
	Missing Missing
	Cost    func(*http.Request) int64 // of this part; nil: WithCost, or 1
}

// Together makes middleware that asks limits with separate keys in one call of the store: a request
// that one of them refuses is charged to none. A limit may be in one part only.
func Together(store weir.Store, parts []Part, options ...Option) (func(http.Handler) http.Handler, error) {
	if store == nil {
		return nil, errors.New("httplimit: the store is nil; give one, such as memstore.New()")
	}
	c, err := configure(options, forLimits)
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(parts)
	if err != nil {
		return nil, err
	}
	l := newLimitMiddleware(c, limits)
	if l.decider, err = newByClaims(store, parts, c.after); err != nil {
		return nil, err
	}
	return l.middleware(l.admit), nil
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
			if limit != nil && limit.Algorithm() == weir.AlgorithmConcurrency {
				claim.Lease = "lease"
			}
			claims = append(claims, claim)
			limits = append(limits, limit)
		}
	}
	return limits, weir.Check(claims, 1, nil)
}

// limitMiddleware admits requests by limits.
type limitMiddleware struct {
	config
	decider decider
	limits  []*weir.Limit
	oneKey  bool     // of a Limiter: all limits are asked, and the deciding one is reported
	policy  []string // value of RateLimit-Policy for all limits; nil if it varies by request
	pool    sync.Pool
}

func newLimitMiddleware(c config, limits []*weir.Limit) *limitMiddleware {
	l := &limitMiddleware{config: c, limits: limits}
	l.pool.New = func() any { return new(verdict) }
	if c.partition == nil {
		// One slice for all requests, without spare capacity: appending a value copies it.
		l.policy = []string{policyOf(limits)}
	}
	return l
}

// middleware calls the handler for each admitted request. admit adds the fields of the limits; for a
// request that may not go on, it writes the response and returns no request.
func (c *config) middleware(
	admit func(http.ResponseWriter, *http.Request) admission,
) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if a := admit(w, r); a.request != nil {
				c.serve(w, a, next)
			}
		})
	}
}

// admit decides a request by limits; see config.middleware.
func (l *limitMiddleware) admit(w http.ResponseWriter, r *http.Request) admission {
	v := l.pool.Get().(*verdict)
	defer l.done(v)
	cost := int64(1)
	if l.cost != nil {
		cost = l.cost(r)
	}
	if err := l.decider.decide(r, cost, v); err != nil {
		return l.fail(w, r, err)
	}
	l.notify(r, Event{Outcome: v.outcome(), Answer: v.answer})
	if len(v.checks) == 0 {
		return admission{request: r}
	}
	l.describe(w.Header(), v)
	if !v.answer.Allowed {
		l.refuse(w, r, v)
		return admission{}
	}
	return admission{request: r, delay: v.answer.Delay, followUp: v.followUp}
}

// done drops the keys, which may be parts of large requests, and pools the verdict.
func (l *limitMiddleware) done(v *verdict) {
	clear(v.checks)
	clear(v.claims)
	v.checks, v.claims, v.followUp = v.checks[:0], v.claims[:0], nil
	l.pool.Put(v)
}

// fail handles a request that could not be decided: it responds, or lets it pass.
func (l *limitMiddleware) fail(w http.ResponseWriter, r *http.Request, err error) admission {
	var missing *missingError
	if errors.As(err, &missing) {
		l.notify(r, Event{Outcome: Denied, Err: err})
		answer(w, r, &Refusal{Status: http.StatusForbidden, say: missingKey}, l.body)
		return admission{}
	}
	l.notify(r, Event{Outcome: Failed, Err: err})
	var input *weir.InputError
	switch {
	case errors.As(err, &input):
		answer(w, r, &Refusal{Status: http.StatusInternalServerError, say: undecided}, l.body)
	case l.failure == FailClosed || r.Context().Err() != nil:
		// A canceled request does not pass: canceling would evade the limit.
		l.unavailable(w, r)
	default:
		return admission{request: r}
	}
	return admission{}
}

func (c *config) notify(r *http.Request, e Event) {
	if c.observe != nil {
		c.observe(r, e)
	}
}

// pause sleeps. It returns false if the context ended first.
func pause(ctx context.Context, delay time.Duration) bool {
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
