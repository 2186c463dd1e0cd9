package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

const manySlots = 10

// holders are callers of a concurrency limit that release all that they get.
type holders struct {
	*weir.Limiter
	store *redisstore.Store
}

func newHolders(t *testing.T, store *redisstore.Store) *holders {
	t.Helper()
	l, err := weir.New(store, "slots", weir.Concurrency{Limit: manySlots, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &holders{l, store}
}

// hold acquires in a context and releases.
func (h *holders) hold(t *testing.T, ctx context.Context) {
	lease, err := h.Acquire(ctx, "partner")
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil && !errors.Is(err, weir.ErrUnavailable) && !errors.Is(err, weir.ErrRefused) {
		t.Error(err)
	}
}

// areFree checks that no slot is held once the callers have gone.
func (h *holders) areFree(t *testing.T) {
	t.Helper()
	redistest.Await(t, "all slots to be free", func() bool {
		answer, err := h.Peek(t.Context(), "partner")
		return err == nil && answer.Remaining == manySlots
	})
	redistest.Await(t, "nothing to be left to release", func() bool {
		pending, _, lost := h.store.Releases()
		if lost > 0 {
			t.Fatalf("%d leases could not be released", lost)
		}
		return pending == 0
	})
}

// Callers whose deadline ends while the call is on its way hold nothing.
func TestCallersThatLeaveHoldNothing(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"short": 50 * time.Millisecond, "long": time.Second} {
		t.Run(name, func(t *testing.T) {
			h := newHolders(t, single(t).open(t, redisstore.WithTimeout(timeout)))
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 100 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
						h.hold(t, ctx)
						cancel()
					}
				})
			}
			all.Wait()
			h.areFree(t)
		})
	}
}

// Callers of a Redis that pauses hold nothing when it goes on, nor when it was killed and restarted with its data.
func TestCallersOfAPausedRedisHoldNothing(t *testing.T) {
	server := redistest.Start(t)
	h := newHolders(t, redis{url: server.URL()}.open(t))
	for round := range 3 {
		before, err := h.Acquire(t.Context(), "partner")
		for err != nil { // a busy machine
			before, err = h.Acquire(t.Context(), "partner")
		}
		server.Stop()
		var all sync.WaitGroup
		for range manySlots {
			all.Go(func() { h.hold(t, t.Context()) })
		}
		all.Wait()
		if err := before.Release(t.Context()); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("round %d: the release from a paused Redis: %v", round, err)
		}
		server.Cont()
		h.areFree(t)
	}
}

// In a Cluster the leases of an acquire over several slots are released in each.
func TestCallersOfAPausedMasterHoldNothing(t *testing.T) {
	cluster := clustered(t)
	store := cluster.open(t)
	limits := []*weir.Limit{
		weir.MustLimit("slots", weir.Concurrency{Limit: manySlots, TTL: time.Hour}),
		weir.MustLimit("others", weir.Concurrency{Limit: manySlots, TTL: time.Hour}),
	}
	claims := []weir.Claim{{Key: "one", Limit: limits[0], Cost: 1}, {Key: "two", Limit: limits[1], Cost: 1}}
	if cluster.owner(redisstore.KeyOf(store, &claims[0])) == cluster.owner(redisstore.KeyOf(store, &claims[1])) {
		t.Fatal("both keys are on one master")
	}
	cluster.owner(redisstore.KeyOf(store, &claims[0])).Stop()
	for range manySlots {
		mine := []weir.Claim{claims[0], claims[1]}
		mine[0].Lease, mine[1].Lease = weir.NewLeaseID(), weir.NewLeaseID()
		if _, err := store.Decide(t.Context(), mine, 1, nil); !errors.Is(err, weir.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	cluster.owner(redisstore.KeyOf(store, &claims[0])).Cont()
	redistest.Await(t, "all slots to be free", func() bool {
		decisions := make([]weir.Decision, 2)
		_, err := store.Decide(t.Context(), claims, 0, decisions)
		pending, _, _ := store.Releases()
		return err == nil && pending == 0 && decisions[0].Remaining == manySlots && decisions[1].Remaining == manySlots
	})
}
