package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// New makes middleware that asks a limiter about each request. With several limits the
// field RateLimit tells of the one that decided; [Together] tells of all.
func New(limiter *weir.Limiter, key Key, options ...Option) (func(http.Handler) http.Handler, error) {
	if limiter == nil || key == nil {
		return nil, errors.New("httplimit: the limiter or the key is nil; give both, such as PeerAddress for the key")
	}
	c, err := configure(options, forLimits)
	if err != nil {
		return nil, err
	}
	j := &byLimiter{limiter: limiter, key: key, missing: c.missing, ttl: shortest(limiter.Limits()), after: c.after}
	l := newLimiting(c, j, limiter.Limits())
	l.oneKey = true
	return l.wrap, nil
}

// A Part is limits that are counted against one key.
type Part struct {
	Key     Key
	Limits  []*weir.Limit // a Limiter's are Limiter.Limits()
	Missing Missing
	Cost    func(*http.Request) int64 // of this part; nil: what WithCost says, or 1
}

// Together makes middleware that asks several limits with keys of their own in one decision
// of the store: what one of them refuses, none is charged for. The same limit stands in one
// part only.
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
	j, err := newByClaims(store, parts, c.after)
	if err != nil {
		return nil, err
	}
	return newLimiting(c, j, limits).wrap, nil
}

// limitsOf checks parts as the store would, with one key for all: a limit that stands twice
// would be refused as soon as two keys are equal.
func limitsOf(parts []Part) (limits []*weir.Limit, err error) {
	var claims []weir.Claim
	for _, part := range parts {
		if part.Key == nil || len(part.Limits) == 0 || part.Missing > Deny {
			return nil, errors.New("httplimit: a part lacks its key, its limits, or has no such policy for a missing key")
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

// limiting is the middleware, before it has a handler.
type limiting struct {
	config
	judge  judge
	limits []*weir.Limit
	oneKey bool     // a limiter's: all limits are asked, one of them tells
	policy []string // of all limits, as a field's values; nil where it differs by request
	pool   sync.Pool
}

func newLimiting(c config, j judge, limits []*weir.Limit) *limiting {
	l := &limiting{config: c, judge: j, limits: limits}
	l.pool.New = func() any { return new(verdict) }
	if c.partition == nil {
		// One slice for all requests, without room to append: whoever adds a value copies it.
		l.policy = []string{policyOf(limits)}
	}
	return l
}

func (l *limiting) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := l.admit(w, r); p.request != nil {
			l.serve(w, p, next)
		}
	})
}

// admit decides and writes what there is to write before the handler does.
func (l *limiting) admit(w http.ResponseWriter, r *http.Request) passage {
	v := l.pool.Get().(*verdict)
	defer l.done(v)
	cost := int64(1)
	if l.cost != nil {
		cost = l.cost(r)
	}
	if err := l.judge.decide(r, cost, v); err != nil {
		return l.fail(w, r, err)
	}
	l.tell(r, Event{Outcome: v.outcome(), Answer: v.answer})
	if len(v.checks) == 0 {
		return passage{request: r}
	}
	l.describe(w.Header(), v)
	if !v.answer.Allowed {
		l.refuse(w, r, v)
		return passage{}
	}
	return passage{request: r, delay: v.answer.Delay, debt: v.debt}
}

// done lets go of the keys, which may be parts of large requests.
func (l *limiting) done(v *verdict) {
	clear(v.checks)
	clear(v.claims)
	v.checks, v.claims, v.debt = v.checks[:0], v.claims[:0], nil
	l.pool.Put(v)
}

// fail answers for a request that could not be decided, or lets it pass.
func (l *limiting) fail(w http.ResponseWriter, r *http.Request, err error) passage {
	var missing *missingError
	if errors.As(err, &missing) {
		l.tell(r, Event{Outcome: Denied, Err: err})
		answer(w, r, &Refusal{Status: http.StatusForbidden, say: missingKey}, l.body)
		return passage{}
	}
	l.tell(r, Event{Outcome: Failed, Err: err})
	var input *weir.InputError
	switch {
	case errors.As(err, &input):
		answer(w, r, &Refusal{Status: http.StatusInternalServerError, say: undecided}, l.body)
	case l.failure == FailClosed || r.Context().Err() != nil:
		// Over contexts do not pass: clients would cancel requests to have them served.
		l.unavailable(w, r)
	default:
		return passage{request: r}
	}
	return passage{}
}

func (c *config) tell(r *http.Request, e Event) {
	if c.observe != nil {
		c.observe(r, e)
	}
}

// pause sleeps; it is false if the context ended first.
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
