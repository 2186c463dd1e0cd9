package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// A judge decides one request.
type judge interface {
	decide(r *http.Request, cost int64, v *verdict) error
}

// A verdict is what came of one request. It is reused.
type verdict struct {
	checks []check     // that were asked; none: the request had no key
	answer weir.Answer // the worst of them
	debt   *debt

	claims []weir.Claim // what byClaims asks
	gate   gate.Verdict // and its answer
}

// A check is a limit that was asked, and what it said.
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

// byLimiter asks a limiter, which tells of the limit that decided.
type byLimiter struct {
	limiter *weir.Limiter
	key     Key
	missing Missing
	ttl     time.Duration // of the shortest lease that it holds; 0: none
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
	v.debt = &debt{measured: j.after != nil, keep: reservation.KeepAlive,
		end: func(ctx context.Context, s *served, tell func(Outcome, error)) {
			j.settle(ctx, reservation, s, cost, tell)
		}}
	return nil
}

// settle ends a reservation. A cost that is none leaves it at the estimate; its leases are
// given back whatever happens.
func (j *byLimiter) settle(ctx context.Context, reservation *weir.Reservation, s *served, cost int64, tell func(Outcome, error)) {
	trouble := Unreleased
	if j.after != nil && s.ran {
		trouble = Unsettled
		actual, err := s.cost(j.after)
		if err != nil {
			tell(Unsettled, err)
		} else {
			cost = actual
		}
	}
	err := reservation.Settle(ctx, cost)
	if errors.Is(err, weir.ErrLeaseGone) {
		trouble = Unreleased
	}
	if err != nil {
		tell(trouble, err)
	}
}

// byClaims asks about all parts at once: a gate without rules, to which claims are brought.
type byClaims struct {
	gate  *gate.Gate
	parts []Part
	after costAfter
	own   map[*weir.Limit]bool // those whose parts have a cost of their own
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
	j := &byClaims{gate: g, parts: append([]Part(nil), parts...), after: after, own: make(map[*weir.Limit]bool)}
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
	worst, _ := v.gate.Worst()
	v.answer = weir.Answer{Allowed: v.gate.Outcome == gate.Passed, Limit: worst.Claim.Limit, Decision: *worst.Decision}
	v.answer.Delay = v.gate.Delay
	if v.answer.Allowed && (j.after != nil || v.gate.Holds()) {
		v.debt = owed(j.gate, v.gate.Receipt(), j.actual)
		v.debt.measured = j.after != nil
	}
	return nil
}

// actual is what a part has cost.
func (j *byClaims) actual(c *gate.Charged, s *served) (units int64, ok bool, err error) {
	if j.after == nil || j.own[c.Claim.Limit] {
		return 0, false, nil
	}
	units, err = s.cost(j.after)
	return units, true, err
}
