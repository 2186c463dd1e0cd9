package layers

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// A router is the Store of a Stack. A call passes the layers that the terms of its limits need, and no others: a limit
// without terms has the exact ones alone. All layers are there from the beginning, and the claims of a call decide
// which ones it passes: rules change without a change here, and calls in flight end in the layers of their beginning.
//
// Grants of limits with Local terms are also counted in the local store, so that a switch to it hands out no fresh
// budget. It counts what went through this node, of a bucket only up to its share: otherwise a node that serves more
// than its share would be in debt for hours after the switch. Refunds are applied too; to a bucket, at most up to a
// full share, and of a log its latest units, since the instants of another clock are not known here. Leases are
// followed as they are taken, renewed and released through this node.
type router struct {
	exact   weir.Store // the exact layers over the shared store
	leaser  weir.Store // over exact
	ceiling weir.Store // over leaser; leaser without Bounds
	updates io.Closer  // nil: not to be closed

	terms   func(*weir.Limit) Terms
	local   *localStore
	mirrors bool // grants are counted in local
	keyed   keyDecider
	leasing keyDecider
}

// A route says through which layers a call passes.
type route struct{ ceiling, lease, local bool }

// add adds the layers that a limit needs. A wrong claim without one needs no layer: the store reports the error.
func (r *router) add(to *route, limit *weir.Limit) {
	if limit == nil {
		return
	}
	t := r.terms(limit)
	to.ceiling = to.ceiling || t.Ceiling > 0
	to.lease = to.lease || t.LeaseShare > 0
	to.local = to.local || t.Local && r.mirrors
}

func (r *router) route(claims []weir.Claim) (weir.Store, route) {
	var needs route
	for i := range claims {
		r.add(&needs, claims[i].Limit)
	}
	return r.store(needs), needs
}

func (r *router) store(needs route) weir.Store {
	switch {
	case needs.ceiling:
		return r.ceiling
	case needs.lease:
		return r.leaser
	}
	return r.exact
}

// Fallback is the local store, if it decides all of the limits while the shared one is unavailable: see
// weir.NewLimiter.
func (r *router) Fallback(limits []*weir.Limit) weir.Store {
	if !r.mirrors || slices.ContainsFunc(limits, func(l *weir.Limit) bool { return !r.local.follows(l) }) {
		return nil
	}
	return r.local
}

func (r *router) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	store, needs := r.route(claims)
	granted, err := store.Decide(ctx, claims, times, decisions)
	if needs.local && err == nil && granted > 0 {
		r.local.note(grantedClaims(claims), granted)
	}
	return granted, err
}

// DecideKey is Decide of one request, for a lease or a remembered refusal: see weir.Limiter. A limit with a ceiling has
// no shortcut, nor has a lease of one that is counted in the local store.
func (r *router) DecideKey(key string, limits []*weir.Limit, cost, floor int64) (worst int, granted bool,
	remaining int64, retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	var needs route
	for _, l := range limits {
		r.add(&needs, l)
	}
	keyed := r.keyed
	if needs.lease {
		keyed = r.leasing
	}
	if keyed == nil || needs.ceiling || needs.lease && needs.local {
		return
	}
	return keyed.DecideKey(key, limits, cost, floor)
}

func (r *router) DecideBatch(ctx context.Context, requests []weir.Request) {
	var needs route
	for i := range requests {
		for j := range requests[i].Claims {
			r.add(&needs, requests[i].Claims[j].Limit)
		}
	}
	decideBatch(ctx, r.store(needs), requests)
	if !needs.local {
		return
	}
	for i := range requests {
		if one := &requests[i]; one.Err == nil && one.Granted > 0 {
			r.local.note(grantedClaims(one.Claims), one.Granted)
		}
	}
}

// Charge passes leases and ceilings, which do not count it.
func (r *router) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	_, needs := r.route(claims)
	err := r.exact.Charge(ctx, claims, decisions)
	if needs.local && err == nil {
		r.local.note(claims, 1)
	}
	return err
}

func (r *router) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	store, needs := r.route(claims)
	if !needs.local {
		return store.Refund(ctx, claims, takenAt, decisions)
	}
	if decisions == nil {
		decisions = make([]weir.Decision, len(claims)) // for the instant of the shared store's clock
	}
	err := store.Refund(ctx, claims, takenAt, decisions)
	depends := slices.ContainsFunc(claims, isRenewal)
	switch {
	case err == nil || errors.Is(err, weir.ErrLeaseGone) && !depends:
		r.local.giveBack(claims, decisions[0].At-takenAt)
	case errors.Is(err, weir.ErrUnavailable) && !depends: // the work has ended: the shared store releases it later
		r.local.giveBack(slices.DeleteFunc(slices.Clone(claims), isUnleased), 0)
	}
	return err
}

// Reset passes all layers: one may hold units of a limit that had other terms when they were taken.
func (r *router) Reset(ctx context.Context, claims []weir.Claim) error {
	err := r.ceiling.Reset(ctx, claims)
	if r.mirrors && err == nil {
		err = r.local.Reset(ctx, claims)
	}
	return err
}

// Close closes all but the local store.
func (r *router) Close() error {
	err := r.ceiling.Close()
	if r.updates != nil {
		err = errors.Join(err, r.updates.Close())
	}
	return err
}
