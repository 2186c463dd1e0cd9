package storetest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/weirproject/weir"
)

func (b *broken) DecideBatch(ctx context.Context, requests []weir.Request) {
	if b.batch != nil {
		b.batch(b.modelStore, requests)
		return
	}
	b.modelStore.DecideBatch(ctx, requests)
}

// batching is a store that answers batches wrongly, and all else rightly.
func batching(batch func(m *modelStore, requests []weir.Request)) Subject {
	return broken{batch: batch}.subject()
}

// edited changes the answer of each request that has decisions.
func edited(edit func(r *weir.Request, n int)) Subject {
	return batching(func(m *modelStore, requests []weir.Request) {
		m.DecideBatch(bg, requests)
		for i := range requests {
			if r := &requests[i]; r.Err == nil && r.Decisions != nil {
				edit(r, len(r.Claims))
			}
		}
	})
}

// tellsTheLast to all of times.
func tellsTheLast(r *weir.Request, n int) {
	copy(r.Decisions, r.Decisions[len(r.Decisions)-n:])
	repeat(r.Decisions, n, n)
}

// leavesTheRefused without decisions.
func leavesTheRefused(r *weir.Request, n int) {
	clear(r.Decisions[min(len(r.Decisions), int(max(1, r.Granted))*n):])
}

// sharesTheReset keeps each one's remaining, and says the last's reset-after.
func sharesTheReset(r *weir.Request, n int) {
	last := r.Decisions[len(r.Decisions)-n:]
	for i := range r.Decisions {
		r.Decisions[i].ResetAfter = last[i%n].ResetAfter
	}
}

func sharesTheDelay(r *weir.Request, n int) {
	last := r.Decisions[len(r.Decisions)-n:]
	for i := range r.Decisions {
		r.Decisions[i].Delay = last[i%n].Delay
	}
}

func sharesTheRetry(r *weir.Request, n int) {
	last := r.Decisions[len(r.Decisions)-n:]
	for i := range r.Decisions {
		r.Decisions[i].RetryAfter = last[i%n].RetryAfter
	}
}

// readsAllFirst decides all requests on the same state, and then charges.
func readsAllFirst(m *modelStore, requests []weir.Request) {
	before := m.snapshot()
	for i := range requests {
		r := &requests[i]
		asked := before.snapshot()
		asked.batched(r)
		runtime.Gosched()
		for range r.Granted {
			r.Err = m.Charge(bg, r.Claims, nil)
		}
	}
}

// stopsAtErrors gives all requests after a bad one its error.
func stopsAtErrors(m *modelStore, requests []weir.Request) {
	var failed error
	for i := range requests {
		r := &requests[i]
		if m.batched(r); failed != nil {
			r.Granted, r.Err = 0, failed
		}
		if r.Err != nil {
			failed = r.Err
		}
	}
}

// failsTogether fails all of a batch with a bad request, and has charged the others.
func failsTogether(m *modelStore, requests []weir.Request) {
	m.DecideBatch(bg, requests)
	for i := range requests {
		if err := requests[i].Err; err != nil {
			for j := range requests {
				requests[j].Granted, requests[j].Err = 0, err
			}
		}
	}
}

func keepsOldErrors(m *modelStore, requests []weir.Request) {
	for i := range requests {
		old := requests[i].Err
		m.batched(&requests[i])
		requests[i].Err = old
	}
}

func decidesSixtyFour(m *modelStore, requests []weir.Request) {
	m.DecideBatch(bg, requests[:min(64, len(requests))])
}

// mergesKeys decides the requests of one key by the claims of the first.
func mergesKeys(m *modelStore, requests []weir.Request) {
	first := make(map[string][]weir.Claim)
	for i := range requests {
		r := &requests[i]
		merged := *r
		if claims, again := first[r.Claims[0].Key]; again {
			merged.Claims = claims
		}
		first[r.Claims[0].Key] = merged.Claims
		m.batched(&merged)
		r.Granted, r.Err = merged.Granted, merged.Err
	}
}

func chargesBatchPeeks(m *modelStore, requests []weir.Request) {
	for i := range requests {
		r := &requests[i]
		m.batched(r)
		for j := range r.Claims {
			if r.Err == nil && r.Times == 0 && r.Claims[j].Lease == "" {
				m.Decide(bg, []weir.Claim{one(r.Claims[j])}, 1, nil)
			}
		}
	}
}

func batchCountsRefusals(m *modelStore, requests []weir.Request) {
	for i := range requests {
		r := &requests[i]
		m.batched(r)
		if r.Err == nil && r.Granted < r.Times {
			m.Charge(bg, r.Claims, nil)
		}
	}
}

