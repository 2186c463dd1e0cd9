package fallback

import (
	"context"
	"errors"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

// Warm returns next, whose grants are also counted in the local store, so that a switch to the local store
// hands out no fresh budget. Put it above all other layers, as layers.New does.
//
// The local store counts what went through this node, of a bucket only up to its share: otherwise a node that
// serves more than its share would be in debt for hours after the switch. Refunds are applied too; to a bucket,
// at most up to a full share, and of a log its latest units, since the instants of another clock are not known here.
// Leases are followed as they are taken, renewed and released through this node.
//
// Closing it closes next and not the local store.
func (l *LocalStore) Warm(next weir.Store) *Warm { return &Warm{next, l} }

// Warm is a weir.Store over another one, and no shortcut.
type Warm struct {
	weir.Store // the next one
	local      *LocalStore
}

// Fallback is the local store, if it decides all of the limits while the next one is unavailable: see weir.NewLimiter.
func (w *Warm) Fallback(limits []*weir.Limit) weir.Store {
	if slices.ContainsFunc(limits, func(l *weir.Limit) bool { return !w.local.follows(l) }) {
		return nil
	}
	return w.local
}

func (w *Warm) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	granted, err := w.Store.Decide(ctx, claims, times, decisions)
	if err == nil && granted > 0 {
		w.local.note(granting(claims), granted)
	}
	return granted, err
}

func (w *Warm) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	err := w.Store.Charge(ctx, claims, decisions)
	if err == nil {
		w.local.note(claims, 1)
	}
	return err
}

func (w *Warm) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if decisions == nil {
		decisions = make([]weir.Decision, len(claims)) // for the instant of next's clock
	}
	err := w.Store.Refund(ctx, claims, takenAt, decisions)
	depends := slices.ContainsFunc(claims, renews)
	switch {
	case err == nil || errors.Is(err, weir.ErrLeaseGone) && !depends:
		w.local.giveBack(claims, decisions[0].At-takenAt)
	case errors.Is(err, weir.ErrUnavailable) && !depends: // the work has ended: the shared store releases it later
		w.local.giveBack(slices.DeleteFunc(slices.Clone(claims), holdsNone), 0)
	}
	return err
}

func holdsNone(c weir.Claim) bool { return c.Lease == "" }

func renews(c weir.Claim) bool { return c.Renew }

func (w *Warm) Reset(ctx context.Context, claims []weir.Claim) error {
	err := w.Store.Reset(ctx, claims)
	if err == nil {
		err = w.local.Reset(ctx, claims)
	}
	return err
}

func (w *Warm) DecideBatch(ctx context.Context, requests []weir.Request) {
	layer.DecideBatch(ctx, w.Store, requests)
	for i := range requests {
		if r := &requests[i]; r.Err == nil && r.Granted > 0 {
			w.local.note(granting(r.Claims), r.Granted)
		}
	}
}

// granting is the claims of a grant, for Charge: a renewed lease is charged like a new one, which renews it where it is
// known. In Charge, Renew would release it.
func granting(claims []weir.Claim) []weir.Claim {
	if !slices.ContainsFunc(claims, renews) {
		return claims
	}
	granted := slices.Clone(claims)
	for i := range granted {
		granted[i].Renew = false
	}
	return granted
}

// note counts a grant of another store. It fails only if the local store is closed, and then the count is not needed.
func (l *LocalStore) note(claims []weir.Claim, times int64) {
	mine := l.claims(claims)
	defer l.done(mine)
	for i := range *mine {
		one := (*mine)[i : i+1]
		if !l.follows(claims[i].Limit) {
			continue
		}
		// A bucket's debt would take nodes times longer to repay. Windows end by themselves, and a later refund to
		// them must find the charge.
		if one[0].Limit != claims[i].Limit && one[0].Limit.Refills() {
			l.take(one, times)
			continue
		}
		one[0].Cost = min(one[0].Cost*times, weir.MaxUnits)
		l.store.Charge(context.Background(), one, nil)
	}
}

// take charges a claim's cost times over, or as much of that as is left.
func (l *LocalStore) take(one []weir.Claim, times int64) {
	granted, err := l.store.Decide(context.Background(), one, times, nil)
	rest := min(one[0].Cost*(times-granted), weir.MaxUnits)
	if err == nil && rest > 0 && one[0].Cost > 1 {
		one[0].Cost = 1
		l.store.Decide(context.Background(), one, rest, nil)
	}
}

// followed returns the claims on limits that Warm counts.
func (l *LocalStore) followed(claims []weir.Claim) []weir.Claim {
	if l.config.Only == nil {
		return claims
	}
	return slices.DeleteFunc(slices.Clone(claims), func(c weir.Claim) bool { return !l.follows(c.Limit) })
}

// giveBack refunds units that were taken that long ago by another store's clock.
func (l *LocalStore) giveBack(claims []weir.Claim, ago weir.Instant) {
	claims = l.followed(claims)
	if len(claims) == 0 {
		return
	}
	mine := l.claims(claims)
	defer l.done(mine)
	for i := range *mine {
		(*mine)[i].Delay = 0 // a wait belongs to the level of the other store's bucket
	}
	var now [1]weir.Decision
	if _, err := l.store.Decide(context.Background(), (*mine)[:1], 0, now[:]); err != nil {
		return
	}
	for i := range *mine {
		one := (*mine)[i : i+1]
		if one[0].Limit.Itemized() {
			l.giveBackLatest(one)
		} else {
			l.store.Refund(context.Background(), one, now[0].At-ago, nil)
		}
	}
}

// mostGivenBack is the number of charges of a log that one refund gives back.
const mostGivenBack = 32

// giveBackLatest refunds the latest units of a log: when they were charged follows from its end. Of a log without
// units left it is unknown how many were given back, so there it is one charge at most.
func (l *LocalStore) giveBackLatest(one []weir.Claim) {
	look := []weir.Claim{one[0]}
	look[0].Cost = 0
	for range mostGivenBack {
		var before, after [1]weir.Decision
		_, err := l.store.Decide(context.Background(), look, 0, before[:])
		if err != nil || before[0].ResetAfter == 0 {
			return
		}
		latest := before[0].At + weir.Instant(before[0].ResetAfter.Microseconds()-one[0].Limit.Period())
		if l.store.Refund(context.Background(), one, latest, after[:]) != nil || before[0].Remaining == 0 {
			return
		}
		if one[0].Cost -= after[0].Remaining - before[0].Remaining; one[0].Cost <= 0 {
			return
		}
	}
}
