package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
)

const redisRateName = "redis_rate"

// redisRateRow is redis_rate on go-redis with its defaults.
func redisRateRow(s *server) row {
	return row{name: redisRateName, refuses: true, open: func(q Quota) (Peer, error) {
		client, err := s.goRedis()
		if err != nil {
			return nil, err
		}
		return shared(redisRate(redis_rate.NewLimiter(client), q), func() { client.Close() }), nil
	}}
}

func redisRate(limiter *redis_rate.Limiter, q Quota) Asker {
	limit := redis_rate.Limit{Rate: 1, Burst: int(q.Burst), Period: q.Every}
	ctx := context.Background()
	return func(key string) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		return err == nil && result.Allowed > 0, err
	}
}

// redisRatePipelinedRow is redis_rate on what go-redis calls experimental: pipelines made
// of the calls of many goroutines.
func redisRatePipelinedRow(s *server) row {
	return row{name: "redis_rate on go-redis AutoPipeline", refuses: true, open: func(q Quota) (Peer, error) {
		client, err := s.goRedis()
		if err != nil {
			return nil, err
		}
		pipeliner, err := client.AutoPipeline()
		if err != nil {
			client.Close()
			return nil, err
		}
		return shared(redisRate(redis_rate.NewLimiter(pipeliner), q), func() { pipeliner.Close(); client.Close() }), nil
	}}
}
