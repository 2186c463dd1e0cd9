package gate

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
)

// The rules of one request need at most rules.MaxClaims claims: compiling and exceptions see to
// it. What is here is for what comes on top, and in case that they were wrong: no request fails
// because of how many rules there are.

// ErrTooManyClaims is a Verdict's Err where the rules that match need more claims than a decision
// holds, so that each rule's on_store_error decided.
var ErrTooManyClaims = errors.New("gate: the rules that match need more claims than a decision holds: give them fewer limits")

// crowded reports whether a decision does not hold the claims of the rules, and those aside.
// What a caller's own claims make too many is the caller's mistake.
func (v *Verdict) crowded() bool {
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

// decideApart asks about the claims of the rules, and then about those aside. It reports whether
// that was of any use.
func (g *Gate) decideApart(ctx context.Context, times int64, v *Verdict) bool {
	n := 0
	for n < v.enforced && !v.about[n].aside {
		n++
	}
	if n > weir.MaxClaims || n == 0 {
		return false
	}
	d := v.room(len(v.claims))
	granted, err := g.store.Decide(ctx, v.claims[:n], times, d[:n])
	if err != nil {
		return false
	}
	if granted > 0 || times == 0 {
		// Aside claims limit nobody. Where they are not decided they are left out, as they are
		// while the store does not answer.
		_, err = g.store.Decide(ctx, v.claims[n:v.enforced], granted, d[n:v.enforced])
	}
	for i := range v.enforced {
		if i < n || err == nil && granted > 0 {
			v.about[i].by, v.about[i].granted = g.store, granted
		}
	}
	v.judge(times)
	return true
}

// decideInParts is Decide of more claims than one decision holds: what one part refuses, the
// parts before it are charged for.
func decideInParts(ctx context.Context, store weir.Store, claims []weir.Claim, times int64, decisions []weir.Decision) (granted int64, err error) {
	granted = times
	for from := 0; from < len(claims) && err == nil; from += weir.MaxClaims {
		to := min(from+weir.MaxClaims, len(claims))
		granted, err = store.Decide(ctx, claims[from:to], granted, decisions[from:to])
	}
	return granted, err
}
