package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// batches checks DecideBatch of a store that is a weir.Batcher.
func batches(t *testing.T, s Subject) {
	b := open(t, s)
	if _, ok := b.Store.(weir.Batcher); !ok {
		return
	}
	for _, kind := range kinds {
		t.Run("equals the model/"+kind, func(t *testing.T) { check(t, b, schedules(kind, 24), batchesEqualModel) })
	}
	t.Run("several keys apart equal the model",
		func(t *testing.T) { check(t, b, anyKind([]string{"several"}), batchesApartEqualModel) })
	t.Run("many", func(t *testing.T) { manyInABatch(t, b) })
	t.Run("bad input", func(t *testing.T) { badInBatch(t, b) })
	t.Run("all that a key has", func(t *testing.T) { batchesShareAKey(t, b) })
	t.Run("closed", func(t *testing.T) { closedBatch(t, open(t, s)) })
	t.Run("foreign state", func(t *testing.T) { foreignInBatch(t, b) })
	t.Run("linearizable", func(t *testing.T) {
		eachSet(t, func(t *testing.T, specs []weir.Spec,
			random *rand.Rand) {
			batchesAreLinearizable(t, b, specs, random)
		})
	})
}

// batch decides requests on a store. The store must overwrite the results of an earlier use.
func batch(store weir.Store, requests []weir.Request) {
	for i := range requests {
		requests[i].Granted, requests[i].Err = -7, errors.New("of an earlier use")
	}
	store.(weir.Batcher).DecideBatch(context.Background(), requests)
}

// request asks times for claims, with a decision for each.
func request(times int64, claims ...weir.Claim) weir.Request {
	return weir.Request{Claims: claims, Times: times,
		Decisions: make([]weir.Decision, int64(len(claims))*max(times, 1))}
}

func requestText(r *weir.Request) string {
	return fmt.Sprintf("%d × [%s] error %v, %v", r.Times, claimsText(r.Claims), r.Err,
		outcome{granted: r.Granted, decisions: r.Decisions})
}

func requestsText(requests []weir.Request) (text string) {
	for i := range requests {
		text += "\n  " + requestText(&requests[i])
	}
	return text
}

// explains reports whether the model gives the same answers when the requests are decided one
// after the other, and returns the model after them. Requests that share a key are decided in
// their order; the order of others does not matter.
func (m *modelStore) explains(requests []weir.Request) (after *modelStore, ok bool) {
	after = m.clone(m.clock)
	for i := range requests {
		if !after.agrees(&requests[i]) {
			return nil, false
		}
	}
	return after, true
}

// agrees decides a request once more and compares the answers.
func (m *modelStore) agrees(r *weir.Request) bool {
	again := *r
	again.Decisions = slices.Clone(r.Decisions)
	m.batched(&again)
	return again.Err == nil && r.Err == nil && again.Granted == r.Granted && sameDecisions(again.Decisions, r.Decisions)
}

// batchesEqualModel asks in batches: of the schedule's keys, of others, and often of the
// schedule's keys a second time, at other costs.
func batchesEqualModel(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	b.actor(&s).batchesEqualModel(t, s, b.actor(&s), true)
}

// batchesApartEqualModel uses keys that may lie in different slots of a Redis Cluster: see
// apartEqualsModel. No key is used twice in a batch, because the second use would be another caller.
func batchesApartEqualModel(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a, other := b.actor(&s), b.actor(&s)
	a.apart(&s)
	other.apart(&s)
	a.batchesEqualModel(t, s, other, false)
}

func (a *actor) batchesEqualModel(t TB, s schedule, other *actor, twice bool) {
	t.Helper()
	model := newModel(a.b.clock.read)
	other.others = 1
	for i := range s.steps {
		step := &s.steps[i]
		a.move(step)
		store := a.b.Store
		if step.peer {
			store = a.b.peer
		}
		if step.op != "take" && step.op != "peek" {
			a.alike(t, store, model, step)
			continue
		}
		requests := []weir.Request{a.request(step), other.request(step)}
		if twice && i%2 == 1 {
			requests = append(requests, a.request(&s.steps[i-1]))
		}
		batch(store, requests)
		after, ok := model.explains(requests)
		if !ok {
			t.Fatalf("step %d at %d: no order explains this batch:%s\nin the order of the batch it is%s", i,
				a.b.clock.read(), requestsText(requests), requestsText(model.inOrder(requests)))
		}
		model = after
		a.note(step, outcome{requests[0].Granted, false, lastOf(&requests[0])})
	}
}

