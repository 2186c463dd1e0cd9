package layers_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// A result is what came of a simulation.
type result struct {
	requests           int64
	exact              int64 // what one limiter without latency and faults admits
	admitted           int64
	over               int64 // of admitted: beyond the limits
	refused            int64
	wronglyRefused     int64 // of refused: the limits had room
	failed             int64
	failedWithinLimits int64 // of failed: the limits had room
	degraded           int64 // decided by on_store_error
	worst              int64 // most units of one key beyond what its limit grants, at one time

	calls, recalled, prefetched, opened int64
	late                                int64 // decisions that took half the timeout
	seconds                             []second
}

// A second counts requests: offered by their arrival, the others by their decision.
type second struct{ offered, admitted, over, failed int64 }

func (r *result) String() string {
	return fmt.Sprintf("%d requests: %d admitted (%d exactly, %d beyond, worst %d), %d refused (%d wrongly), "+
		"%d failed (%d with room), %d degraded; %d calls, %d recalled, %d prefetched, %d times open, %d late",
		r.requests, r.admitted, r.exact,
		r.over, r.worst, r.refused, r.wronglyRefused, r.failed, r.failedWithinLimits, r.degraded, r.calls, r.recalled,
		r.prefetched, r.opened, r.late)
}

// A recount replays what came of the requests, in the order of the instants at which that was decided: for each key an
// exact limiter sees what was admitted. It says which admissions are beyond the limit, and charges only the others; and
// which refusals were wrong, because the request would have fitted.
type recount struct {
	*simulation
	began  time.Time
	result result
	states map[stateKey]*state

	mu       sync.Mutex
	outcomes []*outcome
}

type stateKey struct {
	limit *weir.Limit
	key   string
}

// A state is what a key used of a limit.
type state struct {
	exact *counter // charged with what fits
	all   *counter // charged with all that was admitted
}

// A use is a claim of a request.
type use struct {
	state *state
	cost  int64
	room  int64 // units that must be left for a refusal to be wrong
}

// An outcome is what came of a request.
type outcome struct {
	at      weir.Instant
	outcome gate.Outcome
	uses    []use
}

func newRecount(s *simulation, began time.Time) *recount {
	return &recount{simulation: s, began: began, states: make(map[stateKey]*state),
		result: result{seconds: make([]second, s.duration/time.Second)}}
}

// second is that of a time; what is decided after the end belongs to the last one.
func (c *recount) second(at time.Duration) *second {
	return &c.result.seconds[min(int(at/time.Second), len(c.result.seconds)-1)]
}

// add notes a verdict on a request that arrived at a time.
func (c *recount) add(v *gate.Verdict, arrived time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(arrived) > c.timeout/2 {
		c.result.late++
	}
	if v.Degraded() {
		c.result.degraded++
	}
	o := &outcome{outcome: v.Outcome}
	windows := true
	for i := range v.Len() {
		check := v.At(i)
		if check.Decided {
			o.at = max(o.at, check.Decision.At)
			windows = windows && opensWindow(check.Claim.Limit)
		}
		o.uses = append(o.uses, use{c.state(check.Claim), check.Claim.Cost, roomFor(check.Claim)})
	}
	// A unit that was charged ahead of need counts when it passes. A window that its first charge opens begins with
	// that charge: counted from when the unit passes, it would overlap the next.
	switch {
	case o.at == 0:
		o.at = weir.Instant(time.Now().UnixMicro())
	case !windows:
		o.at = max(o.at, weir.Instant(arrived.UnixMicro()))
	}
	c.outcomes = append(c.outcomes, o)
}

// roomFor is what is left where a refusal is wrong. Where buckets of the store and of the recount differ by a part of a
// unit, since something was admitted beyond the limit once, refusals would be wrong in turns for ever: so a bucket has
// room for one such request more.
func roomFor(c *weir.Claim) int64 {
	if c.Limit.Algorithm() == weir.AlgorithmTokenBucket {
		return max(c.Cost, min(2*c.Cost, c.Limit.Most()))
	}
	return c.Cost
}

func opensWindow(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmFixedWindow && l.Anchor() == weir.First
}

func (c *recount) state(claim *weir.Claim) *state {
	s := c.states[stateKey{claim.Limit, claim.Key}]
	if s == nil {
		s = &state{newCounter(claim.Limit), newCounter(claim.Limit)}
		c.states[stateKey{claim.Limit, strings.Clone(claim.Key)}] = s
	}
	return s
}

// finish counts the outcomes. Of one instant, what was admitted comes first: the store decided it before what it
// refused.
func (c *recount) finish() {
	slices.SortStableFunc(c.outcomes, func(a, b *outcome) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.outcome, b.outcome))
	})
	for _, o := range c.outcomes {
		c.tell(o)
	}
	for _, s := range c.result.seconds {
		c.result.admitted += s.admitted
		c.result.over += s.over
		c.result.failed += s.failed
	}
}

// tell counts an outcome.
func (c *recount) tell(o *outcome) {
	second := c.second(time.Duration(int64(o.at)-c.began.UnixMicro()) * time.Microsecond)
	fits, room := true, true
	for _, u := range o.uses {
		fits = fits && u.state.exact.over(int64(o.at), u.cost) == 0
		room = room && u.state.exact.over(int64(o.at), u.room) == 0
	}
	switch o.outcome {
	case gate.Passed:
		second.admitted++
		c.admit(o, fits, second)
	case gate.Refused:
		c.result.refused++
		if room {
			c.result.wronglyRefused++
		}
	case gate.Failed:
		second.failed++
		if room {
			c.result.failedWithinLimits++
		}
	}
}

// admit charges what was admitted.
func (c *recount) admit(o *outcome, fits bool, second *second) {
	if !fits {
		second.over++
	}
	for _, u := range o.uses {
		if fits {
			u.state.exact.charge(int64(o.at), u.cost)
		}
		u.state.all.charge(int64(o.at), u.cost)
		c.result.worst = max(c.result.worst, u.state.all.over(int64(o.at), 0))
	}
}

// A counter recounts one key of a limit, in time order, by the model that the algorithms are compared with.
type counter struct {
	model.Model
	limit *weir.Limit
}

func newCounter(l *weir.Limit) *counter { return &counter{model.New(l), l} }

// over is by how many units n more would exceed the limit now; 0: they fit.
func (c *counter) over(now, n int64) int64 {
	return model.First(func(less int64) bool { return c.Fits(c.limit, n-less, now) })
}

// charge charges units, whether they fit or not.
func (c *counter) charge(now, n int64) {
	if n > 0 {
		c.Charge(c.limit, n, now)
	}
}
