package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A follower is a shadow rule or a candidate, beside the claims that count.
type follower struct {
	rule     *rules.Rule
	live     int   // of a candidate: the place of the first claim of its rule; of a shadow rule: −1
	from, to int   // its claims; none where it lacks a key
	granted  int64 // of the requests
	request  int   // 1 + the place of its request in a batch
	why      Why   // why it has no claims
	err      error // the store's
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
		if !v.tries(rule, r) {
			continue
		}
		f := follower{rule: rule, live: -1, from: len(v.claims)}
		f.why, _ = v.apply(rule, r, ask, true)
		f.to = len(v.claims)
		v.hold(f.from, ask)
		v.followers = append(v.followers, f)
	}
}

// decideWithFollowers decides a request that has some, in the same call of the store: before it is
// known whether the request passes. Where that makes a follower void, what it was granted is given
// back, by a call more.
func (g *Gate) decideWithFollowers(ctx context.Context, ask *Ask, v *Verdict) error {
	if ask.Times > 1 || g.batcher == nil {
		return g.decideInTurn(ctx, ask, v)
	}
	b := g.batches.Get().(*batch)
	defer g.batches.Put(b)
	defer b.empty()
	if v.enforced > 0 {
		b.add(v, 0, v.enforced, ask.Times)
	}
	for i := range v.followers {
		if f := &v.followers[i]; f.from < f.to {
			b.add(v, f.from, f.to, ask.Times).Follows = v.enforced > 0 && ask.Times > 0
			f.request = len(b.requests)
		}
	}
	b.send(ctx, g)
	v.Granted = ask.Times
	if v.enforced > 0 {
		v.Granted = 0
		first := &b.requests[0]
		if err := g.enforced(ctx, ask.Times, v, first.Granted, first.Err); err != nil {
			return err
		}
	}
	b.answer(v)
	g.late(ctx, ask, v)
	for i := range v.followers {
		if f := &v.followers[i]; f.err == nil && f.granted > 0 && !v.keeps(f, ask) {
			for j := f.from; j < f.to; j++ {
				b.back = append(b.back, charge{v.claims[j], v.decisions[j].At})
			}
		}
	}
	g.tellFollowers(ask, v)
	g.giveBack(ctx, b.back)
	if v.counts(ask.Times) {
		g.count(ctx, ask.Times, v)
	}
	return nil
}

// late asks about candidates that were left out because the request is refused: where nothing but
// their own rule refuses it, they matter.
func (g *Gate) late(ctx context.Context, ask *Ask, v *Verdict) {
	for i := range v.followers {
		f := &v.followers[i]
		if errors.Is(f.err, weir.ErrNotAsked) && v.keeps(f, ask) {
			f.granted, f.err = g.store.Decide(ctx, v.claims[f.from:f.to], ask.Times, v.decisions[f.from:f.to])
		}
	}
}

// decideInTurn decides several identical requests: how many followers are asked about depends on
// how many pass. After an error nothing more is asked.
func (g *Gate) decideInTurn(ctx context.Context, ask *Ask, v *Verdict) error {
	decisions := v.room(len(v.claims))
	v.Granted = ask.Times
	if n := v.enforced; n > 0 {
		v.Granted = 0
		granted, err := g.store.Decide(ctx, v.claims[:n], ask.Times, decisions[:n])
		if err := g.enforced(ctx, ask.Times, v, granted, err); err != nil {
			return err
		}
	}
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
		f.granted, f.err = g.store.Decide(ctx, v.claims[f.from:f.to], times, decisions[f.from:f.to])
		failed = f.err
	}
	g.tellFollowers(ask, v)
	if v.counts(ask.Times) {
		g.count(ctx, ask.Times, v)
	}
	return nil
}

// asks is about how many of the requests a follower is asked, now that it is known what becomes of
// them.
func (v *Verdict) asks(f *follower, ask *Ask) int64 {
	if f.live < 0 {
		return min(v.Granted, ask.Times)
	}
	times, ok := v.comparable(f.live, ask.Times)
	if !ok || v.about[f.live].by != v.gate.store {
		return 0
	}
	return times
}

// keeps reports whether what a follower says matters.
func (v *Verdict) keeps(f *follower, ask *Ask) bool {
	if f.live >= 0 && v.about[f.live].by != v.gate.store {
		return false
	}
	return ask.Times == 0 || v.asks(f, ask) > 0
}

// tellFollowers notes what followers say, and leaves out the claims of those that do not matter.
func (g *Gate) tellFollowers(ask *Ask, v *Verdict) {
	n := v.enforced
	for i := range v.followers {
		f := &v.followers[i]
		if !v.keeps(f, ask) {
			continue
		}
		switch {
		case f.live >= 0:
			g.tellCandidate(ask, v, f)
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

// move brings claims to the nth place, and says where the next come.
func (v *Verdict) move(n, from, to int) int {
	copy(v.about[n:], v.about[from:to])
	copy(v.decisions[n:], v.decisions[from:to])
	copy(v.claims[n:], v.claims[from:to])
	return n + to - from
}

// ShortKey is a key as the front ends hand it to stores: one of more than rules.MaxPlainKey bytes
// is hashed, so that what a store keeps is bounded in bytes. Equal keys stay equal, on every node.
func ShortKey(key string) string {
	if len(key) <= rules.MaxPlainKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}