// inOrder is the model's answers.
func (m *modelStore) inOrder(requests []weir.Request) []weir.Request {
	again := slices.Clone(requests)
	for i := range again {
		again[i].Decisions = slices.Clone(again[i].Decisions)
	}
	batch(m.clone(m.clock), again)
	return again
}

// alike plays a step on both, and their answers must agree.
func (a *actor) alike(t TB, store weir.Store, model *modelStore, s *step) {
	t.Helper()
	got, err := a.play(store, s)
	want, wrong := a.play(model, s)
	if err != nil || wrong != nil || !got.equal(want) {
		t.Fatalf("%s of %s: error %v, the model's %v\n  got  %v\n  want %v", s.op, claimsText(a.claimsOf(s)), err,
			wrong, got, want)
	}
	a.note(s, got)
}

// request is a step that takes or peeks, as one of a batch.
func (a *actor) request(s *step) weir.Request {
	times := min(s.times, 12)
	if s.op != "take" {
		times = 0
	}
	r := request(times, a.claimsOf(s)...)
	if s.quiet {
		r.Decisions = nil
	}
	return r
}

// lastOf is the decisions of the last of a request's times.
func lastOf(r *weir.Request) []weir.Decision {
	if r.Decisions == nil {
		return nil
	}
	return r.Decisions[len(r.Decisions)-len(r.Claims):]
}

// likeMost are limits of few kinds, with different numbers.
var likeMost = []weir.Spec{weir.PerSecond(10), weir.GCRA(4, 1, time.Second), weir.PerSecond(10),
	weir.FixedWindow{Limit: 5, Window: time.Minute},
	weir.FixedWindow{Limit: 3, Window: time.Second, Anchor: weir.Epoch},
	weir.SlidingCounter{Limit: 7, Window: time.Minute, Slices: 6}}

// manyInABatch: a batch may be of any length, from none, and hold all kinds of limits.
func manyInABatch(t TB, b *fixture) {
	t.Helper()
	batch(b.Store, nil)
	manyEqualModel(t, b, 100, oneOfEach, func(i int) int64 { return 1 + int64(i%3) })
	manyEqualModel(t, b, 300, likeMost, func(int) int64 { return 1 })
}

func manyEqualModel(t TB, b *fixture, n int, specs []weir.Spec, cost func(i int) int64) {
	t.Helper()
	model, requests := newModel(b.clock.read), make([]weir.Request, n)
	for i := range requests {
		c, times := b.claim(specs[i%len(specs)]), int64(i%5)
		c.Cost = cost(i)
		if c.Lease != "" {
			times = min(times, 1)
		}
		requests[i] = request(times, c)
	}
	for round := range 4 {
		batch(b.Store, requests)
		for i := range requests {
			if !model.agrees(&requests[i]) {
				t.Fatalf("round %d: request %d of %d: %s", round, i, len(requests), requestText(&requests[i]))
			}
		}
		b.after(70 * time.Millisecond)
	}
}

// badInBatch: bad input in one request is its own error and does not affect the others.
func badInBatch(t TB, b *fixture) {
	t.Helper()
	log, held := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second}),
		b.claim(weir.Concurrency{Limit: 5, TTL: time.Second})
	negative, keyless, nameless, beside := log, log, held, b.claim(weir.SlidingLog{Limit: 5, Window: time.Second})
	negative.Cost, keyless.Key, nameless.Lease = -1, "", ""
	short, long := request(3, log), request(1, log)
	short.Decisions, long.Decisions = short.Decisions[:2], make([]weir.Decision, 2)
	for _, bad := range []struct {
		field   string
		request weir.Request
	}{
		{"cost", request(1, beside, negative)}, {"key", request(1, beside, keyless)},
		{"lease", request(1, beside, nameless)},
		{"times", weir.Request{Claims: []weir.Claim{log}, Times: -1}}, {"times", request(2, beside, held)},
		{"claims", request(1)}, {"claims", request(1, log, log)}, {"decisions", short}, {"decisions", long},
	} {
		before, after := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second}), b.claim(weir.PerSecond(5))
		requests := []weir.Request{request(1, before), bad.request, request(2, after)}
		batch(b.Store, requests)
		what := "a batch with " + bad.field
		namesField(t, what, requests[1].Err, bad.field)
		if requests[1].Granted != 0 {
			t.Fatalf("%s: granted %d with an error", what, requests[1].Granted)
		}
		for i, want := range map[int]int64{0: 1, 2: 2} {
			if r := &requests[i]; r.Err != nil || r.Granted != want || lastOf(r)[0].Remaining != 5-want {
				t.Fatalf("%s: the good request beside it: %s", what, requestText(r))
			}
		}
		for _, claim := range []weir.Claim{beside, log, held} {
			if _, d := b.decide(t, 0, claim); d[0].ResetAfter != 0 {
				t.Fatalf("%s charged %s: %+v", what, claim.Limit, d[0])
			}
		}
	}
}

