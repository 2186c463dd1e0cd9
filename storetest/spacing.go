package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// Queues in which a cancelled caller frees the last place, for which another caller waits.
func queuesStayEven(t TB, b *fixture) {
	t.Helper()
	for _, spec := range []weir.TokenBucket{
		weir.LeakyQueue(10, time.Second, 50),
		weir.LeakyQueue(3, time.Second, 20),
		weir.LeakyQueue(1_000_003, time.Minute, 12),
		{Capacity: 1, Refill: 2, Period: time.Second, Overdraft: 30, Mode: weir.Step},
	} {
		for seed := range uint64(4) {
			q := &queue{b: b, random: rand.New(rand.NewPCG(seed, 0)), spec: spec}
			q.claim = b.claim(spec)
			if q.claim.Cost = 1; seed == 3 && spec.Mode == weir.Continuous {
				q.claim.Cost = 2
			}
			for range 150 {
				q.step(t)
			}
			q.isEven(t)
		}
	}
}

// A queue is a shaping bucket whose callers come and cancel at random, at equal cost.
type queue struct {
	b       *fixture
	random  *rand.Rand
	spec    weir.TokenBucket
	claim   weir.Claim
	waiting []grant
	acted   []int64 // the instants of those that stayed
}

// A grant waits in a queue until at + delay.
type grant struct {
	at    weir.Instant
	delay time.Duration
}

func (g grant) due() int64 { return int64(g.at) + g.delay.Microseconds() }

// step lets some time pass, and a caller come or, about as often, cancel.
func (q *queue) step(t TB) {
	t.Helper()
	q.b.clock.now.Add(q.random.Int64N(q.spec.Period.Microseconds() / q.spec.Refill))
	now := q.b.clock.now.Load()
	q.waiting = slices.DeleteFunc(q.waiting, func(g grant) bool {
		if g.due() <= now {
			q.acted = append(q.acted, g.due())
		}
		return g.due() <= now
	})
	if len(q.waiting) > 0 && q.random.IntN(5) < 2 {
		q.hangUp(t, q.random.IntN(len(q.waiting)))
		return
	}
	granted, d := q.b.decide(t, 1, q.claim)
	if granted > 0 {
		q.waiting = append(q.waiting, grant{d[0].At, d[0].Delay})
	}
}

func (q *queue) hangUp(t TB, i int) {
	t.Helper()
	c := q.claim
	c.Delay = q.waiting[i].delay
	if err := q.b.Refund(context.Background(), []weir.Claim{c}, q.waiting[i].at, nil); err != nil {
		t.Fatalf("Refund(%s): %v", claimsText([]weir.Claim{c}), err)
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// isEven: no k of the remaining callers leave sooner than k units refill, but for one microsecond
// of rounding; if the bucket steps, the units of a step leave together.
func (q *queue) isEven(t TB) {
	t.Helper()
	for _, g := range q.waiting {
		q.acted = append(q.acted, g.due())
	}
	slices.Sort(q.acted)
	for i, from := range q.acted {
		for k := range q.acted[i+1:] {
			units := int64(k+1) * q.claim.Cost
			if q.spec.Mode == weir.Step {
				units = units / q.spec.Refill * q.spec.Refill
			}
			least := units*q.spec.Period.Microseconds()/q.spec.Refill - 1
			if to := q.acted[i+1+k]; to-from < least {
				t.Fatalf("%s: %d callers of %d leave within %d µs (%d to %d), want %d at least", q.spec, k+2,
					q.claim.Cost, to-from, from, to, least)
			}
		}
	}
}
