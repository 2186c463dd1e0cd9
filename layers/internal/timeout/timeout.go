// Package timeout says how long a store takes for a call at most.
package timeout

import (
	"time"

	"github.com/weirproject/weir"
)

// Of is the timeout that a store, such as one of redisstore, gives each call of it; 0 if it does
// not tell.
func Of(store weir.Store) time.Duration {
	if bounded, ok := store.(interface{ Timeout() time.Duration }); ok {
		return bounded.Timeout()
	}
	return 0
}
