package main

import (
	"sync"

	"golang.org/x/time/rate"
)

const xtimeName = "x/time/rate in a sync.Map"

// xtimeRow is a rate.Limiter a key in a sync.Map, as most programs write it. Nothing ever
// leaves the map.
func xtimeRow() row {
	return row{name: xtimeName, refuses: true, open: func(q Quota) (Peer, error) {
		var limiters sync.Map
		every := rate.Every(q.Every)
		return shared(func(key string) (bool, error) {
			limiter, ok := limiters.Load(key)
			if !ok {
				limiter, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, int(q.Burst)))
			}
			return limiter.(*rate.Limiter).Allow(), nil
		}, nil), nil
	}}
}
