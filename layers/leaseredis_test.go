//go:build unix

package layers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// Three nodes on one Redis use one key until it is exhausted: the bound holds, and unused units come back.
func TestThreeNodesOnRedis(t *testing.T) {
	server := redistest.Start(t)
	for i, spec := range []weir.Spec{
		weir.FixedWindow{Limit: 200_000, Window: time.Hour},
		weir.SlidingLog{Limit: 200_000, Window: time.Hour},
		weir.SlidingCounter{Limit: 200_000, Window: time.Hour, Slices: 6},
		weir.TokenBucket{Capacity: 200_000, Refill: 1, Period: time.Hour},
		weir.TokenBucket{Capacity: 100_000, Refill: 200_000, Period: leaseSecond},
	} {
		t.Run(spec.String(), func(t *testing.T) {
			limit := weir.MustLimit(fmt.Sprint("hot-", i), spec)
			terms := leaseTerms{Share: 0.1}
			began := time.Now()
			passed, taken := hammerRedis(t, server.URL(), limit, terms)
			t.Logf("%d passed in %v, %d leased", passed, time.Since(began), taken)
			bound := leaseBoundOf(limit, terms, 3)
			if most, ok := bound.Most(time.Since(began)); !ok || passed > most {
				t.Errorf("%d passed in %v: %s", passed, time.Since(began), bound)
			}
			if taken < passed/4 {
				t.Errorf("of %d requests %d were leased", passed, taken)
			}
			if limit.Period() < time.Hour.Microseconds() {
				return
			}
			d := make([]weir.Decision, 1)
			if _, err := leaseOnRedis(t, server.URL()).Decide(t.Context(), leaseOne(limit), 0, d); err != nil ||
				d[0].Remaining != 200_000-passed {
				t.Errorf("%d left after %d of 200000 (%v)", d[0].Remaining, passed, err)
			}
		})
	}
}

// leaseOnRedis is a patient store: a busy machine stands still for seconds.
func leaseOnRedis(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(context.Background(), url, redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// hammerRedis lets three nodes ask until they are refused, or have asked often enough: the
// first ends in the middle of it, with a lease in hand.
func hammerRedis(t *testing.T, url string, limit *weir.Limit, terms leaseTerms) (passed, taken int64) {
	var total atomic.Int64
	var callers sync.WaitGroup
	nodes := make([]*leaser, 3)
	for i := range nodes {
		nodes[i] = newLeaserWith(leaseOnRedis(t, url), always(terms), withTimeout(2*time.Minute))
		asks := limiter(t, nodes[i], limit)
		for range 4 {
			callers.Go(func() { total.Add(untilRefused(t, asks, []int{3000, 75_000, 75_000}[i])) })
		}
	}
	callers.Wait()
	for _, n := range nodes {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		taken += n.Stats().Taken
	}
	if nodes[0].Stats().Returned == 0 {
		t.Error("the node that ended early held nothing")
	}
	return total.Load(), taken
}

func untilRefused(t *testing.T, asks *weir.Limiter, most int) (passed int64) {
	for range most {
		answer, err := asks.Allow(t.Context(), "hot")
		if err != nil {
			t.Error(err)
			return passed
		}
		if !answer.Allowed {
			return passed
		}
		passed++
	}
	return passed
}

// A layer without terms is exact.
func TestWithoutTermsIsExact(t *testing.T) {
	subject := func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		var options []memstore.Option
		if clock != nil {
			options = append(options, memstore.WithClock(clock))
		}
		s := newLeaser(memstore.New(options...), always(leaseTerms{}))
		return storetest.Handle{Store: s}
	}
	storetest.Run(t, subject)
	storetest.Vectors(t, subject)
}
