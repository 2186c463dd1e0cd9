package recall

import (
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A refusal is what a store said of a claim, and when. It does not change.
type refusal struct {
	hash  uint64
	key   string
	limit *weir.Limit
	cost  int64
	said  weir.Decision

	hold    time.Duration // since sent
	changes uint64        // of the set, before the call was sent
	asking

	asked atomic.Bool // since the hand came by
}

// An asking is the call that a refusal was learned from.
type asking struct {
	sent, returned time.Duration   // by the monotonic clock
	era            uint64          // of the table, before it was sent
	set            uint64          // of all claims of the decision; 0: nothing is kept of them
	seen           []weir.Decision // what was said of them
}

// is reports whether the refusal is of a state.
func (r *refusal) is(key string, limit *weir.Limit) bool {
	return r.key == key && r.limit.SameState(limit)
}

// sameNumbers compares texts where the limits are not one: rules that were read again are
// made again.
func sameNumbers(a, b *weir.Limit) bool { return a == b || a.String() == b.String() }

// covers reports whether what is refused of the refusal's cost is refused of this one.
// Cost 0 answers only for itself: it knows nothing of the wait for a unit.
func (r *refusal) covers(cost int64) bool { return cost == r.cost || cost > r.cost && r.cost > 0 }

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

// decision is what the store would say of a cost at an instant, as far as is known.
func (r *refusal) decision(cost int64, at weir.Instant) weir.Decision {
	d := moved(r.said, at)
	switch {
	case cost > r.limit.Most() || d.RetryAfter == weir.Never:
		d.RetryAfter = weir.Never
	case cost != r.cost:
		d.RetryAfter += longer(r.limit, cost-r.cost)
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

// longer is how much longer a cost waits that is larger by so many units. A window has
// all its units at its end; of logs and counters it is not known.
func longer(l *weir.Limit, units int64) time.Duration {
	if l.Algorithm() != weir.AlgorithmTokenBucket {
		return 0
	}
	wait, rest := int64(0), int64(0)
	if l.Step() {
		wait, rest = (units-1)/l.Refill()*l.Period()+l.Period(), 0
	} else {
		wait, rest = l.Interval().Times(units)
	}
	return time.Duration(min(wait+min(rest, 1), weir.MaxUnits)) * time.Microsecond
}