// takesOneByOne lets others in between the times of a request.
func takesOneByOne(m *modelStore, requests []weir.Request) {
	for i := range requests {
		r, n := &requests[i], len(requests[i].Claims)
		all := *r
		if m.batched(&weir.Request{Claims: r.Claims, Decisions: r.Decisions[:n]}); r.Times == 0 {
			continue
		}
		all.Granted = 0
		for k := range int(r.Times) {
			granted, err := m.Decide(bg, r.Claims, 1, r.Decisions[k*n:][:n])
			all.Granted, all.Err = all.Granted+granted, err
			runtime.Gosched()
		}
		r.Granted, r.Err = all.Granted, all.Err
	}
}

func closesLate(m *modelStore, requests []weir.Request) {
	m.DecideBatch(bg, requests)
	for i := range requests {
		if requests[i].Err == weir.ErrClosed {
			requests[i].Err = nil
		}
	}
}

func drawnBatches(kinds []string) func(t TB, b *fixture) { return drawn(kinds, batchesEqualModel) }

func racedBatches(t TB, b *fixture) {
	for seed := range uint64(100) {
		batchesAreLinearizable(t, b, oneOfEach[:1], rand.New(rand.NewPCG(seed, seed)))
	}
}

// batchFindings are stores whose batches are wrong.
var batchFindings = []struct {
	name  string
	store Subject
	check func(t TB, b *fixture)
}{
	{"the last decision for all", edited(tellsTheLast), drawnBatches(kinds)},
	{"no decision for the refused", edited(leavesTheRefused), drawnBatches(kinds)},
	{"the last reset-after for all", edited(sharesTheReset), drawnBatches([]string{"continuous bucket"})},
	{"the last reset-after for all: step", edited(sharesTheReset), drawnBatches([]string{"step bucket"})},
	{"the last delay for all", edited(sharesTheDelay), drawnBatches([]string{"continuous bucket"})},
	{"the last retry-after for all", edited(sharesTheRetry), drawnBatches([]string{"sliding log"})},
	{"reads all first", batching(readsAllFirst), drawnBatches(kinds)},
	{"reads all first: one key", batching(readsAllFirst), batchesShareAKey},
	{"reads all first: others", batching(readsAllFirst), racedBatches},
	{"one by one", batching(takesOneByOne), racedBatches},
	{"peeks charge", batching(chargesBatchPeeks), drawnBatches(kinds)},
	{"refusals charge", batching(batchCountsRefusals), drawnBatches(kinds)},
	{"refusals charge: apart", batching(batchCountsRefusals), drawn([]string{"several"}, batchesApartEqualModel)},
	{"claims of another request", batching(mergesKeys), drawnBatches([]string{"continuous bucket"})},
	{"64 at most", batching(decidesSixtyFour), manyInABatch},
	{"errors of an earlier use", batching(keepsOldErrors), manyInABatch},
	{"an error for those after it", batching(stopsAtErrors), badInBatch},
	{"an error for all", batching(failsTogether), badInBatch},
	{"decides when closed", batching(closesLate), closedBatch},
}

func TestTheSuiteCanFailBatches(t *testing.T) {
	for _, test := range batchFindings {
		t.Run(test.name, func(t *testing.T) {
			b := open(t, test.store)
			said := failure(func(t TB) { test.check(t, b) })
			if said == "" {
				t.Fatal("the check found nothing wrong")
			}
			t.Log(said)
		})
	}
}

func (p *planted) DecideBatch(_ context.Context, requests []weir.Request) {
	var foreign error
	for i := range requests {
		r := &requests[i]
		if r.Granted, r.Err = 0, p.refuses(r.Claims); r.Err == nil {
			p.modelStore.batched(r)
		} else {
			foreign = r.Err
		}
	}
	for i := range requests {
		if p.spoilsAll && foreign != nil {
			requests[i].Err = foreign
		}
	}
}

func TestForeignStateInBatchesIsChecked(t *testing.T) {
	for _, test := range []struct {
		planted
		fails bool
	}{{planted{}, false}, {planted{overwrites: true}, true}, {planted{spoilsAll: true}, true}} {
		p := &test.planted
		said := failure(func(tb TB) {
			p.check(t, func(b *fixture, plant plant) { foreignSpoilsOne(tb, b, weir.PerSecond(5), plant) })
		})
		if (said != "") != test.fails {
			t.Errorf("a store that overwrites (%v) or spoils all (%v): the check said %q", p.overwrites, p.spoilsAll,
				said)
		}
	}
}
