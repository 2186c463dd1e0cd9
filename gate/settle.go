package gate

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
)

// maxSettled is the number of claims that one call settles, beside its two leases.
const maxSettled = weir.MaxClaims - 2

// SettleOnce settles a receipt at its actual cost and releases its leases, once, however often it is called. Negative
// units leave costs as charged.
// guard is a lease that was taken in the receipt's decision and is still held; the error is weir.ErrLeaseGone
// if the receipt was settled before. After another error, call it again with the same units: no step is done
// twice.
//
// Each step is one call of the store that depends on a lease and releases it: charging the missing units takes
// a second lease, on which the refund depends. So there is no moment at which the lease is gone and the units
// are not settled. Claims of other instants than guard's (shadow rules of another call, claims of the local
// store, other slots of a Redis Cluster) are settled afterwards, at most once.
func (g *Gate) SettleOnce(ctx context.Context, guard Charged, receipt Receipt, units int64) error {
	if units > weir.MaxUnits {
		return checkActual(units)
	}
	return g.settleOnce(ctx, guard, receipt, units)
}

// settleOnce is SettleOnce, and gives back void charges.
func (g *Gate) settleOnce(ctx context.Context, guard Charged, receipt Receipt, units int64) error {
	// Releasing a lease twice has no further effect, so it comes first.
	if err := g.Release(ctx, receipt); err != nil && !errors.Is(err, weir.ErrLeaseGone) {
		return err
	}
	together, rest := g.inForce(receipt).takenWith(&guard)
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
	var failed []error
	for i := range rest {
		failed = append(failed, g.settle(ctx, &rest[i], rest[i].target(units)))
	}
	for i := range receipt {
		if c := &receipt[i]; units >= 0 || c.void || c.Actual != nil {
			g.settled(receipt, i, c.target(units))
		}
	}
	return errors.Join(failed...)
}

// target is the actual cost of a charge if units is the actual cost of its request.
func (c *Charged) target(units int64) int64 {
	switch {
	case c.void:
		return 0
	case c.Actual != nil:
		return *c.Actual
	case c.Fixed || units < 0:
		return c.Claim.Cost
	}
	return units
}

func depends(lease weir.Claim) weir.Claim {
	lease.Renew = true
	return lease
}

// takenWith splits the claims into claims that one call can settle together with a lease, and the rest.
func (r Receipt) takenWith(guard *Charged) (together, rest Receipt) {
	for i := range r {
		c := &r[i]
		switch {
		case c.Claim.Lease != "":
		case c.Taken == guard.Taken && c.Local == guard.Local && len(together) < maxSettled:
			together = append(together, *c)
		default:
			rest = append(rest, *c)
		}
	}
	return together, rest
}

// changes are the charges and the refunds that a cost of units needs.
func (r Receipt) changes(units int64) (more, back []weir.Claim) {
	for i := range r {
		claim, missing := r[i].change(r[i].target(units))
		switch {
		case missing > 0:
			more = append(more, claim)
		case missing < 0:
			back = append(back, claim)
		}
	}
	return more, back
}
