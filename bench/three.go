package main

import (
	"context"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

const (
	threeTogetherName  = "weir, three token buckets in one call"
	threePipelinedName = "three EVALSHA of weir's one-limit script, pipelined"
	mixedTogetherName  = "weir, bucket + window + sliding counter in one call"
	mixedPipelinedName = "three EVALSHA of weir's one-limit scripts, pipelined"
	threeTripsName     = "weir, three token buckets in three calls"
)

// threeRows are three limits of one request: weir's one call beside its own one-limit
// scripts, asked apart.
func threeRows(s *server) []row {
	buckets := []func(Quota) weir.Spec{bucketOf, bucketOf, bucketOf}
	mixed := []func(Quota) weir.Spec{bucketOf, windowOf, counterOf}
	return []row{
		togetherRow(s, threeTogetherName, buckets),
		pipelinedRow(s, threePipelinedName, buckets),
		tripsRow(s, threeTripsName, buckets),
		togetherRow(s, mixedTogetherName, mixed),
		pipelinedRow(s, mixedPipelinedName, mixed),
	}
}

func windowOf(q Quota) weir.Spec { return weir.FixedWindow{Limit: q.Burst, Window: window} }

func counterOf(q Quota) weir.Spec {
	return weir.SlidingCounter{Limit: q.Burst, Window: window, Slices: 10}
}

func togetherRow(s *server, name string, specs []func(Quota) weir.Spec) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		store, err := s.weirStore(redisstore.WithPrefix("one:"))
		if err != nil {
			return nil, err
		}
		return limiterPeer(store, q, specs...)
	}}
}

// tripsRow asks one limit after the other, each by a call of its own.
func tripsRow(s *server, name string, specs []func(Quota) weir.Spec) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		store, err := s.weirStore(redisstore.WithPrefix("way:"))
		if err != nil {
			return nil, err
		}
		limiters, err := apart(store, q, specs)
		if err != nil {
			store.Close()
			return nil, err
		}
		ctx := context.Background()
		ask := func(key string) (bool, error) {
			all := true
			for _, limiter := range limiters {
				answer, err := limiter.Allow(ctx, key)
				if err != nil {
					return false, err
				}
				all = all && answer.Allowed
			}
			return all, nil
		}
		return shared(ask, func() { store.Close() }), nil
	}}
}

// apart are limiters of one limit each.
func apart(store weir.Store, q Quota, specs []func(Quota) weir.Spec) ([]*weir.Limiter, error) {
	names := []string{"per-ip", "per-ip.2", "per-ip.3"}
	var limiters []*weir.Limiter
	for i, spec := range specs {
		limiter, err := weir.New(store, names[i], spec(q))
		if err != nil {
			return nil, err
		}
		limiters = append(limiters, limiter)
	}
	return limiters, nil
}
