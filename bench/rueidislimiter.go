package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
)

// rueidisLimiterRow is rueidislimiter: a counter and its end in two keys, the second of
// which its script names itself; by the caller's clock.
func rueidisLimiterRow(s *server) row {
	return row{name: "rueidislimiter", refuses: true, open: func(q Quota) (Peer, error) {
		client, err := rueidisClient(s)
		if err != nil {
			return nil, err
		}
		limiter, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
			ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return client, nil },
			Limit:         int(q.Burst),
			Window:        window,
		})
		if err != nil {
			client.Close()
			return nil, err
		}
		ctx := context.Background()
		ask := func(key string) (bool, error) {
			result, err := limiter.Allow(ctx, key)
			return result.Allowed, err
		}
		return shared(ask, client.Close), nil
	}}
}

func rueidisClient(s *server) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(s.url)
	if err != nil {
		return nil, err
	}
	option.DisableCache = true
	return rueidis.NewClient(option)
}
