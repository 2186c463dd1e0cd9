// Package timeout knows the timeouts of stores, and waits no longer than a context.
package timeout

import (
	"context"
	"time"

	"github.com/weirproject/weir"
)

// Of returns the timeout of each call of a store, such as one of redisstore; 0 if the store has none.
func Of(store weir.Store) time.Duration {
	if bounded, ok := store.(interface{ Timeout() time.Duration }); ok {
		return bounded.Timeout()
	}
	return 0
}

// Sleep waits for d and reports whether ctx lasted that long.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
