package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirproject/weir"
)

// A judge decides one request.
type judge interface {
	decide(r *http.Request, cost int64, v *verdict) error
}

// A lease gives back what is held while a request is served.
type lease func(context.Context) error

// A verdict is what came of one request. It is reused.
type verdict struct {
	claims    []weir.Claim // that were asked; none: the request had no key
	decisions []weir.Decision
	answer    weir.Answer // the worst of them
	held      lease
}

func newVerdict(limits int) *verdict {
	return &verdict{claims: make([]weir.Claim, 0, limits), decisions: make([]weir.Decision, limits)}
}

func (v *verdict) outcome() Outcome {
	switch {
	case len(v.claims) == 0:
		return Skipped
	case v.answer.Allowed:
		return Passed
	}
	return Refused
}

// byLimiter asks a limiter, which tells of the limit that decided.
type byLimiter struct {
	limiter *weir.Limiter
	key     Key
	missing Missing
	holds   bool
}

func (j *byLimiter) decide(r *http.Request, cost int64, v *verdict) error {
	v.answer = weir.Answer{}
	key, err := j.missing.key(j.key, r)
	if key == "" {
		return err
	}
	if j.holds {
		err = j.hold(r.Context(), key, cost, v)
	} else {
		v.answer, err = j.limiter.AllowN(r.Context(), key, cost)
	}
	if err != nil {
		return err
	}
	v.claims = append(v.claims, weir.Claim{Key: key, Limit: v.answer.Limit, Cost: cost})
	v.decisions[0] = v.answer.Decision
	return nil
}

func (j *byLimiter) hold(ctx context.Context, key string, cost int64, v *verdict) error {
	held, err := j.limiter.AcquireN(ctx, key, cost)
	var refused *weir.RefusedError
	if errors.As(err, &refused) {
		v.answer = refused.Answer
		return nil
	}
	if err != nil {
		return err
	}
	v.answer, v.held = held.Answer(), held.Release
	return nil
}

// byClaims asks the store about all parts at once.
type byClaims struct {
	store weir.Store
	parts []Part
	holds bool
}

func (j *byClaims) decide(r *http.Request, cost int64, v *verdict) error {
	v.answer = weir.Answer{}
	for i := range j.parts {
		part := &j.parts[i]
		key, err := part.Missing.key(part.Key, r)
		if err != nil {
			return err
		}
		if key == "" {
			continue
		}
		units := cost
		if part.Cost != nil {
			units = part.Cost(r)
		}
		for _, limit := range part.Limits {
			v.claims = append(v.claims, weir.Claim{Key: key, Limit: limit, Cost: units})
		}
	}
	if len(v.claims) == 0 {
		return nil
	}
	return j.ask(r.Context(), v)
}

func (j *byClaims) ask(ctx context.Context, v *verdict) error {
	if j.holds {
		v.lease(weir.NewLeaseID())
	}
	granted, err := j.store.Decide(ctx, v.claims, 1, v.decisions[:len(v.claims)])
	if err != nil {
		return err
	}
	v.worst()
	v.answer.Allowed = granted > 0
	if j.holds && v.answer.Allowed {
		v.held = j.held(v)
	}
	return nil
}

func (v *verdict) lease(id string) {
	for i := range v.claims {
		if v.claims[i].Limit.Algorithm() == weir.AlgorithmConcurrency {
			v.claims[i].Lease = id
		}
	}
}

// worst fills in the answer: of all claims the decision that matters, and the longest delay.
func (v *verdict) worst() {
	worst, delay := 0, v.decisions[0].Delay
	for i := 1; i < len(v.claims); i++ {
		delay = max(delay, v.decisions[i].Delay)
		if weir.Worse(&v.decisions[i], &v.decisions[worst]) {
			worst = i
		}
	}
	v.answer.Limit, v.answer.Decision = v.claims[worst].Limit, v.decisions[worst]
	v.answer.Delay = delay
}

// held gives back the leases alone: what windows and buckets counted stays counted.
func (j *byClaims) held(v *verdict) lease {
	var leases []weir.Claim
	for _, claim := range v.claims {
		if claim.Lease != "" {
			leases = append(leases, claim)
		}
	}
	if leases == nil { // the part that holds was skipped
		return nil
	}
	at := v.answer.At
	return func(ctx context.Context) error { return j.store.Refund(ctx, leases, at, nil) }
}
