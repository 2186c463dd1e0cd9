package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirproject/weir"
)

const (
	clients   = 4
	callsEach = 6

	searchTime = 20 * time.Second // a search needs milliseconds
)

// linearizable lets several clients call concurrently. Their answers must equal the model's for
// some order of the calls, in which a call that began after another ended comes later.
func linearizable(t *testing.T, s Subject) {
	b := open(t, s)
	t.Run("as many keys as a decision may have", func(t *testing.T) { chargedTogether(t, b) })
	eachSet(t, func(t *testing.T, specs []weir.Spec, random *rand.Rand) { isLinearizable(t, b, specs, random) })
}

// eachSet runs a check of histories for limits alone and together.
func eachSet(t *testing.T, check func(t *testing.T, specs []weir.Spec, random *rand.Rand)) {
	sets := [][]weir.Spec{
		{oneOfEach[0], oneOfEach[7], oneOfEach[4]},
		{oneOfEach[2], oneOfEach[8], oneOfEach[10], oneOfEach[6]},
		{oneOfEach[3], oneOfEach[9], oneOfEach[5]},
	}
	for _, spec := range oneOfEach {
		sets = append(sets, []weir.Spec{spec})
	}
	for seed, specs := range sets {
		t.Run(fmt.Sprint(specs), func(t *testing.T) {
			for n := range rounds(histories) {
				check(t, specs, rand.New(rand.NewPCG(uint64(seed), uint64(n))))
			}
		})
	}
}

