package gate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Question is one request of DecideBatch: the arguments of Decide, and its error.
type Question struct {
	Request *rules.Request // nil: only Ask.Claims are decided
	Ask     Ask
	Verdict *Verdict // each question has its own
	Err     error
}

// DecideBatch is Decide of each question, with one call of the store for all of them where the
// store is a weir.Batcher. Questions that share a key under one limit are decided in the order in
// which they stand, others in any order. A question with Ask.Times above 1 takes a call of its own.
func (g *Gate) DecideBatch(ctx context.Context, questions []Question) {
	var began time.Time
	if len(g.observers) > 0 {
		began = time.Now()
	}
	for rest := questions; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(q Question) bool { return q.Ask.Times > 1 })
		switch {
		case n < 0:
			g.decideTogether(ctx, rest)
			n = len(rest)
		case n > 0:
			g.decideTogether(ctx, rest[:n])
		default:
			q := &rest[0]
			q.Verdict.start(g, q.Ask.Times)
			q.Err = g.decide(ctx, q.Request, &q.Ask, q.Verdict)
			n = 1
		}
		rest = rest[n:]
	}
	for i := range questions {
		q := &questions[i]
		g.conclude(q.Verdict, q.Err, began)
	}
}

// A batch is what one call of the store decides. It is used again.
type batch struct {
	requests []weir.Request
	parts    []part
	late     []weir.Request // followers that were not asked, and matter all the same
	back     []charge
}

// A part is one question's requests: that of the claims that count, if there are any, then those
// of its followers.
type part struct {
	done  bool // the store need not be asked
	first int
}

// A charge is one that has to be given back.
type charge struct {
	claim weir.Claim
	at    weir.Instant
}

func (g *Gate) decideTogether(ctx context.Context, questions []Question) {
	b := g.batches.Get().(*batch)
	defer g.batches.Put(b)
	defer b.empty()
	set := g.set.Load()
	for i := range questions {
		q := &questions[i]
		v := q.Verdict
		v.start(g, q.Ask.Times)
		var done bool
		done, q.Err = v.prepare(set, q.Request, &q.Ask)
		if !done {
			v.follow(q.Request, &q.Ask)
		}
		b.add(v, &q.Ask, done)
	}
	g.send(ctx, b.requests)
	for i := range questions {
		if q := &questions[i]; !b.parts[i].done {
			q.Err = g.finish(ctx, b, i, &q.Ask, q.Verdict)
		}
	}
	g.send(ctx, b.late)
	for i := range questions {
		if q := &questions[i]; q.Err == nil {
			g.tellFollowers(b, &q.Ask, q.Verdict)
		}
	}
	g.giveBack(ctx, b.back)
	g.countAll(ctx, questions)
}

func (b *batch) empty() {
	clear(b.requests)
	clear(b.late)
	clear(b.back)
	b.requests, b.parts, b.late, b.back = b.requests[:0], b.parts[:0], b.late[:0], b.back[:0]
}

// add appends the requests of a verdict whose claims are made.
func (b *batch) add(v *Verdict, ask *Ask, done bool) {
	b.parts = append(b.parts, part{done, len(b.requests)})
	if done {
		return
	}
	decisions := v.room(len(v.claims))
	if n := v.enforced; n > 0 {
		b.requests = append(b.requests, weir.Request{Claims: v.claims[:n:n], Times: ask.Times, Decisions: decisions[:n:n]})
	}
	for i := range v.followers {
		if f := &v.followers[i]; f.from < f.to {
			r := weir.Request{Claims: v.claims[f.from:f.to:f.to], Times: ask.Times, Decisions: decisions[f.from:f.to:f.to]}
			r.Follows = v.enforced > 0 && ask.Times > 0
			b.requests = append(b.requests, r)
		}
	}
}

// send decides the requests. A store that is no Batcher is asked about a follower only where
// that still matters.
func (g *Gate) send(ctx context.Context, requests []weir.Request) {
	if batcher, ok := g.store.(weir.Batcher); ok {
		if len(requests) > 0 {
			batcher.DecideBatch(ctx, requests)
		}
		return
	}
	var away error // why followers are not asked
	for i := range requests {
		r := &requests[i]
		if r.Follows && away != nil {
			r.Granted, r.Err = 0, away
			continue
		}
		r.Granted, r.Err = g.store.Decide(ctx, r.Claims, r.Times, r.Decisions)
		switch {
		case r.Err != nil:
			away = r.Err
		case !r.Follows && r.Granted == 0:
			away = weir.ErrNotAsked
		case !r.Follows:
			away = nil
		}
	}
}

// finish says what the answers of the store to the nth question come to.
func (g *Gate) finish(ctx context.Context, b *batch, n int, ask *Ask, v *Verdict) error {
	requests := b.requests[b.parts[n].first:]
	v.Granted = ask.Times
	if v.enforced > 0 {
		first := &requests[0]
		requests = requests[1:]
		v.Granted = 0
		if err := g.enforced(ctx, ask.Times, v, first.Granted, first.Err); err != nil {
			return err
		}
	}
	for i := range v.followers {
		f := &v.followers[i]
		if f.from == f.to {
			continue
		}
		r := &requests[0]
		requests = requests[1:]
		f.granted, f.err = r.Granted, r.Err
		switch keeps := v.keeps(g, f, ask); {
		case keeps && errors.Is(r.Err, weir.ErrNotAsked):
			b.late = append(b.late, *r)
			f.late = len(b.late)
			b.late[f.late-1].Follows = false
		case !keeps && r.Err == nil && r.Granted > 0:
			for j := f.from; j < f.to; j++ {
				b.back = append(b.back, charge{v.claims[j], v.decisions[j].At})
			}
		}
	}
	return nil
}

// giveBack refunds what followers were granted beside requests that did not pass. What goes wrong
// with it is not the request's business: it limits nobody.
func (g *Gate) giveBack(ctx context.Context, charges []charge) {
	if len(charges) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), counting)
	defer cancel()
	slices.SortStableFunc(charges, func(a, b charge) int { return cmp.Compare(a.at, b.at) })
	var claims []weir.Claim
	var at weir.Instant
	for i := range charges {
		c := &charges[i]
		if len(claims) > 0 && (at != c.at || len(claims) == weir.MaxClaims) {
			if g.store.Refund(ctx, claims, at, nil) != nil {
				return
			}
			claims = claims[:0]
		}
		at = c.at
		claims = sum(claims, c.claim)
	}
	g.store.Refund(ctx, claims, at, nil)
}

// sum adds a claim to others, of which each is on another state.
func sum(claims []weir.Claim, c weir.Claim) []weir.Claim {
	for i := range claims {
		if claims[i].Same(&c) {
			claims[i].Cost = min(claims[i].Cost+c.Cost, weir.MaxUnits)
			return claims
		}
	}
	return append(claims, c)
}
