package gate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Response is what rules with count_if read of a response. The zero Response means that there was no response: the
// client left before, or the handler panicked. It counts, otherwise clients could avoid being counted by hanging up.
type Response struct {
	Status int                 // of the final response; 101 for a connection that was taken over
	Header map[string][]string // by canonical name, as http.Header
}

func (r *Response) counts(rule *rules.Rule) bool {
	return r.Status == 0 || rule.Counts(r.Status, r.Header)
}

// A Counting is how the reservation of one rule ended: of one with count_if, of one with a cost that is settled, or the
// lease of one with hold_until: done.
type Counting struct {
	Rule   *rules.Rule
	Key    string // as Rule.AppendKey makes it, after "shadow " if the rule is a shadow rule
	Result CountResult
	Banned []Ban // that the response caused

	// If units are given back or settled:
	Estimate  int64   // units that were charged when the request was granted
	Units     int64   // units that the request cost in the end
	Estimated bool    // Verdict.Units said that the units are an estimate
	Origin    *Origin // nil: it is not known
}

// CountResult is the end of a reservation.
type CountResult uint8

// The results.
const (
	Kept       CountResult = iota // the response counts: the units stay charged
	NoResponse                    // kept too
	Returned                      // the response does not count
	Lost                          // it does not count, and the store did not take the units back: they stay charged
	Held                          // no response was seen: the lease is held to its time-to-live
	Settled                       // the cost is known
	Unsettled                     // it is not known, or the store did not take it: the units stay charged
)

// String is the result in metrics.
func (r CountResult) String() string {
	return [...]string{"kept", "no_response", "given_back", "lost", "held", "settled", "unsettled"}[r]
}

// WithCountObserver calls observe with the end of each reservation of a rule with count_if. It runs on the goroutine of
// the request, or on one of the gate, concurrently with others: it must be fast, and must not keep the Counting.
func WithCountObserver(observe func(*Counting)) Option {
	return func(g *Gate) { g.countings = append(g.countings, observe) }
}

func (g *Gate) ended(c *Counting) {
	for _, observe := range g.countings {
		observe(c)
	}
}

// Respond ends the reservations of rules with count_if, as soon as the head of the response is known: it gives back the
// units of rules that do not count the response, and counts the units of other rules towards their bans. Rules that
// count by path learn from the status which paths exist: see rules.Rule.ByPath. It returns the rest of the receipt: the
// units that are still charged, to be settled and released.
//
// Call it once. A call of the store that may have been executed is not repeated: its units stay charged. One that was
// never executed is repeated for 10 seconds in the background, if all limits concerned are sliding logs: after a
// loss of data these do not forget another client's units. The error joins the errors of units that are lost already.
func (g *Gate) Respond(ctx context.Context, receipt Receipt, response Response) (rest Receipt, err error) {
	ctx, cancel := g.detached(ctx)
	defer cancel()
	var back Receipt
	g.respond(receipt, response.Status)
	receipt = g.inForce(receipt)
	frees := receipt.frees(&response)
	for i := range receipt {
		if c := &receipt[i]; c.counts(&response, frees) {
			rest = append(rest, *c)
		} else {
			back = append(back, *c)
		}
	}
	var failed []error
	for len(back) > 0 {
		n := back.together()
		failed = append(failed, g.unreserve(ctx, back[:n:n]))
		back = back[n:]
	}
	failed = append(failed, g.keep(ctx, rest, response.Status))
	return rest, errors.Join(failed...)
}

