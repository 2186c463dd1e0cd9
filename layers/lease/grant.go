package lease

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A grant is what one call took: units for a number of requests, and what the store said.
// All but left and held stay as they are.
type grant struct {
	size      int64 // requests
	landed    int64 // when the store's answer came
	until     int64 // when the last may be spent, exclusive
	decisions []weir.Decision
	delayed   bool  // some are to wait until what they borrowed is repaid
	held      int64 // requests that the accounts hold for it, under Store.mu

	_    [64]byte // what all read and what all write lie on lines of their own
	left atomic.Int64
	_    [56]byte
}

// over is left of a grant that was ended: so far below 0 that no number of callers, each of
// whom takes one, is mistaken for it, or it for them.
const over = math.MinInt64 / 2

// live reports whether something may be spent.
func (g *grant) live(now int64) bool { return g != nil && now < g.until && g.left.Load() > 0 }

// spend takes one request's units; left is how many requests remain.
func (g *grant) spend(now int64) (left int64, ok bool) {
	if g == nil || now >= g.until {
		return 0, false
	}
	left = g.left.Add(-1)
	return left, left >= 0
}

// end takes all that is left. It is first once: who comes later has nothing to do.
func (g *grant) end() (left int64, first bool) {
	left = g.left.Swap(over)
	return max(0, left), left > over/2
}

func (g *grant) ended() bool { return g.left.Load() <= over/2 }

// lasts is how long after it was asked for a grant may be spent: no longer than it may be
// held, and than the windows that it was charged in. The store's answer counts from an
// instant after the call was sent, so counting from there is safe. A thousandth less, for
// clocks that do not run alike; a microsecond less, because the store rounds its time down.
func lasts(hold time.Duration, claims []weir.Claim, decisions []weir.Decision) time.Duration {
	for i := range claims {
		if endsWithWindow(claims[i].Limit) {
			hold = min(hold, decisions[i].ResetAfter)
		}
	}
	return hold - hold/1000 - time.Microsecond
}

// describe fills in the decisions of a request that left so many others in the grant.
func (g *grant) describe(claims []weir.Claim, left, now int64, decisions []weir.Decision) {
	for i := range decisions {
		d, taken := &decisions[i], &g.decisions[i]
		d.Remaining = taken.Remaining + left*claims[i].Cost
		d.RetryAfter = 0
		if left == 0 {
			d.RetryAfter = taken.RetryAfter
		}
		d.ResetAfter, d.At, d.Delay = taken.ResetAfter, taken.At, 0
		if g.delayed {
			d.Delay = g.delay(i, &claims[i], left, now)
		}
	}
}

// delay is that of the last request of the grant, less what those after this one borrowed
// and the time since. A bucket that steps repays by leaps: there it is the last one's.
func (g *grant) delay(i int, c *weir.Claim, left, now int64) time.Duration {
	wait := g.decisions[i].Delay - time.Duration(now-g.landed)
	if wait > 0 && !c.Limit.Step() {
		later, _ := c.Limit.Interval().Times(left * c.Cost)
		wait -= time.Duration(later) * time.Microsecond
	}
	return max(0, wait).Round(time.Microsecond)
}
