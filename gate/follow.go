package gate

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A follower is a shadow rule or a candidate, decided beside the enforced claims.
type follower struct {
	rule     *rules.Rule
	live     int    // of a candidate: index of its rule's first claim; of a shadow rule: −1
	from, to int    // its claims; none if the request has no key
	granted  int64  // of the requests
	request  int    // 1 + index of its request in a batch
	why      string // why it has no claims
	err      error  // the store's
}

// follow makes the claims of candidates and of shadow rules.
func (v *Verdict) follow(r *rules.Request, ask *Ask) {
	if r == nil {
		return
	}
	var last *rules.Rule
	for i := range v.enforced {
		a := &v.about[i]
		if a.rule == nil || a.rule == last {
			continue
		}
		last = a.rule
		if a.rule.Candidate() != nil && v.claims[i].Limit == a.rule.Limits()[0] {
			v.followCandidate(r, i, ask)
		}
	}
	for _, rule := range v.matched {
		if !v.onTrial(rule, r) {
			continue
		}
		f := follower{rule: rule, live: -1, from: len(v.claims)}
		f.why, _ = v.apply(rule, r, ask, true)
		f.to = len(v.claims)
		v.hold(f.from, ask)
		v.followers = append(v.followers, f)
	}
}

// decideDeferred decides candidates that the store left out because the request is refused, if only their own
// rule refuses it.
func (g *Gate) decideDeferred(ctx context.Context, ask *Ask, v *Verdict) {
	for i := range v.followers {
		f := &v.followers[i]
		if errors.Is(f.err, weir.ErrNotAsked) && v.keeps(f, ask) {
			f.granted, f.err = g.store.Decide(ctx, v.claims[f.from:f.to], ask.Times, v.decisions[f.from:f.to])
			g.followFull(ctx, v, f, ask.Times)
		}
	}
}

// decideInTurn decides a request without followers, or several identical ones: the number that pass determines how
// many the followers decide. After an error the store is not called again.
func (g *Gate) decideInTurn(ctx context.Context, ask *Ask, v *Verdict) error {
	decisions := v.room(len(v.claims))
	if n := v.enforced; n > 0 {
		granted, err := g.store.Decide(ctx, v.claims[:n], ask.Times, decisions[:n])
		if err := g.enforced(ctx, ask.Times, v, granted, err); err != nil {
			return err
		}
	}
	g.followInTurn(ctx, ask, v)
	return nil
}

// followInTurn decides the followers, one after the other.
func (g *Gate) followInTurn(ctx context.Context, ask *Ask, v *Verdict) {
	failed := v.Err
	for i := range v.followers {
		f := &v.followers[i]
		if f.from == f.to {
			continue
		}
		f.err = failed
		if failed != nil || !v.keeps(f, ask) {
			continue
		}
		times := v.asks(f, ask)
		f.granted, f.err = g.store.Decide(ctx, v.claims[f.from:f.to], times, v.decisions[f.from:f.to])
		g.followFull(ctx, v, f, times)
		failed = f.err
	}
	g.recordFollowers(ask, v)
}

// asks is the number of requests that a follower decides, once the outcome of the enforced claims is known.
func (v *Verdict) asks(f *follower, ask *Ask) int64 {
	if f.live < 0 {
		return min(v.Granted, ask.Times)
	}
	if v.about[f.live].by != v.gate.store {
		return 0
	}
	return v.comparable(f.live, ask.Times)
}

// keeps reports whether a follower's result counts.
func (v *Verdict) keeps(f *follower, ask *Ask) bool {
	if f.live >= 0 && v.about[f.live].by != v.gate.store {
		return false
	}
	return ask.Times == 0 || v.asks(f, ask) > 0
}

// recordFollowers records the results of followers, and drops the claims of followers that do not count.
func (g *Gate) recordFollowers(ask *Ask, v *Verdict) {
	n := v.enforced
	for i := range v.followers {
		f := &v.followers[i]
		if !v.keeps(f, ask) {
			continue
		}
		switch {
		case f.live >= 0:
			g.recordCandidate(ask, v, f)
		case f.why != applies:
			v.skips = append(v.skips, Skip{f.rule, f.why})
		case f.err != nil:
			v.skips = append(v.skips, Skip{f.rule, Unasked})
		}
		if f.err != nil {
			continue
		}
		v.decided(f.from, f.to, g.store, f.granted)
		n = v.move(n, f.from, f.to)
	}
	v.truncate(n)
}

// move copies claims to the nth place, and returns the place after them.
func (v *Verdict) move(n, from, to int) int {
	copy(v.about[n:], v.about[from:to])
	copy(v.decisions[n:], v.decisions[from:to])
	copy(v.claims[n:], v.claims[from:to])
	return n + to - from
}
