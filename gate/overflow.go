package gate

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
)

// The rules of one request need at most weir.MaxClaims claims: Compile and Except refuse more. This file
// handles the claims that front ends add, and is the safety net if that check were wrong: no request fails
// because of the number of rules.

// ErrTooManyClaims is a Verdict's Err if the matching rules need more claims than a decision holds; each
// rule's on_store_error has decided then.
var ErrTooManyClaims = errors.New("gate: the rules that match need more claims than a decision holds: " +
	"give them fewer limits")

// overflows reports whether the rules' and the Aside claims exceed a decision. Too many claims of the caller's
// own are the caller's error.
func (v *Verdict) overflows() bool {
	if v.enforced <= weir.MaxClaims {
		return false
	}
	for i := range v.enforced {
		if a := &v.about[i]; a.rule == nil && !a.aside {
			return false
		}
	}
	return true
}

// decideApart decides the claims of the rules, and then those aside. It returns false if it decided no claim.
func (g *Gate) decideApart(ctx context.Context, times int64, v *Verdict) bool {
	n := 0
	for n < v.enforced && (!v.about[n].aside || v.claims[n].Once) {
		n++
	}
	if n > weir.MaxClaims || n == 0 {
		return false
	}
	d := v.room(len(v.claims))
	granted, err := g.store.Decide(ctx, v.claims[:n], times, d[:n])
	if err == nil {
		granted, err = g.complete(ctx, g.store, v, v.part(0, n), times, granted)
	}
	if err != nil {
		return false
	}
	if granted > 0 {
		// Aside claims limit no request. Undecided ones are left out, as they are while the store does not
		// answer.
		_, err = g.store.Decide(ctx, v.claims[n:v.enforced], granted, d[n:v.enforced])
	}
	for i := range v.enforced {
		if i < n || err == nil && granted > 0 {
			v.about[i].by, v.about[i].granted = g.store, granted
		}
	}
	v.resolve(times)
	return true
}

// decideInParts is Decide for more claims than a decision holds. A refusal of one part leaves the parts before
// it charged.
func decideInParts(ctx context.Context, store weir.Store, claims []weir.Claim, times int64,
	decisions []weir.Decision) (granted int64, err error) {
	granted = times
	for from := 0; from < len(claims) && err == nil; from += weir.MaxClaims {
		to := min(from+weir.MaxClaims, len(claims))
		granted, err = store.Decide(ctx, claims[from:to], granted, decisions[from:to])
	}
	return granted, err
}
