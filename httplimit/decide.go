package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// A decider decides one request.
type decider interface {
	decide(r *http.Request, cost int64, v *verdict) error
}

// A verdict is the decision on one request. It is pooled.
type verdict struct {
	checks   []check     // of all decided limits; empty without a key
	answer   weir.Answer // of the deciding limit
	followUp *followUp

	claims []weir.Claim // scratch space of byClaims
	gate   gate.Verdict // likewise
}

// A check is the decision of one limit.
type check struct {
	limit    *weir.Limit
	key      string
	decision *weir.Decision
}

func (v *verdict) outcome() Outcome {
	switch {
	case len(v.checks) == 0:
		return Skipped
	case v.answer.Allowed:
		return Passed
	}
	return Refused
}

// byLimiter decides by a limiter, which reports the deciding limit alone.
type byLimiter struct {
	limiter *weir.Limiter
	key     Key
	missing Missing
	ttl     time.Duration // of the shortest lease; 0: the limiter holds none
	after   costAfter
}

func (j *byLimiter) decide(r *http.Request, cost int64, v *verdict) error {
	v.answer = weir.Answer{}
	key, err := j.missing.key(j.key, r)
	if key == "" {
		return err
	}
	if j.ttl > 0 || j.after != nil {
		err = j.reserve(r, key, cost, v)
	} else {
		v.answer, err = j.limiter.AllowN(r.Context(), key, cost)
	}
	if err != nil {
		return err
	}
	v.checks = append(v.checks, check{v.answer.Limit, key, &v.answer.Decision})
	return nil
}

func (j *byLimiter) reserve(r *http.Request, key string, cost int64, v *verdict) error {
	reservation, err := j.limiter.Reserve(r.Context(), key, cost)
	var refused *weir.RefusedError
	if errors.As(err, &refused) {
		v.answer = refused.Answer
		return nil
	}
	if err != nil {
		return err
	}
	v.answer = reservation.Answer()
	v.followUp = &followUp{measured: j.after != nil, keep: reservation.KeepAlive,
		end: func(ctx context.Context, s *served, notify func(Outcome, error)) {
			j.settle(ctx, reservation, s, cost, notify)
		}}
	return nil
}

// settle ends a reservation. An invalid actual cost leaves the estimate; the leases are released in
// any case.
func (j *byLimiter) settle(
	ctx context.Context, reservation *weir.Reservation, s *served, cost int64, notify func(Outcome, error),
) {
	outcome := Unreleased
	if j.after != nil && s.ran {
		outcome = Unsettled
		actual, err := s.cost(j.after)
		if err != nil {
			notify(Unsettled, err)
		} else {
			cost = actual
		}
	}
	err := reservation.Settle(ctx, cost)
	if errors.Is(err, weir.ErrLeaseGone) {
		outcome = Unreleased
	}
	if err != nil {
		notify(outcome, err)
	}
}

// byClaims decides all parts in one call, by a gate without rules that receives claims.
type byClaims struct {
	gate  *gate.Gate
	parts []Part
	after costAfter
	own   map[*weir.Limit]bool // the limits of parts with a Cost
}

func newByClaims(store weir.Store, parts []Part, after costAfter) (*byClaims, error) {
	none, err := rules.Compile(&rules.File{})
	if err != nil {
		return nil, err
	}
	g, err := gate.New(store, none)
	if err != nil {
		return nil, err
	}
	j := &byClaims{gate: g, parts: slices.Clone(parts), after: after, own: make(map[*weir.Limit]bool)}
	for _, part := range parts {
		for _, limit := range part.Limits {
			j.own[limit] = part.Cost != nil
		}
	}
	return j, nil
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
	if err := j.gate.Decide(ctx, nil, gate.Ask{Times: 1, Claims: v.claims}, &v.gate); err != nil {
		return err
	}
	if v.gate.Outcome == gate.Failed {
		return v.gate.Err
	}
	for i := range v.gate.Len() {
		c := v.gate.At(i)
		v.checks = append(v.checks, check{c.Claim.Limit, c.Claim.Key, c.Decision})
	}
	v.answer = answerOf(&v.gate)
	if v.answer.Allowed && (j.after != nil || v.gate.Holds()) {
		v.followUp = newFollowUp(j.gate, v.gate.Receipt(), j.actual)
		v.followUp.measured = j.after != nil
	}
	return nil
}

// answerOf is the answer of the deciding claim, with the delay of the whole request; zero if no
// limit decided.
func answerOf(v *gate.Verdict) (a weir.Answer) {
	if worst, ok := v.Worst(); ok {
		a = weir.Answer{Allowed: v.Outcome == gate.Passed, Limit: worst.Claim.Limit, Decision: *worst.Decision}
		a.Delay = v.Delay
	}
	return a
}

// actual is the actual cost of a claim.
func (j *byClaims) actual(c *gate.Charged, s *served) (units int64, ok bool, err error) {
	if j.after == nil || j.own[c.Claim.Limit] {
		return 0, false, nil
	}
	units, err = s.cost(j.after)
	return units, true, err
}
