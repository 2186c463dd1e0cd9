package gate

import (
	"context"

	"github.com/weirproject/weir"
)

// maxRefunded is the number of charges of a sliding log or counter that one refund gives back.
const maxRefunded = 32

// refund gives the verdict's units back, also to shadow rules. An error is in v.Err: the units stay charged.
func (g *Gate) refund(ctx context.Context, v *Verdict) {
	for i := range v.claims {
		a, c := &v.about[i], &v.claims[i]
		if a.candidate || a.ban || a.aside || c.Lease != "" || c.Cost == 0 {
			continue
		}
		if v.decisions[i], v.Err = refundLatest(ctx, g.store, *c); v.Err != nil {
			v.Reason = StoreFailed
			return
		}
		a.by = g.store
	}
	v.truncate(v.enforced)
	v.resolve(0)
	v.Outcome, v.Reason = Passed, v.Reason.passing()
}

// passing is the reason of a request that passes though its limit is exceeded.
func (r Reason) passing() Reason {
	if r == LimitExceeded || r == Banned {
		return WithinLimits
	}
	return r
}

// refundLatest gives back the units of a claim that were charged last, not below zero used. Windows and buckets do not
// tell charges apart. Of a log and a counter, the end of the latest charge tells when it was.
func refundLatest(ctx context.Context, store weir.Store, claim weir.Claim) (weir.Decision, error) {
	var d [1]weir.Decision
	claim.Floor = 0 // Remaining is all units that are left
	back := []weir.Claim{claim}
	look := back[0]
	look.Cost = 0 // whether the limit is exceeded
	if _, err := store.Decide(ctx, []weir.Claim{look}, 0, d[:]); err != nil {
		return d[0], err
	}
	exceeded := d[0].RetryAfter != 0
	for range maxRefunded {
		before := d[0]
		if before.ResetAfter == 0 {
			break
		}
		if err := store.Refund(ctx, back, latest(&before, claim.Limit.CountsFor()), d[:]); err != nil {
			return d[0], err
		}
		gained := d[0].Remaining - before.Remaining
		if back[0].Cost -= gained; back[0].Cost <= 0 || gained <= 0 || exceeded || claim.Limit.CountsFor() == 0 {
			break
		}
	}
	return d[0], nil
}

// latest is the instant of the latest charge under a limit whose units count for so many microseconds. Where the reply
// does not tell (counts is 0), the present has the same effect in a refund.
func latest(d *weir.Decision, counts int64) weir.Instant {
	if counts == 0 {
		return d.At
	}
	return d.At + weir.Instant(d.ResetAfter.Microseconds()-counts)
}
