package rules

import (
	"math/bits"

	"github.com/weirproject/weir"
)

// always reports whether a refuses every request that b refuses, if both are charged alike: it starts with no
// more room, and gains no more over time.
func always(a, b *weir.Limit) bool {
	switch a := a.Spec().(type) {
	case weir.TokenBucket:
		b, ok := b.Spec().(weir.TokenBucket)
		return ok && (a == b || a.Capacity <= b.Capacity && a.Overdraft <= b.Overdraft && slower(a, b))
	case weir.FixedWindow:
		b, ok := b.Spec().(weir.FixedWindow)
		return ok && a.Window == b.Window && a.Anchor == b.Anchor && a.Limit <= b.Limit
	case weir.Calendar:
		b, ok := b.Spec().(weir.Calendar)
		return ok && a.Unit == b.Unit && a.Zone == b.Zone && a.Limit <= b.Limit
	case weir.SlidingLog:
		b, ok := b.Spec().(weir.SlidingLog)
		return ok && a.Window >= b.Window && a.Limit <= b.Limit
	case weir.SlidingCounter:
		b, ok := b.Spec().(weir.SlidingCounter)
		return ok && a.Window == b.Window && a.Slices == b.Slices && a.Limit <= b.Limit
	case weir.Concurrency:
		b, ok := b.Spec().(weir.Concurrency)
		return ok && a.TTL == b.TTL && a.Limit <= b.Limit
	case closedLimit:
		return a == b.Spec()
	}
	return false
}

// slower reports whether a gains no more than b in any time. Buckets that gain in steps do so at times that
// depend on when they were full last, so they are not comparable.
func slower(a, b weir.TokenBucket) bool {
	if a.Mode != weir.Continuous || b.Mode != weir.Continuous {
		return false
	}
	hi1, lo1 := bits.Mul64(uint64(a.Refill), uint64(b.Period))
	hi2, lo2 := bits.Mul64(uint64(b.Refill), uint64(a.Period))
	return hi1 < hi2 || hi1 == hi2 && lo1 <= lo2
}