// batchesShareAKey: requests of one key in one batch are granted all its units, and no more.
func batchesShareAKey(t TB, b *fixture) {
	t.Helper()
	b.each(func(c weir.Claim) {
		requests := make([]weir.Request, 25)
		var granted int64
		for i := range requests {
			c.Lease = leaseOf(c.Limit, fmt.Sprint("lease-", i))
			requests[i] = request(1, c)
		}
		batch(b.Store, requests)
		for i := range requests {
			if requests[i].Err != nil {
				t.Fatalf("%s: %v", c.Limit, requests[i].Err)
			}
			granted += requests[i].Granted
		}
		if most := c.Limit.Most(); granted != most {
			t.Fatalf("%s: %d of %d requests of one key in a batch were granted, want %d", c.Limit, granted,
				len(requests), most)
		}
	})
}

func closedBatch(t TB, b *fixture) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	requests := []weir.Request{request(1, b.claim(weir.PerSecond(1))), request(0, b.claim(weir.PerSecond(1)))}
	batch(b.Store, requests)
	for i := range requests {
		if r := &requests[i]; !errors.Is(r.Err, weir.ErrClosed) || r.Granted != 0 {
			t.Fatalf("after Close: %s, want weir.ErrClosed", requestText(r))
		}
	}
}

func foreignInBatch(t *testing.T, b *fixture) {
	for kind, plant := range b.Foreign {
		for _, spec := range oneOfEach {
			t.Run(kind+"/"+spec.String(), func(t *testing.T) { foreignSpoilsOne(t, b, spec, plant) })
		}
	}
}

// foreignSpoilsOne: foreign state is the error of its request alone: of a take, of one with too
// large a cost, and of a peek.
func foreignSpoilsOne(t TB, b *fixture, spec weir.Spec, plant func(weir.Claim) func() bool) {
	t.Helper()
	keys := b.keysTogether(5)
	claim := func(i int) weir.Claim {
		c := b.claim(spec)
		c.Key = keys[i]
		return c
	}
	dear, beside := claim(2), claim(3)
	dear.Cost = dear.Limit.Most() + 1
	beside.Limit = weir.MustLimit("beside", spec)
	unchanged := plant(claim(2))
	for _, foreign := range []weir.Request{request(1, claim(2)), request(1, dear), request(0, claim(2)),
		request(1, beside, claim(2))} {
		requests := []weir.Request{request(1, claim(0)), foreign, request(1, claim(1)), request(0, claim(4))}
		batch(b.Store, requests)
		if r := &requests[1]; !errors.Is(r.Err, weir.ErrForeignState) || r.Granted != 0 {
			t.Fatalf("on foreign state: %s, want weir.ErrForeignState", requestText(r))
		}
		for i, want := range map[int]int64{0: 1, 2: 1, 3: 0} {
			if r := &requests[i]; r.Err != nil || r.Granted != want {
				t.Fatalf("beside foreign state: %s", requestText(r))
			}
		}
		if !unchanged() {
			t.Fatalf("the foreign state was changed")
		}
	}
	if _, d := b.decide(t, 0, beside); d[0].ResetAfter != 0 {
		t.Fatalf("the claim beside the foreign one was charged: %+v", d[0])
	}
}

// batchesAreLinearizable: batches of some clients beside single calls of others.
func batchesAreLinearizable(t TB, b *fixture, specs []weir.Spec, random *rand.Rand) {
	t.Helper()
	b.clock.set(epoch)
	b.explained(t, b.history(b.claimsTogether(specs), random, 3, 1))
}
