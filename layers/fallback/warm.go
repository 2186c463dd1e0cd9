package fallback

import (
	"context"
	"errors"
	"slices"

	"github.com/weirproject/weir"
)

// Warm is next, and tells the local store what next grants: a switch to the local store then
// hands out no fresh budget. Put it below what gathers requests: it is told once for all of
// them. It decides batches (weir.Batcher) if next does; it is no weir.Shortcut.
//
// The local store counts what went through this node; in a bucket only as far as its share goes,
// or a node that serves more than that would be in debt for hours after the switch. What next
// refunds is refunded there too; to a bucket that may be more than was counted, so that at most
// a share is there again. Of a log it is not: what was taken counts until its window is over.
// Leases are known there as they are taken, renewed and released through this node.
//
// Closing it closes next and not the local store.
func (l *LocalStore) Warm(next weir.Store) weir.Store {
	if batcher, ok := next.(weir.Batcher); ok {
		return &warmBatch{warm{next, l}, batcher}
	}
	return &warm{next, l}
}

type warm struct {
	next  weir.Store
	local *LocalStore
}

// Decide implements weir.Store.
func (w *warm) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	granted, err := w.next.Decide(ctx, claims, times, decisions)
	if err == nil && granted > 0 {
		w.local.note(claims, granted)
	}
	return granted, err
}

// Charge implements weir.Store.
func (w *warm) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	err := w.next.Charge(ctx, claims, decisions)
	if err == nil {
		w.local.note(claims, 1)
	}
	return err
}

// Refund implements weir.Store.
func (w *warm) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if decisions == nil {
		decisions = make([]weir.Decision, len(claims)) // which say what next's time is
	}
	err := w.next.Refund(ctx, claims, takenAt, decisions)
	if err == nil || errors.Is(err, weir.ErrLeaseGone) && !slices.ContainsFunc(claims, func(c weir.Claim) bool { return c.Renew }) {
		w.local.giveBack(claims, decisions[0].At-takenAt)
	}
	return err
}

// Reset implements weir.Store.
func (w *warm) Reset(ctx context.Context, claims []weir.Claim) error {
	err := w.next.Reset(ctx, claims)
	if err == nil {
		err = w.local.Reset(ctx, claims)
	}
	return err
}

// Close implements weir.Store.
func (w *warm) Close() error { return w.next.Close() }

type warmBatch struct {
	warm
	batcher weir.Batcher
}

// DecideBatch implements weir.Batcher.
func (w *warmBatch) DecideBatch(ctx context.Context, requests []weir.Request) {
	w.batcher.DecideBatch(ctx, requests)
	for i := range requests {
		if r := &requests[i]; r.Err == nil && r.Granted > 0 {
			w.local.note(r.Claims, r.Granted)
		}
	}
}

// note counts what another store granted. It fails only where the local store was closed, and
// then there is nobody to whom it matters.
func (l *LocalStore) note(claims []weir.Claim, times int64) {
	mine := l.claims(claims)
	defer l.done(mine)
	for i := range *mine {
		one := (*mine)[i : i+1]
		if !l.follows(claims[i].Limit) {
			continue
		}
		// A bucket's debt would take as many times longer to repay as there are nodes. Windows
		// end by themselves, and what is refunded to them should have been counted.
		if one[0].Limit != claims[i].Limit && one[0].Limit.Algorithm() == weir.AlgorithmTokenBucket {
			l.take(one, times)
			continue
		}
		one[0].Cost = min(one[0].Cost*times, weir.MaxUnits)
		l.store.Charge(context.Background(), one, nil)
	}
}

// take takes a claim's cost times over, or as much of that as is left.
func (l *LocalStore) take(one []weir.Claim, times int64) {
	granted, err := l.store.Decide(context.Background(), one, times, nil)
	rest := min(one[0].Cost*(times-granted), weir.MaxUnits)
	if err == nil && rest > 0 && one[0].Cost > 1 {
		one[0].Cost = 1
		l.store.Decide(context.Background(), one, rest, nil)
	}
}

// followed are the claims on limits that Warm counts.
func (l *LocalStore) followed(claims []weir.Claim) []weir.Claim {
	if l.only == nil {
		return claims
	}
	return slices.DeleteFunc(slices.Clone(claims), func(c weir.Claim) bool { return !l.only(c.Limit) })
}

// giveBack refunds what was taken so long ago, by the clock of another store.
func (l *LocalStore) giveBack(claims []weir.Claim, ago weir.Instant) {
	claims = l.followed(claims)
	if len(claims) == 0 {
		return
	}
	mine := l.claims(claims)
	defer l.done(mine)
	for i := range *mine {
		(*mine)[i].Delay = 0 // the local store's bucket has another level, and nobody waits by it
	}
	var now [1]weir.Decision
	if _, err := l.store.Decide(context.Background(), (*mine)[:1], 0, now[:]); err == nil {
		l.store.Refund(context.Background(), *mine, now[0].At-ago, nil)
	}
}
