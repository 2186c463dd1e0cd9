package lease

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A grant is the result of one call: units for a number of requests, and the store's decisions. All fields but
// left and held are constant after landing.
type grant struct {
	size      int64 // requests
	landed    int64 // when the answer arrived
	until     int64 // end of the time for spending, exclusive
	decisions []weir.Decision
	delayed   bool  // some requests have a Delay, from an overdraft
	held      int64 // requests in the accounts for it, under Store.mu

	_    [64]byte // keeps the field that all write off the cache lines that all read
	left atomic.Int64
	_    [56]byte
}

// over is the value of left in an ended grant: so low that no number of concurrent decrements reaches it or
// leaves it.
const over = math.MinInt64 / 2

// live reports whether a request may be spent.
func (g *grant) live(now int64) bool { return g != nil && now < g.until && g.left.Load() > 0 }

// spend takes one request; left is how many remain.
func (g *grant) spend(now int64) (left int64, ok bool) {
	if g == nil || now >= g.until {
		return 0, false
	}
	left = g.left.Add(-1)
	return left, left >= 0
}

// end takes all that is left. Only the first call gets anything.
func (g *grant) end() (left int64, first bool) {
	left = g.left.Swap(over)
	return max(0, left), left > over/2
}

func (g *grant) ended() bool { return g.left.Load() <= over/2 }

// lasts is how long after the call was sent a grant may be spent: no longer than its hold, and than the windows of
// its charges. The store's ResetAfter counts from an instant after the sending, so counting from the sending is safe.
// A thousandth less for clocks of different speeds, and a microsecond less because the store rounds its time down.
func lasts(hold time.Duration, claims []weir.Claim, decisions []weir.Decision) time.Duration {
	for i := range claims {
		if claims[i].Limit.Windowed() {
			hold = min(hold, decisions[i].ResetAfter)
		}
	}
	return hold - hold/1000 - time.Microsecond
}

// describe fills in the decisions of a request after which left requests remain.
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

// delay is that of the last request of the grant, less what the requests after this one borrowed, and less the
// time since. A bucket that steps repays in leaps: there all have the last one's.
func (g *grant) delay(i int, c *weir.Claim, left, now int64) time.Duration {
	wait := g.decisions[i].Delay - time.Duration(now-g.landed)
	if wait > 0 && !c.Limit.Step() {
		later, _ := c.Limit.Interval().Times(left * c.Cost)
		wait -= time.Duration(later) * time.Microsecond
	}
	return max(0, wait).Round(time.Microsecond)
}
