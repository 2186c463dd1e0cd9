package main

import (
	"sync"
	"time"

	"github.com/zeromicro/go-zero/core/limit"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

// goZeroRows are go-zero's two limits, with its own Redis client and breaker.
func goZeroRows(s *server) []row {
	return []row{
		{name: "go-zero PeriodLimit", open: func(q Quota) (Peer, error) {
			client, err := goZeroClient(s)
			if err != nil {
				return nil, err
			}
			limiter := limit.NewPeriodLimit(int(window/time.Second), int(q.Burst), client, "period:")
			return shared(func(key string) (bool, error) {
				state, err := limiter.Take(key)
				return state == limit.Allowed || state == limit.HitQuota, err
			}, nil), nil
		}},
		{name: "go-zero TokenLimiter", slack: 1, open: func(q Quota) (Peer, error) {
			client, err := goZeroClient(s)
			if err != nil {
				return nil, err
			}
			return shared(goZeroTokens(client, q), nil), nil
		}},
	}
}

// goZeroTokens keeps a TokenLimiter a key, which is what go-zero offers. It refills once a
// second at the slowest. If Redis fails it falls back to the process, and does not say so.
func goZeroTokens(client *redis.Redis, q Quota) Asker {
	var limiters sync.Map
	return func(key string) (bool, error) {
		limiter, ok := limiters.Load(key)
		if !ok {
			limiter, _ = limiters.LoadOrStore(key, limit.NewTokenLimiter(1, int(q.Burst), client, key))
		}
		return limiter.(*limit.TokenLimiter).Allow(), nil
	}
}

func goZeroClient(s *server) (*redis.Redis, error) {
	options, err := s.options()
	if err != nil {
		return nil, err
	}
	return redis.NewRedis(redis.RedisConf{Host: options.Addr, User: options.Username, Pass: options.Password, Type: redis.NodeType})
}

// quiet keeps go-zero's log of its own statistics out of the output.
func quiet() { logx.Disable() }
