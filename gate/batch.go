package gate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Question is one request of DecideBatch: the arguments of Decide, and its error.
type Question struct {
	Request *rules.Request // nil: only Ask.Claims are decided
	Ask     Ask
	Verdict *Verdict // not shared between questions
	Err     error
}

// DecideBatch is Decide for each question. Where the store is a weir.Batcher, one call decides all of them,
// and one more their shadow rules and candidates. Questions that share a key under one limit are decided in
// order, others in any order. A question with Ask.Times above 1 takes calls of its own.
func (g *Gate) DecideBatch(ctx context.Context, questions []Question) {
	var began time.Time
	if len(g.observers) > 0 {
		began = time.Now()
	}
	ctx, done := g.budget.begin(ctx)
	defer done()
	for rest := questions; len(rest) > 0; {
		n := g.togetherWith(rest)
		if n > 1 {
			g.decideTogether(ctx, rest[:n])
		} else {
			q := &rest[0]
			q.Verdict.start(g, q.Request, q.Ask.Times)
			q.Err = g.decide(ctx, q.Request, &q.Ask, q.Verdict)
		}
		rest = rest[n:]
	}
	for i := range questions {
		q := &questions[i]
		g.conclude(q.Verdict, q.Err, began)
	}
}

// togetherWith is the number of leading questions that one batch can decide.
func (g *Gate) togetherWith(questions []Question) int {
	n := 0
	for g.batcher != nil && n < len(questions) && questions[n].Ask.Times <= 1 {
		n++
	}
	return max(n, 1)
}

// A batch holds the requests of one call of the store. Batches are pooled.
type batch struct {
	requests []weir.Request
	places   []int // index of each question's request; −1: it has none
	back     []charge
}

// A charge is a granted claim to be refunded.
type charge struct {
	claim weir.Claim
	at    weir.Instant
}

// decideTogether decides questions of at most one time each: first the enforced claims, then the followers of
// the requests that passed.
func (g *Gate) decideTogether(ctx context.Context, questions []Question) {
	b := g.batches.Get().(*batch)
	defer g.batches.Put(b)
	defer b.empty()
	set := g.set.Load()
	for i := range questions {
		b.prepare(g, set, &questions[i])
	}
	b.send(ctx, g)
	for i := range questions {
		q := &questions[i]
		if place := b.places[i]; place >= 0 {
			r := &b.requests[place]
			q.Err = g.enforced(ctx, q.Ask.Times, q.Verdict, r.Granted, r.Err)
		}
	}
	g.followTogether(ctx, b, questions)
	g.countAll(ctx, questions)
}

// prepare makes the claims of a question.
func (b *batch) prepare(g *Gate, set *rules.Set, q *Question) {
	v := q.Verdict
	v.start(g, q.Request, q.Ask.Times)
	var done bool
	if done, q.Err = v.prepare(set, q.Request, &q.Ask); !done {
		v.follow(q.Request, &q.Ask)
	}
	if done || v.enforced == 0 {
		b.places = append(b.places, -1)
		if !done {
			v.Granted = q.Ask.Times
		}
		return
	}
	b.places = append(b.places, len(b.requests))
	b.add(v, 0, v.enforced, q.Ask.Times)
}

// followTogether decides the followers whose result counts.
func (g *Gate) followTogether(ctx context.Context, b *batch, questions []Question) {
	clear(b.requests)
	b.requests = b.requests[:0]
	for i := range questions {
		q := &questions[i]
		v := q.Verdict
		for j := range v.followers {
			f := &v.followers[j]
			if f.err = v.Err; q.Err != nil || f.err != nil || f.from == f.to || !v.keeps(f, &q.Ask) {
				continue
			}
			b.add(v, f.from, f.to, q.Ask.Times)
			f.request = len(b.requests)
		}
	}
	b.send(ctx, g)
	for i := range questions {
		q := &questions[i]
		if q.Err != nil {
			continue
		}
		b.answer(q.Verdict)
		g.recordFollowers(&q.Ask, q.Verdict)
	}
}

// answer copies the store's answers to the followers.
func (b *batch) answer(v *Verdict) {
	for i := range v.followers {
		if f := &v.followers[i]; f.request > 0 {
			r := &b.requests[f.request-1]
			f.granted, f.err = r.Granted, r.Err
		}
	}
}

func (b *batch) send(ctx context.Context, g *Gate) {
	if len(b.requests) > 0 {
		g.batcher.DecideBatch(ctx, b.requests)
	}
}

func (b *batch) empty() {
	clear(b.requests)
	clear(b.back)
	b.requests, b.places, b.back = b.requests[:0], b.places[:0], b.back[:0]
}

// add appends a request with the claims from to to of a verdict.
func (b *batch) add(v *Verdict, from, to int, times int64) *weir.Request {
	decisions := v.room(len(v.claims))
	b.requests = append(b.requests, weir.Request{Claims: v.claims[from:to:to], Times: times,
		Decisions: decisions[from:to:to]})
	return &b.requests[len(b.requests)-1]
}

// giveBack refunds charges of followers whose request did not pass. An error is dropped: followers limit no
// request.
func (g *Gate) giveBack(ctx context.Context, charges []charge) {
	if len(charges) == 0 {
		return
	}
	ctx, cancel := detached(ctx, countTimeout)
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

// sum adds a claim to a list that has one claim for each state.
func sum(claims []weir.Claim, c weir.Claim) []weir.Claim {
	for i := range claims {
		if claims[i].Same(&c) {
			claims[i].Cost = min(claims[i].Cost+c.Cost, weir.MaxUnits)
			return claims
		}
	}
	return append(claims, c)
}