// SettleResponse is SettleOnce and Respond in one, for a caller that reports the response later. Negative units leave
// costs as charged; units that are given back are given back whatever their cost. After an error other than
// weir.ErrLeaseGone, call it again with the same units and response.
func (g *Gate) SettleResponse(ctx context.Context, guard Charged, receipt Receipt, units int64,
	response Response) error {
	if units > weir.MaxUnits {
		return checkActual(units)
	}
	receipt = slices.Clone(receipt)
	frees := receipt.frees(&response)
	for i := range receipt {
		receipt[i].void = !receipt[i].counts(&response, frees)
	}
	if err := g.settleOnce(ctx, guard, receipt, units); err != nil {
		return err
	}
	receipt.eachRule(func(c *Charged) {
		if c.void {
			g.ended(&Counting{Rule: c.Rule, Key: c.Claim.Key, Result: Returned})
		}
	})
	ctx, cancel := g.detached(ctx)
	defer cancel()
	kept := slices.DeleteFunc(receipt, func(c Charged) bool { return c.void })
	_ = g.keep(ctx, kept, response.Status) // the receipt is settled: a repetition would find the lease gone
	return nil
}

// counts reports whether the units stay charged after a response. The claim of Ask.ID does, unless the response
// frees it.
func (c *Charged) counts(response *Response, frees bool) bool {
	if c.Rule == nil {
		return !frees || !c.Claim.Once
	}
	return !c.Rule.HasCountIf() || response.counts(c.Rule)
}

// frees reports whether a response gives units of an enforced rule back: then the request may be sent again, and is
// charged.
func (r Receipt) frees(response *Response) bool {
	return slices.ContainsFunc(r, func(c Charged) bool {
		return !c.counts(response, false) && !strings.HasPrefix(c.Claim.Key, shadowed)
	})
}

// eachRule calls each with the first charge of each rule with count_if. The charges of a rule are adjacent.
func (r Receipt) eachRule(each func(*Charged)) {
	var last *rules.Rule
	for i := range r {
		if c := &r[i]; c.Rule != last {
			if last = c.Rule; last != nil && last.HasCountIf() {
				each(c)
			}
		}
	}
}

// together is the number of leading charges of one instant and store, which one call can refund.
func (r Receipt) together() int {
	n := 1
	for n < min(len(r), weir.MaxClaims) && r[n].Taken == r[0].Taken && r[n].Local == r[0].Local {
		n++
	}
	return n
}

// unreserve refunds charges of one instant and store.
func (g *Gate) unreserve(ctx context.Context, back Receipt) error {
	claims := make([]weir.Claim, len(back))
	exact := true
	for i := range back {
		claims[i] = back[i].Claim
		exact = exact && (claims[i].Once || claims[i].Limit.Itemized())
	}
	refund := func(ctx context.Context) error { return g.by(&back[0]).Refund(ctx, claims, back[0].Taken, nil) }
	end := func(err error) {
		back.eachRule(func(c *Charged) {
			if err != nil {
				g.close(c, &Counting{Result: Lost, Units: c.Claim.Cost})
				return
			}
			g.close(c, &Counting{Result: Returned})
		})
	}
	err := refund(ctx)
	if exact && g.unfinished.add(err, g.counting(), refund, end) {
		return nil
	}
	end(err)
	return err
}

// keep counts a response towards the bans of the rules that count it.
func (g *Gate) keep(ctx context.Context, kept Receipt, status int) error {
	var failed []error
	kept.eachRule(func(c *Charged) {
		counting := Counting{Rule: c.Rule, Key: c.Claim.Key, Result: Kept}
		if status == 0 {
			counting.Result = NoResponse
		}
		bans := c.Rule.Bans()
		if bans == nil || strings.HasPrefix(c.Claim.Key, shadowed) {
			g.ended(&counting)
			return
		}
		count := func(ctx context.Context) error {
			one := [...]banCounter{{banned: &counting.Banned, rule: c.Rule, bans: bans, by: g.by(c), key: c.Claim.Key,
				times: 1}}
			g.countAndBan(ctx, one[:])
			return one[0].err
		}
		end := func(error) { g.ended(&counting) }
		err := count(ctx)
		if !g.unfinished.add(err, g.counting(), count, end) {
			end(err)
			failed = append(failed, err)
		}
	})
	return errors.Join(failed...)
}
