package httplimit

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

// byLimiter decides by a limiter, which reports the deciding limit alone.
type byLimiter struct {
	*Options
	limiter *weir.Limiter
	key     Key
	holds   bool // the limiter has concurrency limits
}

func (d *byLimiter) decide(c *call) {
	r, cost := c.request, d.costOf(c.request)
	key, err := d.Missing.key(d.key, r)
	if err == nil && key == "" {
		c.event.Outcome = Skipped
		return
	}
	a := &c.event.Answer
	switch {
	case err != nil:
	case d.holds || d.CostAfter != nil:
		err = d.reserve(c, key, cost)
	default:
		*a, err = d.limiter.AllowN(r.Context(), key, cost)
	}
	if err != nil {
		d.fail(c, err)
		return
	}
	for _, limit := range d.limiter.Limits() {
		one := ratefields.Check{Limit: limit, Style: ratefields.Style(d.Fields), PK: d.pk(limit, key)}
		if limit == a.Limit {
			one.Decision = &a.Decision
		}
		c.checks = append(c.checks, one)
	}
	if !a.Allowed {
		c.exceed(d.Status, a.Limit.Advice(a.RetryAfter), d.Body)
	}
}

// costOf is the cost of a request, an estimate where CostAfter corrects it.
func (o *Options) costOf(r *http.Request) int64 {
	if o.Cost == nil {
		return 1
	}
	return o.Cost(r)
}

// pk is the partition key of a check.
func (o *Options) pk(limit *weir.Limit, key string) []byte {
	if o.PartitionKey == nil {
		return nil
	}
	return bytes.Clone(o.PartitionKey(limit, key)) // it may be a buffer that the next call reuses
}

// fail handles a request that limits could not decide: it is refused, or passes.
func (o *Options) fail(failed *call, err error) {
	if errors.Is(err, ErrMissing) {
		failed.event = Event{Outcome: Denied, Err: err}
		failed.refuse(http.StatusForbidden, wording.MissingKey, o.Body)
		return
	}
	failed.event = Event{Outcome: Failed, Err: err}
	var input *weir.InputError
	switch {
	case errors.As(err, &input):
		failed.refuse(http.StatusInternalServerError, wording.Undecided, o.Body)
	case o.StoreErrors == FailClosed || failed.request.Context().Err() != nil:
		// A canceled request does not pass: canceling would evade the limit.
		failed.refuse(http.StatusServiceUnavailable, wording.Undecided, o.Body)
	}
}

func (d *byLimiter) reserve(c *call, key string, cost int64) error {
	reservation, err := d.limiter.Reserve(c.request.Context(), key, cost)
	var refused *weir.RefusedError
	if errors.As(err, &refused) {
		c.event.Answer = refused.Answer
		return nil
	}
	if err != nil {
		return err
	}
	c.event.Answer = reservation.Answer()
	c.followUp = &followUp{measured: d.CostAfter != nil, keep: reservation.KeepAlive,
		end: func(ctx context.Context, s *served, notify func(Outcome, error)) {
			d.settle(ctx, reservation, s, cost, notify)
		}}
	return nil
}

