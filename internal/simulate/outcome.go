package simulate

import (
	"container/heap"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// leaseTime is the longest time from the charge of a prefetched unit to the request that spends it: the hold of a
// lease, and more than the sweep.
const leaseTime = 200 * time.Millisecond

// A recount replays what came of the requests, in the order of the instants at which that was decided: for each key an
// exact limiter sees what was admitted. It says which admissions are beyond the limit, and charges only the others; and
// which refusals were wrong, because the request would have fitted.
type recount struct {
	result   *Result
	states   map[stateKey]*state
	outcomes outcomes
	count    int
}

type stateKey struct {
	limit *weir.Limit
	key   string
}

// A state is what a key used of a limit.
type state struct {
	stateKey
	rule  *RuleResult
	exact counter // charged with what fits
	all   counter // charged with all that was admitted
}

// A use is a claim of a request.
type use struct {
	state *state
	cost  int64
	needs int64 // units that must be left: the cost, or 1 with charge: full
	room  int64 // units that must be left for a refusal to be wrong
}

// An outcome is what came of a request.
type outcome struct {
	at      weir.Instant
	order   int
	outcome gate.Outcome
	banned  bool
	uses    []use
}

// outcomes is a heap. Of one instant, what was admitted comes first: the store decided it before what it refused.
type outcomes []*outcome

func (o outcomes) Len() int      { return len(o) }
func (o outcomes) Swap(i, j int) { o[i], o[j] = o[j], o[i] }
func (o *outcomes) Push(x any)   { *o = append(*o, x.(*outcome)) }

func (o outcomes) Less(i, j int) bool {
	a, b := o[i], o[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.outcome != b.outcome:
		return a.outcome < b.outcome
	}
	return a.order < b.order
}

func (o *outcomes) Pop() any {
	last := (*o)[len(*o)-1]
	(*o)[len(*o)-1] = nil
	*o = (*o)[:len(*o)-1]
	return last
}

// add notes a verdict on a request that arrived at an instant.
func (c *recount) add(v *gate.Verdict, now, arrived weir.Instant) {
	o := &outcome{outcome: v.Outcome, banned: v.Reason == gate.Banned, order: c.count}
	c.count++
	if v.Degraded() {
		c.result.Degraded++
	}
	decided, windows := weir.Instant(0), true
	for i := range v.Len() {
		check := v.At(i)
		if check.Shadow || check.Aside || check.Ban || check.Rule == nil {
			continue
		}
		if check.Decided {
			decided = max(decided, check.Decision.At)
			windows = windows && opensWindow(check.Claim.Limit)
		}
		u := use{state: c.state(check), cost: check.Claim.Cost, needs: check.Claim.Cost}
		if check.Rule.ChargesFull() {
			u.needs = min(1, u.cost)
		}
		u.room = roomFor(u.needs, check.Claim.Limit)
		o.uses = append(o.uses, u)
	}
	// A unit that was charged ahead of need counts when it passes. A window that its first charge opens begins with
	// that charge: counted from when the unit passes, it would overlap the next.
	switch {
	case decided == 0:
		o.at = now
	case windows:
		o.at = decided
	default:
		o.at = max(decided, arrived)
	}
	heap.Push(&c.outcomes, o)
}

// roomFor is what is left where a refusal is wrong. Where buckets of the store and of the recount differ by a part of a
// unit, since something was admitted beyond the limit once, refusals would be wrong in turns for ever: so a bucket has
// room for one such request more.
func roomFor(needs int64, l *weir.Limit) int64 {
	if l.Algorithm() == weir.AlgorithmTokenBucket {
		return max(needs, min(2*needs, l.Most()))
	}
	return needs
}

func opensWindow(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmFixedWindow && l.Anchor() == weir.First
}

func (c *recount) state(check gate.Check) *state {
	l := check.Claim.Limit
	if s := c.states[stateKey{l, check.Claim.Key}]; s != nil {
		return s
	}
	s := &state{stateKey{l, strings.Clone(check.Claim.Key)}, c.result.rule(check.Rule), newCounter(l), newCounter(l)}
	c.states[s.stateKey] = s
	return s
}

// flush counts the outcomes before a time; earlier ones no longer come.
func (c *recount) flush(until time.Duration) {
	end := weir.Instant(epoch.Add(until).UnixMicro())
	for len(c.outcomes) > 0 && c.outcomes[0].at < end {
		c.tell(heap.Pop(&c.outcomes).(*outcome))
	}
}

// tell counts an outcome.
func (c *recount) tell(o *outcome) {
	second := c.result.second(time.Duration(o.at-weir.Instant(epoch.UnixMicro())) * time.Microsecond)
	fits, room, at := true, !o.banned, int64(o.at)
	for _, u := range o.uses {
		fits = fits && u.state.exact.over(at, u.needs) == 0
		room = room && u.state.exact.over(at, u.room) == 0
	}
	switch o.outcome {
	case gate.Passed:
		second.Admitted++
		c.admit(o, fits, second)
	case gate.Refused:
		c.result.Refused++
		if room {
			c.result.WronglyRefused++
		}
	case gate.Denied:
		c.result.Denied++
	case gate.Failed:
		second.Failed++
		if room {
			c.result.FailedWithinLimits++
		}
	}
}

// admit charges what was admitted.
func (c *recount) admit(o *outcome, fits bool, second *Second) {
	if !fits {
		second.Over++
	}
	at := int64(o.at)
	for _, u := range o.uses {
		if u.state.exact.over(at, u.needs) > 0 {
			u.state.rule.OverAdmitted++
		}
		if fits {
			u.state.exact.charge(at, u.cost)
		}
		if u.needs < u.cost { // charge: full exceeds its limit on purpose
			continue
		}
		u.state.all.charge(at, u.cost)
		if over := u.state.all.over(at, 0); over > u.state.rule.Worst.Units {
			u.state.rule.Worst = Worst{Units: over, Limit: u.state.limit.String(), Key: u.state.key,
				At: time.Duration(at-epoch.UnixMicro()) * time.Microsecond}
		}
	}
}