// chargedTogether: keys that are only charged together are never seen with different counts,
// neither in a peek nor in a refusal. Many keys make a fault more likely to show.
func chargedTogether(t TB, b *fixture) {
	t.Helper()
	limits := []*weir.Limit{weir.MustLimit("together-log", weir.SlidingLog{Limit: 3, Window: time.Hour}),
		weir.MustLimit("together-window", weir.FixedWindow{Limit: 3, Window: time.Hour})}
	for range rounds(200) {
		claims := make([]weir.Claim, weir.MaxClaims)
		for i, key := range b.keysTogether(len(claims)) {
			claims[i] = weir.Claim{Key: key, Limit: limits[i%2], Cost: 1}
		}
		errs := make([]error, clients)
		var done sync.WaitGroup
		for client := range clients {
			done.Go(func() { errs[client] = b.seesAllOrNone(claims, int64(client%2)) })
		}
		done.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

func (b *fixture) seesAllOrNone(claims []weir.Claim, times int64) error {
	decisions := make([]weir.Decision, len(claims))
	for range callsEach {
		_, err := b.Decide(context.Background(), claims, times, decisions)
		if err != nil {
			return err
		}
		for i, d := range decisions {
			if d.Remaining != decisions[0].Remaining {
				return fmt.Errorf("of %d keys that are charged together %d remain of key 0 and %d of key %d",
					len(claims), decisions[0].Remaining, d.Remaining, i)
			}
		}
	}
	return nil
}

// A call is one operation of a client, an answer its result.
type call struct {
	step   step
	claims []weir.Claim
	taken  weir.Instant // of a refund
}

type answer struct {
	outcome
	err error
}

func isLinearizable(t TB, b *fixture, specs []weir.Spec, random *rand.Rand) {
	t.Helper()
	b.clock.set(epoch)
	b.explained(t, b.history(b.claimsTogether(specs), random, 1))
}

// claimsTogether lie in one slot of a Redis Cluster: only there are several keys atomic.
func (b *fixture) claimsTogether(specs []weir.Spec) []weir.Claim {
	claims := make([]weir.Claim, len(specs))
	for i, key := range b.keysTogether(len(specs)) {
		claims[i] = weir.Claim{Key: key, Limit: weir.MustLimit(fmt.Sprint("limit-", i), specs[i])}
	}
	return claims
}

// explained fails if no order of the calls explains their answers. On a busy machine all calls may overlap, so that
// the search does not end in time: then nothing is known of this history.
func (b *fixture) explained(t TB, history []porcupine.Operation) {
	t.Helper()
	for _, op := range history {
		if err := op.Output.(answer).err; err != nil {
			t.Fatalf("%v: %v", op.Input, err)
		}
	}
	if porcupine.CheckOperationsTimeout(sequential(), history, searchTime) == porcupine.Illegal {
		t.Fatalf("no order of these calls explains their answers:%s", historyText(history))
	}
}

func historyText(history []porcupine.Operation) (text string) {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range history {
		text += fmt.Sprintf("\nclient %d, %d to %d ns: %v\n  %v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return text
}

func (c call) String() string {
	return fmt.Sprintf("%s %d × [%s]", c.step.op, c.step.times, claimsText(c.claims))
}

// history is the calls of the clients and their answers. A client that makes several calls at
// once makes a batch. Before a call the clock may advance.
func (b *fixture) history(claims []weir.Claim, random *rand.Rand, atOnce ...int) (history []porcupine.Operation) {
	var mu sync.Mutex
	var clientsDone sync.WaitGroup
	start, ready := time.Now(), make(chan struct{})
	for client := range clients {
		calls, n := make([]call, callsEach), atOnce[client%len(atOnce)]
		for i := range calls {
			calls[i] = drawCall(claims, client, random)
			if n > 1 {
				calls[i].step.op = "batch"
			}
		}
		clientsDone.Go(func() {
			<-ready
			for group := range slices.Chunk(calls, n) {
				b.clock.now.Add(group[0].step.by)
				began := time.Since(start).Nanoseconds()
				answers := answersOf(b.Store, group)
				ended := time.Since(start).Nanoseconds()
				mu.Lock()
				for i, c := range group {
					history = append(history,
						porcupine.Operation{ClientId: client, Input: c, Call: began, Output: answers[i], Return: ended})
				}
				mu.Unlock()
			}
		})
	}
	close(ready)
	clientsDone.Wait()
	return history
}

// answersOf makes one call, or a batch of several.
func answersOf(store weir.Store, calls []call) []answer {
	if calls[0].step.op != "batch" {
		return []answer{calls[0].on(store)}
	}
	requests := make([]weir.Request, len(calls))
	for i, c := range calls {
		requests[i] = request(c.step.times, c.claims...)
	}
	batch(store, requests)
	answers := make([]answer, len(calls))
	for i := range requests {
		r := &requests[i]
		answers[i] = answer{outcome{granted: r.Granted, decisions: r.Decisions}, r.Err}
	}
	return answers
}

func drawCall(claims []weir.Claim, client int, random *rand.Rand) call {
	ops := []string{"take", "take", "take", "take", "take", "charge", "refund", "peek"}
	c := call{step: step{op: ops[random.IntN(len(ops))], times: 1 + random.Int64N(3)}, taken: epoch}
	c.claims = append(c.claims, claims...)
	if random.IntN(3) == 0 {
		c.step.by = random.Int64N(200_000)
	}
	for i := range c.claims {
		claim := &c.claims[i]
		claim.Cost = 1 + random.Int64N(4)
		if c.step.op == "refund" {
			claim.Delay = time.Duration(random.Int64N(2) * random.Int64N(2_000_000) * 1000)
		}
		if claim.Limit.Whole() != nil {
			claim.Member = member(client)
		}
		if claim.Limit.Leases() {
			claim.Lease = fmt.Sprint(client, random.IntN(3))
			claim.Renew = c.step.op == "take" && random.IntN(4) == 0
			c.step.times = 1
		}
	}
	return c
}

// on makes the call on a store.
func (c call) on(store weir.Store) answer {
	if c.step.op == "batch" {
		return answersOf(store, []call{c})[0]
	}
	a := answer{outcome: outcome{decisions: make([]weir.Decision, len(c.claims))}}
	ctx := context.Background()
	switch c.step.op {
	case "take":
		a.granted, a.err = store.Decide(ctx, c.claims, c.step.times, a.decisions)
	case "peek":
		a.granted, a.err = store.Decide(ctx, c.claims, 0, a.decisions)
	case "charge":
		a.err = store.Charge(ctx, c.claims, a.decisions)
	case "refund":
		a.err = store.Refund(ctx, c.claims, c.taken, a.decisions)
		if a.gone = errors.Is(a.err, weir.ErrLeaseGone); a.gone {
			a.err = nil
		}
	}
	return a
}

// sequential is the model as porcupine wants it: a function of the state. The time of a call is
// that of its answer, because clients cannot know when the store read its clock.
func sequential() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return newModel(nil) },
		Step: func(state, input, output any) (bool, any) {
			got := output.(answer)
			next := state.(*modelStore).clone(func() weir.Instant { return got.decisions[0].At })
			asked := input.(call)
			want := asked.on(next)
			return want.err == nil && got.outcome.equal(want.outcome), next
		},
		Equal: func(a, b any) bool { return a.(*modelStore).text() == b.(*modelStore).text() },
	}
}
