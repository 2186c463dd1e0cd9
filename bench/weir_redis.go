package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/contrib/goredisconn"
	"github.com/weirproject/weir/redisstore"
)

const (
	weirRedisName   = "**weir** (rueidis), token bucket"
	weirGoRedisName = "weir through the caller's go-redis, token bucket"
)

// patience is the timeout of each call: as costly as the default of 50 ms, but a machine
// that stalls while other rows are measured is no failure of this one.
const patience = 5 * time.Second

func (s *server) weirStore(options ...redisstore.Option) (*redisstore.Store, error) {
	return redisstore.Open(context.Background(), s.url, append(options, redisstore.WithTimeout(patience))...)
}

func weirRedisRow(s *server) row {
	return row{name: weirRedisName, refuses: true, open: func(q Quota) (Peer, error) {
		store, err := s.weirStore()
		if err != nil {
			return nil, err
		}
		return limiterPeer(store, q, bucketOf)
	}}
}

// weirGoRedisRow has a prefix as long as the default, to share no keys with weirRedisRow.
func weirGoRedisRow(s *server) row {
	return row{name: weirGoRedisName, refuses: true, open: func(q Quota) (Peer, error) {
		options, err := s.options()
		if err != nil {
			return nil, err
		}
		options.MaxRetries, options.ContextTimeoutEnabled = -1, true
		client := redis.NewClient(options)
		store, err := overGoRedis(client)
		if err != nil {
			client.Close()
			return nil, err
		}
		limiter, err := limiterPeer(store, q, bucketOf)
		if err != nil {
			return nil, err
		}
		return peer{limiter.Asker, func() { limiter.Close(); client.Close() }}, nil
	}}
}

func overGoRedis(client redis.UniversalClient) (weir.Store, error) {
	conn, err := goredisconn.New(client)
	if err != nil {
		return nil, err
	}
	return redisstore.New(conn, redisstore.WithPrefix("go-r:"), redisstore.WithTimeout(patience))
}
