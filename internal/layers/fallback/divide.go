package fallback

import (
	"math/bits"
	"time"

	"github.com/weirproject/weir"
)

// divide returns a node's share of a limit, under the limit's name.
func divide(limit *weir.Limit, nodes int64) *weir.Limit {
	for _, spec := range shares(limit.Spec(), nodes) {
		if share, err := weir.NewLimit(limit.Name(), spec); err == nil {
			return share
		}
	}
	return limit
}

// shares returns the specs of a share, the best first. Counts are rounded up, so that a node grants at least
// one unit; a bucket's rate is divided by a longer period, which is exact.
func shares(spec weir.Spec, nodes int64) []weir.Spec {
	switch s := spec.(type) {
	case weir.TokenBucket:
		return bucketShares(s, nodes)
	case weir.FixedWindow:
		s.Limit = part(s.Limit, nodes)
		return []weir.Spec{s}
	case weir.Calendar:
		s.Limit = part(s.Limit, nodes)
		return []weir.Spec{s}
	case weir.SlidingLog:
		s.Limit = part(s.Limit, nodes)
		return []weir.Spec{s}
	case weir.SlidingCounter:
		s.Limit = part(s.Limit, nodes)
		return []weir.Spec{s}
	case weir.Concurrency:
		s.Limit = part(s.Limit, nodes)
		return []weir.Spec{s}
	}
	return nil
}

// bucketShares ends with a spec whose period is unchanged, for buckets that would take longer than 142 years to
// fill: their refill hardly matters.
func bucketShares(s weir.TokenBucket, nodes int64) []weir.Spec {
	s.Capacity, s.Overdraft = part(s.Capacity, nodes), part(s.Overdraft, nodes)
	slower := s
	slower.Period = longer(s.Period, nodes, 1)
	if s.Mode == weir.Step {
		// A whole step at once would be more than the share holds, and be lost.
		refill := s.Refill
		s.Refill = part(refill, nodes)
		slower.Refill, slower.Period = s.Refill, longer(s.Period, nodes*s.Refill, refill)
	}
	return []weir.Spec{slower, s}
}

// part is n divided by nodes, rounded up.
func part(n, nodes int64) int64 { return n/nodes + min(n%nodes, 1) }

// longer is d × times/by, rounded up to a microsecond; 0, which is no valid period, if that is too long.
func longer(d time.Duration, times, by int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d.Microseconds()), uint64(times))
	if hi >= uint64(by) {
		return 0
	}
	quotient, rest := bits.Div64(hi, lo, uint64(by))
	if quotient >= weir.MaxUnits {
		return 0
	}
	return time.Duration(int64(quotient)+min(int64(rest), 1)) * time.Microsecond
}
