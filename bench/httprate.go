package main

import (
	"math"
	"sync"
	"time"

	"github.com/go-chi/httprate"
)

// httprateRow is the local counter of go-chi/httprate, asked as its middleware asks it:
// under one mutex, read, weigh, count. Its headers are left out.
func httprateRow() row {
	return row{name: "httprate, local counter", refuses: true, open: func(q Quota) (Peer, error) {
		counter := httprate.NewLocalLimitCounter(window)
		counter.Config(int(q.Burst), window)
		var mu sync.Mutex
		return shared(func(key string) (bool, error) {
			now := time.Now().UTC()
			current := now.Truncate(window)
			mu.Lock()
			defer mu.Unlock()
			count, before, err := counter.Get(key, current, current.Add(-window))
			if err != nil {
				return false, err
			}
			fresh := float64(window - now.Sub(current))
			estimate := int64(math.Round(float64(before)*fresh/float64(window) + float64(count)))
			if estimate+1 > q.Burst {
				return false, nil
			}
			return true, counter.Increment(key, current)
		}, nil), nil
	}}
}
