package gate

import (
	"cmp"
	"context"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Question is one request of DecideBatch: the arguments of Decide, and its error.
type Question struct {
	Request *rules.Request // nil: only Ask.Claims are decided
	Ask     Ask
	Act     Act      // of DecideTogether; DecideBatch decides
	Verdict *Verdict // not shared between questions
	Err     error
}

// DecideBatch is Decide for each question. Where the store is a weir.Batcher, one call decides all of them, and one
// more their shadow rules and candidates. Questions that share a key under one limit are decided in order, others in
// any order. A question with Ask.Times above 1 takes separate calls.
func (g *Gate) DecideBatch(ctx context.Context, questions []Question) {
	began := g.began()
	ctx, done := g.budget.begin(ctx)
	defer done()
	for rest := questions; len(rest) > 0; {
		n := g.togetherWith(rest)
		g.decide(ctx, rest[:n])
		rest = rest[n:]
	}
	for i := range questions {
		g.conclude(ctx, questions[i].Verdict, questions[i].Err, began)
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

// decide decides one question, or several that one batch can decide.
func (g *Gate) decide(ctx context.Context, questions []Question) {
	if len(questions) == 1 {
		q := &questions[0]
		q.Err = g.decideOne(ctx, q.Request, &q.Ask, q.Verdict)
		return
	}
	set := g.set.Load()
	for i := range questions {
		q := &questions[i]
		q.Err = q.Verdict.begin(g, cmp.Or(q.Ask.Rules, set), q.Request, &q.Ask)
	}
	g.decideTogether(ctx, questions)
	g.count(ctx, questions)
}

// decideOne decides one request, as most calls do. It fills no Question, which would take a tenth of the time.
func (g *Gate) decideOne(ctx context.Context, r *rules.Request, ask *Ask, v *Verdict) error {
	set := ask.Rules
	if set == nil {
		set = g.set.Load()
	}
	err := v.begin(g, set, r, ask)
	switch {
	case len(v.followers) > 0 && g.batcher != nil && ask.Times <= 1:
		one := [...]Question{{Request: r, Ask: *ask, Verdict: v, Err: err}}
		g.decideTogether(ctx, one[:])
		err = one[0].Err
	case err == nil:
		err = g.decideInTurn(ctx, ask, v)
	}
	if err == nil && v.counts(ask.Times) {
		g.countAndBan(ctx, v.refusals(nil, ask.Times))
	}
	return err
}

// begin makes the claims of a request.
func (v *Verdict) begin(g *Gate, set *rules.Set, r *rules.Request, ask *Ask) error {
	v.reset(g)
	v.Times, v.settles = ask.Times, ask.Settles
	if r != nil && g.observed() {
		v.attributes, v.method, v.target, v.Client = r.Attributes, r.Method, r.Path, r.Client
	}
	r = v.locate(g, set, r)
	if places := set.Endpoints(); places != nil {
		places.Expire(g.now())
	}
	done, err := v.prepare(set, r, ask)
	if !done {
		v.follow(r, ask)
	}
	return err
}

// A batch holds the requests of one call of the store. Batches are pooled.
type batch struct{ requests []weir.Request }

// decideTogether decides questions of at most one time each in one call of the store. The followers of a single
// question join this call, before its outcome is known; if the outcome makes their charge void, it is refunded. The
// followers of several questions take a second call: until the refund, other questions would see the charge.
func (g *Gate) decideTogether(ctx context.Context, questions []Question) {
	b := g.batches.Get().(*batch)
	defer g.batches.Put(b)
	defer b.empty()
	joined := len(questions) == 1
	for i := range questions {
		q := &questions[i]
		if q.Verdict.enforced > 0 {
			b.add(q.Verdict, 0, q.Verdict.enforced, q.Ask.Times)
		}
		if joined {
			b.follow(q, q.Verdict.enforced > 0 && q.Ask.Times > 0, func(*follower) bool { return true })
		}
	}
	b.send(ctx, g)
	answers := b.requests
	for i := range questions {
		q := &questions[i]
		if q.Verdict.enforced > 0 {
			q.Err = g.enforced(ctx, q.Ask.Times, q.Verdict, answers[0].Granted, answers[0].Err)
			answers = answers[1:]
		}
	}
	if !joined {
		b.followLater(ctx, g, questions)
	}
	b.record(ctx, g, questions)
}

// record takes the store's answers to the followers.
func (b *batch) record(ctx context.Context, g *Gate, questions []Question) {
	for i := range questions {
		if q := &questions[i]; q.Err == nil {
			b.answer(ctx, g, q)
			g.decideDeferred(ctx, &q.Ask, q.Verdict)
			void := q.Verdict.void(&q.Ask)
			g.recordFollowers(&q.Ask, q.Verdict)
			g.giveBack(ctx, void)
		}
	}
}

// follow adds the followers of a question that asked is true for. If they wait, they matter only after a grant.
func (b *batch) follow(q *Question, wait bool, asked func(*follower) bool) {
	v := q.Verdict
	for i := range v.followers {
		f := &v.followers[i]
		if f.from < f.to && asked(f) {
			b.add(v, f.from, f.to, q.Ask.Times).Follows = wait
			f.request = len(b.requests)
		}
	}
}

// followLater decides the followers with a result that counts.
func (b *batch) followLater(ctx context.Context, g *Gate, questions []Question) {
	b.empty()
	for i := range questions {
		q := &questions[i]
		v := q.Verdict
		for j := range v.followers {
			v.followers[j].err = v.Err
		}
		if q.Err == nil && v.Err == nil {
			b.follow(q, false, func(f *follower) bool { return v.keeps(f, &q.Ask) })
		}
	}
	b.send(ctx, g)
}

// answer copies the store's answers to the followers.
func (b *batch) answer(ctx context.Context, g *Gate, q *Question) {
	v := q.Verdict
	for i := range v.followers {
		f := &v.followers[i]
		if f.request == 0 {
			continue
		}
		r := &b.requests[f.request-1]
		if f.granted, f.err = r.Granted, r.Err; v.keeps(f, &q.Ask) {
			g.followFull(ctx, v, f, q.Ask.Times)
		}
	}
}

// void are the charges of followers with a result that does not count, by their time.
func (v *Verdict) void(ask *Ask) (charges map[weir.Instant][]weir.Claim) {
	for i := range v.followers {
		if f := &v.followers[i]; f.err == nil && f.granted > 0 && !v.keeps(f, ask) {
			if charges == nil {
				charges = make(map[weir.Instant][]weir.Claim)
			}
			for j := f.from; j < f.to; j++ {
				at := v.decisions[j].At
				charges[at] = append(charges[at], v.claims[j])
			}
		}
	}
	return charges
}

// maxSent is the most requests that the store is sent at once. The requests of one call have no bound where they are
// decided apart: thousands at once would hold up the store for all others, and open its circuit breaker.
const maxSent = 256

func (b *batch) send(ctx context.Context, g *Gate) {
	for some := range slices.Chunk(b.requests, maxSent) {
		g.batcher.DecideBatch(ctx, some)
	}
}

func (b *batch) empty() {
	clear(b.requests)
	b.requests = b.requests[:0]
}

// add appends a request with the claims from to to of a verdict.
func (b *batch) add(v *Verdict, from, to int, times int64) *weir.Request {
	decisions := v.room(len(v.claims))
	b.requests = append(b.requests, weir.Request{Claims: v.claims[from:to:to], Times: times,
		Decisions: decisions[from:to:to]})
	return &b.requests[len(b.requests)-1]
}

// giveBack refunds charges. An error is dropped: followers limit no request.
func (g *Gate) giveBack(ctx context.Context, charges map[weir.Instant][]weir.Claim) {
	if len(charges) == 0 {
		return
	}
	ctx, cancel := g.detached(ctx)
	defer cancel()
	for at, claims := range charges {
		for some := range slices.Chunk(claims, weir.MaxClaims) {
			_ = g.store.Refund(ctx, some, at, nil)
		}
	}
}
