package main

import (
	"context"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// ululeRow is ulule/limiter on its memory store, with its defaults: fixed windows, swept
// every 30 seconds.
func ululeRow() row {
	return row{name: "ulule/limiter, memory", refuses: true, open: func(q Quota) (Peer, error) {
		instance := limiter.New(memory.NewStore(), limiter.Rate{Period: window, Limit: q.Burst})
		ctx := context.Background()
		return shared(func(key string) (bool, error) {
			answer, err := instance.Get(ctx, key)
			return !answer.Reached, err
		}, nil), nil
	}}
}
