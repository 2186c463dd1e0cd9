package ceiling

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
)

// grain is the precision of a factor: a thousandth.
const grain = 1000

// bound returns the bucket that a node charges with its grants under a limit; nil if there is none. Its
// capacity, refilled at the limit's rate, covers all that a store with intact state can grant at any instants,
// so it needs no knowledge of where the store's windows begin, nor of its clock. A concurrency limit has none: a lease
// may be released through another node. Its overdraft is what the
// factor adds to that, and at least a unit.
func bound(limit *weir.Limit, factor float64) *weir.Limit {
	most, rate, period := limit.Envelope()
	if most == 0 || factor > weir.MaxUnits/grain {
		return nil
	}
	thousandths := int64(math.Ceil(factor * grain))
	all, ok := times(most, thousandths, grain)
	if !ok {
		return nil
	}
	for _, spec := range rates(rate, period, thousandths) {
		spec.Capacity, spec.Overdraft = most, max(all-most, 1)
		if made, err := weir.NewLimit(name(limit, spec), spec); err == nil {
			return made
		}
	}
	return nil
}

// AtOnce is what one node passes at most at one moment under a limit with a factor; 0: there is no ceiling.
func AtOnce(limit *weir.Limit, factor float64) int64 {
	if bound := bound(limit, factor); bound != nil {
		return bound.Most()
	}
	return 0
}

// rates returns rate × thousandths/1000 for each period: exactly, and rounded up for numbers too large for that.
func rates(rate int64, period time.Duration, thousandths int64) (list []weir.TokenBucket) {
	common := gcd(thousandths, grain)
	up, down := thousandths/common, grain/common
	if refill, ok := times(rate, up, 1); ok && period <= math.MaxInt64/time.Duration(down) {
		list = append(list, weir.TokenBucket{Refill: refill, Period: period * time.Duration(down)})
	}
	if refill, ok := times(rate, up, down); ok {
		list = append(list, weir.TokenBucket{Refill: refill, Period: period})
	}
	return list
}

// times is n × a/b, rounded up; ok is false where a limit cannot have that many.
func times(n, a, b int64) (product int64, ok bool) {
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	if hi >= uint64(b) {
		return 0, false
	}
	quotient, rest := bits.Div64(hi, lo, uint64(b))
	if quotient >= weir.MaxUnits {
		return 0, false
	}
	return int64(quotient) + int64(min(rest, 1)), true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// name hashes the limit's name and all numbers. Other numbers are another bucket: grants under the old ones say
// little about what a store may grant under the new.
func name(limit *weir.Limit, spec weir.TokenBucket) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %s, %s", limit.Name(), limit, spec)
	return fmt.Sprintf("ceiling.%016x", hash.Sum64())
}
