package layers_test

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
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
	exact counter // charged with what fits
	all   counter // charged with all that was admitted
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

// A counter recounts one key of a limit, in time order, by the definition of docs/reference/limits.md and nothing of
// weir's arithmetic.
type counter interface {
	// over is by how many units n more would exceed the limit now; 0: they fit.
	over(now, n int64) int64
	// charge charges units, whether they fit or not.
	charge(now, n int64)
}

// newCounter makes a counter of an unused key; nil for limits that are not recounted.
func newCounter(l *weir.Limit) counter {
	switch spec := l.Spec().(type) {
	case weir.TokenBucket:
		return newBucket(spec)
	case weir.FixedWindow:
		return &window{limit: spec.Limit, period: spec.Window.Microseconds(), epoch: spec.Anchor == weir.Epoch}
	case weir.Calendar:
		return &window{limit: spec.Limit, calendar: l}
	case weir.SlidingLog:
		return &slidingLog{limit: spec.Limit, period: spec.Window.Microseconds()}
	case weir.SlidingCounter:
		return newSlices(spec)
	}
	return nil
}

// A bucket counts level × period, so that each microsecond adds a whole number.
type bucket struct {
	capacity, overdraft, level int64 // times period
	refill, period             int64
	step                       bool
	at                         int64 // of level; of a bucket that steps, the mark
}

func newBucket(spec weir.TokenBucket) *bucket {
	b := &bucket{refill: spec.Refill, period: spec.Period.Microseconds(), step: spec.Mode == weir.Step}
	if b.step {
		b.capacity, b.overdraft = spec.Capacity, spec.Overdraft
	} else {
		divisor := common(b.refill, b.period)
		b.refill, b.period = b.refill/divisor, b.period/divisor
		b.capacity, b.overdraft = spec.Capacity*b.period, spec.Overdraft*b.period
	}
	b.level = b.capacity
	return b
}

func common(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// unit is one unit in the numbers of level.
func (b *bucket) unit() int64 {
	if b.step {
		return 1
	}
	return b.period
}

func (b *bucket) advance(now int64) {
	passed := now - b.at
	if b.step {
		passed /= b.period
		b.at += passed * b.period
	} else {
		b.at = now
	}
	if hi, lo := bits.Mul64(uint64(passed), uint64(b.refill)); hi == 0 && lo < uint64(b.capacity-b.level) {
		b.level += int64(lo)
		return
	}
	b.level = b.capacity
}

func (b *bucket) over(now, n int64) int64 {
	b.advance(now)
	missing := n*b.unit() - b.level - b.overdraft
	return max(0, (missing+b.unit()-1)/b.unit())
}

func (b *bucket) charge(now, n int64) {
	b.advance(now)
	if b.level == b.capacity {
		b.at = now // the clock of a full bucket starts at the charge
	}
	b.level -= n * b.unit()
}

// A window is a fixed one, or one of a calendar.
type window struct {
	limit, period int64
	epoch         bool
	calendar      *weir.Limit
	end, used     int64
}

func (w *window) over(now, n int64) int64 {
	if now >= w.end {
		w.used = 0
	}
	return max(0, w.used+n-w.limit)
}

func (w *window) charge(now, n int64) {
	if n == 0 {
		return
	}
	if now >= w.end || w.used == 0 {
		w.used = 0
		switch {
		case w.calendar != nil:
			_, end := w.calendar.Bounds(weir.Instant(now))
			w.end = int64(end)
		case w.epoch:
			w.end = now - now%w.period + w.period
		default:
			w.end = now + w.period
		}
	}
	w.used += n
}

// A slidingLog has all charges of the last period.
type slidingLog struct {
	limit, period int64
	charges       []struct{ at, n int64 }
	used          int64
}

func (l *slidingLog) over(now, n int64) int64 {
	gone := 0
	for gone < len(l.charges) && l.charges[gone].at <= now-l.period {
		l.used -= l.charges[gone].n
		gone++
	}
	l.charges = l.charges[gone:]
	return max(0, l.used+n-l.limit)
}

func (l *slidingLog) charge(now, n int64) {
	l.charges = append(l.charges, struct{ at, n int64 }{now, n})
	l.used += n
}

// A slidingCounter counts in slices.
type slidingCounter struct {
	limit, size, tick int64 // of a slice, in ticks of so many µs
	counts            map[int64]int64
	n                 int64 // slices in the window
}

func newSlices(spec weir.SlidingCounter) *slidingCounter {
	n := max(spec.Slices, 1)
	size := spec.Window.Microseconds() / n
	s := &slidingCounter{limit: spec.Limit, n: n, counts: make(map[int64]int64)}
	for _, tick := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		s.tick = tick.Microseconds()
		s.size = size / s.tick
		if hi, lo := bits.Mul64(uint64(spec.Limit), uint64(s.size)); size%s.tick == 0 && hi == 0 && lo <= 1<<52 {
			break
		}
	}
	return s
}

