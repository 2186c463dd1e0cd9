package main

import (
	"context"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

const (
	weirName      = "**weir** Limiter.Allow, token bucket"
	weirThreeName = "weir, three token buckets in one decision"
)

// weirMemoryRows are weir's limits on the embedded store.
func weirMemoryRows() []row {
	return []row{
		allowRow(weirName, bucketOf),
		decideRow("weir Store.Decide, token bucket", bucketOf),
		allowRow("weir, fixed_window", func(q Quota) weir.Spec {
			return weir.FixedWindow{Limit: q.Burst, Window: window}
		}),
		allowRow("weir, sliding_counter of 10", func(q Quota) weir.Spec {
			return weir.SlidingCounter{Limit: q.Burst, Window: window, Slices: 10}
		}),
		allowRow("weir, sliding_log (granted: 1e6/100us)", logOf),
		allowRow(weirThreeName, bucketOf, bucketOf, bucketOf),
	}
}

func bucketOf(q Quota) weir.Spec {
	return weir.TokenBucket{Capacity: q.Burst, Refill: 1, Period: q.Every}
}

// logOf keeps the log of the generous quota short: it remembers every grant.
func logOf(q Quota) weir.Spec {
	if q == generous {
		return weir.SlidingLog{Limit: 1_000_000, Window: 100 * time.Microsecond}
	}
	return weir.SlidingLog{Limit: q.Burst, Window: window}
}

// maxKeys is the ceiling of the stores: above all names of a run, under three limits.
const maxKeys = 4_000_000

func allowRow(name string, specs ...func(Quota) weir.Spec) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		store := memstore.New(memstore.WithMaxKeys(maxKeys))
		return limiterPeer(store, q, specs...)
	}}
}

// limiterPeer asks through the friendly face of a store, which it closes at the end.
func limiterPeer(store weir.Store, q Quota, specs ...func(Quota) weir.Spec) (Peer, error) {
	all := make([]weir.Spec, len(specs))
	for i, spec := range specs {
		all[i] = spec(q)
	}
	limiter, err := weir.New(store, "per-ip", all...)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	ask := func(key string) (bool, error) {
		answer, err := limiter.Allow(ctx, key)
		return answer.Allowed, err
	}
	return shared(ask, func() { store.Close() }), nil
}

// decideRow calls the store itself, with buffers of each goroutine.
func decideRow(name string, spec func(Quota) weir.Spec) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		limit, err := weir.NewLimit("per-ip", spec(q))
		if err != nil {
			return nil, err
		}
		store := memstore.New(memstore.WithMaxKeys(maxKeys))
		return peer{func() Asker { return decider(store, limit) }, func() { store.Close() }}, nil
	}}
}

func decider(store weir.Store, limit *weir.Limit) Asker {
	ctx := context.Background()
	claims := []weir.Claim{{Limit: limit, Cost: 1}}
	decisions := make([]weir.Decision, 1)
	return func(key string) (bool, error) {
		claims[0].Key = key
		granted, err := store.Decide(ctx, claims, 1, decisions)
		return granted > 0, err
	}
}
