package recall

import (
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A refusal is what a store said of a key that has no unit left, and when. It does not change.
type refusal struct {
	hash  uint64
	key   string
	limit *weir.Limit
	cost  int64         // that is refused: 1, or 0
	said  weir.Decision // of that cost

	hold           time.Duration // since sent
	sent, returned time.Duration // of the call, by the monotonic clock
	era            uint64        // of the table, before it was sent
	changes        uint64        // of the set, before it was sent

	asked atomic.Bool // since the hand came by
}

// none is what a decision says of one unit of the claim's key (of none, if the claim costs none): ok
// is false unless that is refused, and known exactly.
func none(c *weir.Claim, d weir.Decision) (said weir.Decision, cost int64, ok bool) {
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

// sameNumbers compares texts where the limits are not one: rules that were read again are
// made again.
func sameNumbers(a, b *weir.Limit) bool { return a == b || a.String() == b.String() }

// covers reports whether the refusal says all about a request of a cost. Cost 0 answers only for
// itself: it knows nothing of the wait for a unit.
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

// holds reports whether the refusal is not over. The store decided at some time between
// sent and returned: to count from returned would believe it for too long. A now before
// sent is of a caller who looked at the clock earlier, and asks.
func (r *refusal) holds(era, changes uint64, now time.Duration) bool {
	return r.era == era && r.changes == changes && uint64(now-r.sent) < uint64(r.hold)
}

// at is an instant of the store that is not later than now: or a wait that is counted from
// it would end before the store grants.
func (r *refusal) at(now time.Duration) weir.Instant {
	return r.said.At + weir.Instant(max(0, now-r.returned).Microseconds())
}

// decision is what the store would say of a cost that the refusal covers, at an instant.
func (r *refusal) decision(cost int64, at weir.Instant) weir.Decision {
	d := moved(r.said, at)
	switch {
	case cost > r.limit.Most() || d.RetryAfter == weir.Never:
		d.RetryAfter = weir.Never
	case cost != r.cost:
		longer, _ := longer(r.limit, cost)
		d.RetryAfter += longer
	}
	return d
}

// moved is a decision that was made earlier, told at an instant.
func moved(d weir.Decision, at weir.Instant) weir.Decision {
	by := time.Duration(at-d.At) * time.Microsecond
	d.At = at
	d.ResetAfter, d.Delay = max(0, d.ResetAfter-by), max(0, d.Delay-by)
	if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		d.RetryAfter = max(time.Microsecond, d.RetryAfter-by)
	}
	return d
}

// longer is how much longer a cost waits than one unit, where no unit is left: a window has all
// its units at its end, and a bucket regains one an interval. ok is false where a decision does
// not say enough to know it to the microsecond: of buckets whose interval is a fraction of one or
// that step, and of logs and counters.
func longer(l *weir.Limit, cost int64) (wait time.Duration, ok bool) {
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return 0, true
	case weir.AlgorithmTokenBucket:
		if _, rest := l.Interval().Times(1); l.Step() || rest != 0 || cost > l.Most() {
			return 0, false
		}
		whole, _ := l.Interval().Times(cost - 1)
		return time.Duration(whole) * time.Microsecond, true
	}
	return 0, false
}
