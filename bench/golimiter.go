package main

import (
	"context"

	"github.com/sethvargo/go-limiter/memorystore"
)

// goLimiterRow is sethvargo/go-limiter's memorystore, with its defaults.
func goLimiterRow() row {
	return row{name: "go-limiter, memorystore", refuses: true, open: func(q Quota) (Peer, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.Burst), Interval: window})
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		ask := func(key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		}
		return shared(ask, func() { store.Close(ctx) }), nil
	}}
}