// settle ends a reservation. An invalid actual cost leaves the estimate; the leases are released in
// any case.
func (d *byLimiter) settle(
	ctx context.Context, reservation *weir.Reservation, s *served, cost int64, notify func(Outcome, error),
) {
	outcome := Unreleased
	if d.CostAfter != nil && s.ran && !s.unfinished {
		outcome = Unsettled
		actual, err := s.cost(d.CostAfter)
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

// byClaims decides all claims in one call of the store, by a gate without rules that receives them.
type byClaims struct {
	*Options
	gate   *gate.Gate
	claims func(*call) error    // adds those of a request
	own    map[*weir.Limit]bool // the limits of parts with a Cost
}

func newByClaims(o *Options, store weir.Store) (*byClaims, error) {
	none, err := rules.Compile(&rules.File{})
	if err != nil {
		return nil, err
	}
	g, err := gate.New(store, none)
	if err != nil {
		return nil, err
	}
	return &byClaims{Options: o, gate: g}, nil
}

func (d *byClaims) decide(c *call) {
	err := d.claims(c)
	if err == nil && len(c.claims) == 0 {
		c.event.Outcome = Skipped
		return
	}
	v := &c.verdict
	if err == nil {
		err = d.gate.Decide(c.request.Context(), nil, gate.Ask{Times: 1, Claims: c.claims}, v)
	}
	if err == nil && v.Outcome == gate.Failed {
		err = v.Err
	}
	if err != nil {
		d.fail(c, err)
		return
	}
	takeAnswer(&c.event.Answer, v)
	c.take(v, func(k gate.Check) (ratefields.Style, []byte) {
		return ratefields.Style(d.Fields), d.pk(k.Claim.Limit, k.Claim.Key)
	})
	if c.event.Answer.Allowed && (d.CostAfter != nil || v.Holds()) {
		c.followUp = newFollowUp(d.gate, v.Receipt(), d.actual, false)
		c.followUp.measured = d.CostAfter != nil
	}
	if !c.event.Answer.Allowed {
		c.exceed(d.Status, v.RetryAfter(), d.Body)
	}
}

// claimsOf adds the claims of all parts. own are the limits of parts with a Cost.
func claimsOf(o *Options, parts []Part) (claims func(*call) error, own map[*weir.Limit]bool) {
	own = make(map[*weir.Limit]bool)
	for _, part := range parts {
		for _, limit := range part.Limits {
			own[limit] = part.Cost != nil
		}
	}
	return func(decided *call) error { return o.claimsByParts(parts, decided) }, own
}

func (o *Options) claimsBy(of func(*http.Request) ([]weir.Claim, error), decided *call) error {
	claims, err := of(decided.request)
	if err != nil || len(claims) == 0 {
		return err
	}
	decided.claims, err = o.Missing.Claims(claims, o.costOf(decided.request))
	return err
}

func (o *Options) claimsByParts(parts []Part, decided *call) error {
	cost := o.costOf(decided.request)
	for i := range parts {
		part := &parts[i]
		key, err := part.Missing.key(part.Key, decided.request)
		if err != nil {
			return err
		}
		if key == "" {
			continue
		}
		units := cost
		if part.Cost != nil {
			units = part.Cost(decided.request)
		}
		for _, limit := range part.Limits {
			decided.claims = append(decided.claims, weir.Claim{Key: key, Limit: limit, Cost: units})
		}
	}
	return nil
}

// take adds the checks of the verdict that limited the request.
func (c *call) take(v *gate.Verdict, of func(gate.Check) (ratefields.Style, []byte)) {
	for i := range v.Len() {
		if k := v.At(i); k.Decided && !k.Shadow && !k.Aside {
			style, pk := of(k)
			one := ratefields.Check{Limit: k.Claim.Limit, Decision: k.Decision, Style: style, Ban: k.Ban, PK: pk}
			if k.Rule != nil {
				one.Unit = k.Rule.Unit().String()
			}
			c.checks = append(c.checks, one)
		}
	}
}

// takeAnswer fills a zero answer from the deciding claim, with the delay of the whole request; it stays zero if no
// limit decided. It copies field by field, as copying a Decision that was just written is slow.
func takeAnswer(a *weir.Answer, v *gate.Verdict) {
	worst, ok := v.Worst()
	if !ok {
		return
	}
	d := worst.Decision
	a.Allowed, a.Limit = v.Outcome == gate.Passed, worst.Claim.Limit
	a.Remaining, a.RetryAfter, a.ResetAfter, a.Delay, a.At = d.Remaining, d.RetryAfter, d.ResetAfter, v.Delay, d.At
}

// actual is the actual cost of a claim.
func (d *byClaims) actual(c *gate.Charged, s *served) (units int64, ok bool, err error) {
	if s.unfinished || d.CostAfter == nil || d.own[c.Claim.Limit] {
		return 0, false, nil
	}
	units, err = s.cost(d.CostAfter)
	return units, true, err
}
