//go:build !small

package redisconn

import (
	"sync/atomic"
	"time"
)

// A valve is shut when many calls in a row were given up unanswered. Those calls are still in
// Redis' queue, so that under an overload all later calls would be late as well, for ever. A
// shut valve lets one call through from time to time, and opens when one is answered.
type valve struct {
	gap  time.Duration // between tries
	born time.Time
	lost atomic.Int64 // given up since the last answer
	next atomic.Int64 // time of the next try, ns since born
}

// lostLimit is how many calls in a row are given up before the valve is shut: more than a
// short halt of the server costs one program, less than its connection has room for.
const lostLimit = 256

func (v *valve) enter() bool {
	if v.lost.Load() < lostLimit {
		return true
	}
	now := int64(time.Since(v.born))
	next := v.next.Load()
	return now >= next && v.next.CompareAndSwap(next, now+int64(v.gap))
}

func (v *valve) gaveUp() { v.lost.Add(1) }

func (v *valve) answered() {
	if v.lost.Load() != 0 { // a write for each call would cost the cores their caches
		v.lost.Store(0)
	}
}
