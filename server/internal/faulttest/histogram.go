package faulttest

import (
	"math"
	"time"
)

// steps is the number of buckets for each doubling: a quantile is at most 9% too high.
const steps = 8

// A histogram counts durations in constant memory: a soak has millions.
type histogram struct {
	counts  [40 * steps]int64 // from a microsecond to two weeks
	total   int64
	longest time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.longest = max(h.longest, d)
	h.total++
	doublings := math.Log2(max(float64(d.Microseconds()), 1))
	h.counts[min(int(doublings*steps), len(h.counts)-1)]++
}

// quantile is a duration that a share, 0 to 1, of all did not exceed.
func (h *histogram) quantile(share float64) time.Duration {
	rest := int64(math.Ceil(share * float64(h.total)))
	for i, n := range h.counts[:len(h.counts)-1] {
		if rest -= n; rest <= 0 {
			above := math.Exp2(float64(i+1)/steps) * float64(time.Microsecond)
			return min(time.Duration(above), h.longest)
		}
	}
	return h.longest
}
