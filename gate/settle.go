package gate

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
)

// mostSettled is how many claims of a receipt are settled in one call, beside its two leases.
const mostSettled = weir.MaxClaims - 2

// SettleOnce settles a receipt by what it really cost, and gives back what it holds: once, however
// often it is called. guard is a lease that was taken in the decision that the receipt is of, and
// held since; the error is weir.ErrLeaseGone where the receipt was settled before. After another
// error, call it again with the same units: what an earlier call has done is not done twice.
//
// Each step is one call of the store that depends on a lease and releases it: charging what was
// missing takes a second lease, on which giving back depends. So there is no moment at which the
// lease is gone and the units are not settled. Claims of other instants than guard's (shadow rules
// of another call, what the local store counted, other slots of a Redis Cluster) are settled
// afterwards, at most once.
func (g *Gate) SettleOnce(ctx context.Context, guard Charged, receipt Receipt, units int64) error {
	// Releasing a lease again changes nothing, so it comes first.
	if err := g.Release(ctx, receipt); err != nil && !errors.Is(err, weir.ErrLeaseGone) {
		return err
	}
	together, rest := receipt.takenWith(&guard)
	more, back := together.changes(units)
	held := guard.Claim
	if len(more) > 0 {
		second := held
		second.Key += ".2"
		if len(back) > 0 {
			more = append(more, second)
		}
		err := g.store.Charge(ctx, append(more, depends(held)), nil)
		if err != nil && !(len(back) > 0 && errors.Is(err, weir.ErrLeaseGone)) {
			return err
		}
		held = second
	}
	if len(more) == 0 || len(back) > 0 {
		if err := g.store.Refund(ctx, append(back, depends(held)), guard.Taken, nil); err != nil {
			return err
		}
	}
	return g.Settle(ctx, rest, Actually(units))
}

func depends(lease weir.Claim) weir.Claim {
	lease.Renew = true
	return lease
}

// takenWith are the claims that can be settled in one call with a lease, and the others.
func (r Receipt) takenWith(guard *Charged) (together, rest Receipt) {
	for i := range r {
		c := &r[i]
		switch {
		case c.Claim.Lease != "":
		case c.Taken == guard.Taken && c.Local == guard.Local && len(together) < mostSettled:
			together = append(together, *c)
		default:
			rest = append(rest, *c)
		}
	}
	return together, rest
}

// changes are what is missing of a cost, and what was too much.
func (r Receipt) changes(units int64) (more, back []weir.Claim) {
	for i := range r {
		c := &r[i]
		claim := c.Claim
		switch {
		case c.Fixed:
		case units > claim.Cost:
			claim.Cost = units - claim.Cost
			more = append(more, claim)
		case units < claim.Cost:
			claim.Cost -= units
			back = append(back, claim)
		}
	}
	return more, back
}
