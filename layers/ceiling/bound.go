package ceiling

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
)

// grain is the fraction of a factor that counts: a thousandth.
const grain = 1000

// bound is the bucket of which a node takes what it is granted under a limit; nil if there is
// none. Its capacity, refilled at the limit's rate, holds all that a store that remembers can
// grant, at whatever instants: so it knows nothing of where the store's windows begin, nor of
// its clock. Its overdraft is what the factor leaves beyond that, and at least a unit.
func bound(limit *weir.Limit, factor float64) *weir.Limit {
	most, rate, period := promise(limit)
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

// promise is the bucket that holds what a limit grants, in any time. A window grants its units
// at its end, and the next its own at once; a log does not.
func promise(limit *weir.Limit) (most, rate int64, period time.Duration) {
	switch s := limit.Spec().(type) {
	case weir.TokenBucket:
		if most = limit.Most(); limit.Step() {
			most += s.Refill // which come at once, for a time in which a full bucket gained none
		}
		return most, s.Refill, s.Period
	case weir.FixedWindow:
		return 2 * s.Limit, s.Limit, s.Window
	case weir.Calendar:
		return 2 * s.Limit, s.Limit, shortest[s.Unit]
	case weir.SlidingLog:
		return s.Limit, s.Limit, s.Window
	case weir.SlidingCounter:
		return 2 * s.Limit, s.Limit, s.Window
	}
	return 0, 0, 0 // a lease may be released through another node
}

const hour = time.Hour

// shortest are the periods of calendars in zones where clocks are put forward by an hour.
var shortest = [...]time.Duration{
	weir.Minute: time.Minute, weir.Hour: hour, weir.Day: 23 * hour,
	weir.Week: 7*24*hour - hour, weir.Month: 28*24*hour - hour, weir.Year: 365*24*hour - hour,
}

// rates are rate × thousandths/1000 for each period: exactly, or where such numbers are too
// large, rounded up.
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

// times is n × a/b, rounded up; ok is false where it is more than a limit may have.
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

// name is of the limit and all numbers. Other ones are another bucket: what was granted under
// the old says little about what a store may grant under the new.
func name(limit *weir.Limit, spec weir.TokenBucket) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %s, %s", limit.Name(), limit, spec)
	return fmt.Sprintf("ceiling.%016x", hash.Sum64())
}
