package layers

import (
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// Drive sets the clock of the refusal cache, and how long it remembers.
func (o *Options) Drive(clock func() time.Duration, longest time.Duration) {
	o.clock, o.longest = clock, longest
}

// Longest leaves much to memory, and is less than what a clock that steps back is given.
const Longest = 24 * time.Hour

// Steady makes a monotonic clock from a driven one: after a step back, all that was remembered has expired.
func Steady(clock func() weir.Instant) func() time.Duration {
	var mu sync.Mutex
	var last weir.Instant
	var lost time.Duration
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now := clock()
		if now < last {
			lost += time.Duration(last-now)*time.Microsecond + 2*Longest
		}
		last = now
		return time.Duration(now)*time.Microsecond + lost
	}
}