func (s *slidingCounter) over(now, n int64) int64 {
	ticks := now / s.tick
	i, into := ticks/s.size, ticks%s.size
	full := int64(0)
	for at, count := range s.counts {
		if at < i-s.n {
			delete(s.counts, at)
		} else if at > i-s.n {
			full += count
		}
	}
	hi, lo := bits.Mul64(uint64(s.counts[i-s.n]), uint64(s.size-into))
	part, rest := bits.Div64(hi, lo, uint64(s.size))
	return max(0, full+int64(part)+int64(min(rest, 1))+n-s.limit)
}

func (s *slidingCounter) charge(now, n int64) { s.counts[now/s.tick/s.size] += n }

// midnight is when the recount begins, which matters to calendars.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// limits are one of each algorithm and form.
var limits = map[string]weir.Spec{
	"bucket":            weir.TokenBucket{Capacity: 7, Refill: 3, Period: time.Second},
	"fraction":          weir.TokenBucket{Capacity: 5, Refill: 7, Period: 999_999 * time.Microsecond},
	"overdraft":         weir.TokenBucket{Capacity: 4, Refill: 5, Period: time.Second, Overdraft: 3},
	"steps":             weir.TokenBucket{Capacity: 9, Refill: 4, Period: time.Second, Mode: weir.Step},
	"window":            weir.FixedWindow{Limit: 6, Window: 1500 * time.Millisecond},
	"epoch":             weir.FixedWindow{Limit: 6, Window: 700 * time.Millisecond, Anchor: weir.Epoch},
	"calendar":          weir.Calendar{Limit: 40, Unit: weir.Minute, Zone: "Asia/Kathmandu"},
	"log":               weir.SlidingLog{Limit: 6, Window: time.Second},
	"two counters":      weir.SlidingCounter{Limit: 8, Window: time.Second, Slices: 1},
	"counter of slices": weir.SlidingCounter{Limit: 8, Window: 1200 * time.Millisecond, Slices: 6},
	"coarse counter":    weir.SlidingCounter{Limit: 1 << 30, Window: 7000 * time.Second, Slices: 7},
}

// period is that of a limit in µs.
func period(l *weir.Limit) int64 {
	if l.Algorithm() == weir.AlgorithmCalendar {
		return time.Minute.Microseconds()
	}
	return l.Period()
}

// The recount has arithmetic of its own, and grants what the store grants.
func TestRecountGrantsWhatTheStoreGrants(t *testing.T) {
	for name, spec := range limits {
		t.Run(name, func(t *testing.T) {
			limit := weir.MustLimit("limit", spec)
			now, most, period := weir.Instant(midnight.UnixMicro()), limit.Most(), period(limit)
			store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
			chance, c := rand.New(rand.NewPCG(7, 7)), newCounter(limit)
			granted := 0
			for i := range 20_000 {
				now += weir.Instant(chance.Int64N(1 + period*2/most))
				if chance.IntN(50) == 0 {
					now += weir.Instant(chance.Int64N(3 * period))
				}
				cost := 1 + chance.Int64N(max(3, most/8))
				n, err := store.Decide(context.Background(), []weir.Claim{{Key: "k", Limit: limit, Cost: cost}}, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				if over := c.over(int64(now), cost); (over == 0) != (n == 1) {
					t.Fatalf("step %d at %d: cost %d, granted %d, and %d over", i, now, cost, n, over)
				}
				if n == 1 {
					granted++
					c.charge(int64(now), cost)
				}
			}
			if granted < 1000 || granted > 19_000 {
				t.Errorf("%d of 20000 were granted, which tests little", granted)
			}
		})
	}
}

// Units that are charged beyond the limit are counted as over.
func TestRecountCountsTheExcess(t *testing.T) {
	at := midnight.UnixMicro()
	for name, spec := range limits {
		limit := weir.MustLimit("limit", spec)
		c := newCounter(limit)
		c.charge(at, limit.Most()+5)
		if got := c.over(at, 0); got != 5 {
			t.Errorf("%s: %d over, want 5", name, got)
		}
		if got := c.over(at+4*period(limit)*min(limit.Most()+5, 20), 0); got != 0 {
			t.Errorf("%s: %d over after a long time", name, got)
		}
	}
}
