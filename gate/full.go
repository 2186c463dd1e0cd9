package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirproject/weir"
)

// Rules with charge: full grant while a unit is left. No store can do so in one call, since it charges all units or no
// unit. So a request that does not fit takes the units that are left, and the rest of its cost is charged when that was
// granted. Taking a single unit first, and then charging the rest, would let concurrent requests pass in between.

// maxLowered is how often a request asks for less, while other requests take the units that were left before. The last
// time it asks for one unit.
const maxLowered = 4

// chargeFull decides one more request if not all were granted, for the claims that full is true for: they need one
// unit. The error is the store's. An error of charging the rest is in v.Err.
func (g *Gate) chargeFull(ctx context.Context, by weir.Store, v *Verdict, claims []weir.Claim, full func(int) bool,
	times, granted int64, decisions []weir.Decision) (int64, error) {
	if granted >= times {
		return granted, nil
	}
	lowered := slices.Clone(claims)
	for try := 1; try <= maxLowered && lower(lowered, full, decisions, try == maxLowered); try++ {
		one, err := by.Decide(ctx, lowered, 1, decisions)
		if err != nil {
			return granted, err
		}
		if one == 1 {
			g.chargeRest(ctx, by, v, claims, lowered, decisions)
			return granted + 1, nil
		}
	}
	return granted, nil
}

// lower reduces the costs that do not fit to the units that are left, or to one. It reports whether one was reduced.
func lower(claims []weir.Claim, full func(int) bool, decisions []weir.Decision, toOne bool) (reduced bool) {
	for i := range claims {
		c := &claims[i]
		if !full(i) || decisions[i].RetryAfter == 0 || c.Cost <= 1 {
			continue
		}
		reduced = true
		if c.Cost = max(1, min(c.Cost-1, decisions[i].Remaining)); toOne {
			c.Cost = 1
		}
	}
	return reduced
}

// chargeRest charges the units that the lowered claims lack. It outlasts the request: otherwise a client could avoid it
// by hanging up.
func (g *Gate) chargeRest(ctx context.Context, by weir.Store, v *Verdict, claims, lowered []weir.Claim,
	decisions []weir.Decision) {
	var rest []weir.Claim
	var places []int
	for i := range claims {
		if missing := claims[i].Cost - lowered[i].Cost; missing > 0 {
			claim := claims[i]
			claim.Cost = missing
			rest, places = append(rest, claim), append(places, i)
		}
	}
	if len(rest) == 0 {
		return
	}
	ctx, cancel := g.detached(ctx)
	defer cancel()
	after := make([]weir.Decision, len(rest))
	if err := by.Charge(ctx, rest, after); err != nil {
		v.Err = errors.Join(v.Err, fmt.Errorf("gate: charging the part of a cost that was not left: %w", err))
		return
	}
	for j, i := range places { // At and Delay stay those of the grant: who passes does not wait for the debt
		decisions[i].Remaining, decisions[i].ResetAfter = after[j].Remaining, after[j].ResetAfter
		decisions[i].RetryAfter = after[j].RetryAfter
	}
}

// chargesFull reports whether the ith claim is of a rule with charge: full.
func (v *Verdict) chargesFull(i int) bool {
	rule := v.about[i].rule
	return rule != nil && rule.ChargesFull()
}

// followFull is complete for a follower with a result that counts.
func (g *Gate) followFull(ctx context.Context, v *Verdict, f *follower, times int64) {
	if f.err == nil {
		f.granted, f.err = g.complete(ctx, g.store, v, v.part(f.from, f.to), times, f.granted)
	}
}
