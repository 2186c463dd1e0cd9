package main

import (
	"context"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// throttledRow is throttled's GCRA on its memory store, without a ceiling of keys (with
// one it is an LRU under one lock). It answers with an error after ten lost races.
func throttledRow() row {
	return row{name: "throttled GCRA, memstore", refuses: true, open: func(q Quota) (Peer, error) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate: throttled.PerDuration(1, q.Every), MaxBurst: int(q.Burst) - 1,
		})
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		return shared(func(key string) (bool, error) {
			limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}, nil), nil
	}}
}
