package recall

import (
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A refusal is a store's decision about a key that has no unit left. It is immutable but for asked.
type refusal struct {
	hash    uint64
	key     string
	limit   *weir.Limit
	cost    int64         // the refused cost: 1, or 0
	decided weir.Decision // the decision for that cost

	hold           time.Duration // how long it holds, since sent
	sent, returned time.Duration // times of the call on the monotonic clock
	era            uint64        // of the table, before the call
	changes        uint64        // of the set, before the call

	asked atomic.Bool // used since the clock hand passed
}

// none derives the decision for one unit of the claim's key (for cost 0, if the claim costs 0). ok is false
// unless that is refused and known exactly.
func none(c *weir.Claim, d weir.Decision) (decided weir.Decision, cost int64, ok bool) {
	switch {
	case c.Cost <= 1:
		return d, c.Cost, d.RetryAfter > 0
	case d.Remaining > 0 || d.RetryAfter == weir.Never:
		return d, 1, false
	}
	longer, ok := longer(c.Limit, c.Cost)
	d.RetryAfter -= longer
	return d, 1, ok
}

// is reports whether the refusal is of a state.
func (r *refusal) is(key string, limit *weir.Limit) bool {
	return r.key == key && r.limit.SameState(limit)
}

// sameNumbers compares the numbers of limits, because a reload makes new limits.
func sameNumbers(a, b *weir.Limit) bool { return a == b || a.String() == b.String() }

// covers reports whether the refusal determines the decision for a cost. Cost 0 covers only itself: its wait is
// not that for a unit.
func (r *refusal) covers(cost int64) bool {
	if cost == r.cost {
		return true
	}
	if cost < r.cost || r.cost == 0 {
		return false
	}
	_, ok := longer(r.limit, cost)
	return ok || cost > r.limit.Most()
}

// holds reports whether the refusal is current. The store decided between sent and returned, and counting from
// returned would keep it for too long. A now before sent, from a caller that read the clock earlier, does not match.
func (r *refusal) holds(era, changes uint64, now time.Duration) bool {
	return r.era == era && r.changes == changes && uint64(now-r.sent) < uint64(r.hold)
}

// at is an instant of the store's clock that is not later than now: a wait that is counted from a later one
// would end before the store grants.
func (r *refusal) at(now time.Duration) weir.Instant {
	return r.decided.At + weir.Instant(max(0, now-r.returned).Microseconds())
}

// decision is the store's decision for a covered cost at an instant.
func (r *refusal) decision(cost int64, at weir.Instant) weir.Decision {
	d := moved(r.decided, at)
	switch {
	case cost > r.limit.Most() || d.RetryAfter == weir.Never:
		d.RetryAfter = weir.Never
	case cost != r.cost:
		longer, _ := longer(r.limit, cost)
		d.RetryAfter += longer
	}
	return d
}

// moved is an earlier decision as of an instant.
func moved(d weir.Decision, at weir.Instant) weir.Decision {
	by := time.Duration(at-d.At) * time.Microsecond
	d.At = at
	d.ResetAfter, d.Delay = max(0, d.ResetAfter-by), max(0, d.Delay-by)
	if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		d.RetryAfter = max(time.Microsecond, d.RetryAfter-by)
	}
	return d
}

// longer is how much longer a cost waits than one unit where no unit is left: a window has all units at its
// end, and a bucket gains one in each interval. ok is false where that is not known to the microsecond: of
// buckets whose interval is a fraction of one or that step, and of logs and counters.
func longer(l *weir.Limit, cost int64) (wait time.Duration, ok bool) {
	switch {
	case l.Windowed():
		return 0, true
	case !l.Refills():
		return 0, false
	}
	if _, rest := l.Interval().Times(1); l.Step() || rest != 0 || cost > l.Most() {
		return 0, false
	}
	whole, _ := l.Interval().Times(cost - 1)
	return time.Duration(whole) * time.Microsecond, true
}
