package layers

import (
	"cmp"
	"context"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// The refusal cache: while a refusal holds, the same request is refused here without a call of the
// store below. A flood of refused requests then costs Redis one call in refusalConfig.Longest for each key and node.
//
// # Answers from memory
//
// Only decisions with exactly known fields are answered from memory. A key without a unit left cannot change before its
// own retry-after, because any request that would charge it is refused. So the layer remembers, until then, that not
// one unit is granted, or that a request of cost 0 is refused. It answers from that:
//
//   - a request of one unit, or of cost 0 where that is refused;
//   - of windows, calendars and continuous buckets with units that take a whole number of microseconds to refill:
//     any larger cost, and any floor;
//   - of windows and calendars, where a claim with a floor finds no unit above it: any claim with that floor or a
//     larger one. Claims with a smaller one may be granted meanwhile; but in a window this changes nothing for the
//     others, whereas in a bucket, a log or a counter it would lengthen their wait;
//   - a request of several claims that are each known so.
//
// Everything else goes to the store, including a larger cost where some units are left: a smaller request may
// take them meanwhile. (Tempting, and wrong: repeating the earlier answer. Its retry-after would be too short.)
// The wait is counted on the monotonic clock from before the call was sent, for the same limit with the same
// numbers. At is early by as long as the remembered call took and never late: at At + RetryAfter the store
// grants. A caller that passes no decisions only learns whether it is granted, so one refused claim is enough.
//
// A refusal is forgotten when Refund, Reset or Charge changes the state of its key:
// here before the call is sent and again when it returns, on other nodes as soon as they receive the message
// (see Updates).
//
// # What can be stale
//
// A refusal can be stale for up to refusalConfig.Longest if this node receives no message about a change: Redis lost
// its data or its clock was stepped, another program wrote there, a message was lost, a refund was executed after its
// call had been given up, nodes had other numbers for one limit, this machine slept, or a Redis Cluster returned units
// that one slot granted and another refused. Where decisions span several slots, choose it short: a second.
//
// # Never remembered
//
// Concurrency limits, because their retry-after is an upper bound; ids (weir.Once), because each grant has another;
// keys of more than maxRememberedKey bytes; errors. Peeks (times = 0) always go to the store.

const (
	// maxRememberedKey is the longest key in bytes that is remembered, so that memory and messages are bounded.
	maxRememberedKey = 256
)

// A refusalConfig configures the layer.
type refusalConfig struct {
	// Longest is the longest time that a refusal is answered from memory; 0 is 10s.
	Longest time.Duration
	// Updates connects this node to the others, for changes of state. Without it, changes through other nodes are
	// noticed after Longest.
	Updates Updates
	// Warn is called when invalidations can no longer be sent or received; nil is silence.
	Warn func(text string)
	// Clock is the monotonic clock, for tests: the time since any fixed instant, safe for concurrent use. Nil is the
	// process's clock.
	Clock func() time.Duration

	refusals int // how many are remembered, rounded up to a power of two, at least 8; one takes 170 bytes and its key
}

// refusalCache is a weir.Store over another one.
type refusalCache struct {
	next     weir.Store
	longest  time.Duration
	clock    func() time.Duration
	seed     hashSeed
	table    *refusalTable
	notifier *notifier // nil without Updates
	decided  sync.Pool
	batches  sync.Pool // of *batch
	recalled stripedCounter
	learned  atomic.Int64
	closed   atomic.Bool
}

// monotonic is the time since now. It is read for each decision: time.Since is compiled into the caller.
func monotonic() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// newRefusalCache returns a layer over a store. Closing it closes the store.
func newRefusalCache(next weir.Store, config refusalConfig) *refusalCache {
	if config.Clock == nil {
		config.Clock = monotonic()
	}
	s := &refusalCache{
		next: next, longest: cmp.Or(config.Longest, 10*time.Second), clock: config.Clock,
		seed: newHashSeed(), table: newRefusalTable(cmp.Or(config.refusals, 100_000)),
	}
	s.batches.New = func() any { return new(refusalBatch) }
	s.decided.New = func() any { return new([weir.MaxClaims]weir.Decision) }
	if config.Updates != nil {
		s.notifier = newNotifier(s, config)
		s.notifier.open()
	}
	return s
}

// refusalStats are counters since New.
type refusalStats struct {
	Recalled  int64 // decisions refused from memory
	Learned   int64 // refusals remembered
	Evicted   int64 // refusals evicted before their end
	Listening bool  // subscribed to the invalidations of other nodes
}

// Stats returns the counters.
func (s *refusalCache) Stats() refusalStats {
	return refusalStats{
		Recalled: s.recalled.sum(), Learned: s.learned.Load(), Evicted: s.table.evicted.Load(),
		Listening: s.notifier != nil && s.notifier.listening.Load(),
	}
}

// isRemembered reports whether refusals of a claim may be remembered.
func isRemembered(limit *weir.Limit, key string) bool {
	return len(key) <= maxRememberedKey && !limit.Leases() && limit.Whole() == nil // a refusal of it is for one member
}

func (s *refusalCache) check(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if s.closed.Load() {
		return weir.ErrClosed
	}
	return weir.Check(claims, times, decisions)
}

// A refusalLookup is the state of the table before a call.
type refusalLookup struct {
	sent    time.Duration
	era     uint64
	hash    [weir.MaxClaims]uint64
	changes [weir.MaxClaims]uint64
	found   [weir.MaxClaims]*refusal

	asked, answered bool // in a batch
}

func (s *refusalCache) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if times < 1 { // a peek should see the store's state; less is an error
		return s.next.Decide(ctx, claims, times, decisions)
	}
	if err := s.check(claims, times, decisions); err != nil {
		return 0, err
	}
	var q refusalLookup
	if found := s.find(&q, claims); found == len(claims) || found > 0 && decisions == nil {
		s.recalled.add()
		q.answer(claims, decisions)
		return 0, nil
	}
	decided := decisions
	if decided == nil {
		borrowed := s.decided.Get().(*[weir.MaxClaims]weir.Decision)
		defer s.decided.Put(borrowed)
		decided = borrowed[:len(claims)]
	}
	granted, err := s.next.Decide(ctx, claims, times, decided)
	if err == nil {
		s.learn(&q, claims, decided)
	}
	return granted, err
}

// find looks the claims up, and counts those known to be refused.
func (s *refusalCache) find(q *refusalLookup, claims []weir.Claim) (found int) {
	q.sent, q.era = s.clock(), s.table.era.Load()
	for i := range claims {
		c := &claims[i]
		if len(c.Key) > maxRememberedKey {
			continue
		}
		q.hash[i] = s.seed.state(c.Limit.Hash(), c.Key)
		set := s.table.set(q.hash[i])
		q.changes[i] = set.changes.Load() // before the call is sent
		if q.found[i] = set.find(c, q.hash[i], q.era, q.sent); q.found[i] != nil {
			found++
		}
	}
	return found
}

// answer fills in the known decisions. All claims have one instant, the latest known.
func (q *refusalLookup) answer(claims []weir.Claim, decisions []weir.Decision) {
	var at weir.Instant
	for _, r := range q.found[:len(decisions)] {
		at = max(at, r.at(q.sent))
	}
	for i := range decisions {
		decisions[i] = q.found[i].decision(&claims[i], at)
	}
}

// learn remembers the claims without a unit left, including claims that were just granted their last units.
func (s *refusalCache) learn(q *refusalLookup, claims []weir.Claim, decided []weir.Decision) {
	var returned time.Duration
	for i := range claims {
		c := &claims[i]
		if decided[i].RetryAfter == 0 || c.Once || !isRemembered(c.Limit, c.Key) || changesUnderWay(q.changes[i]) {
			continue
		}
		d, cost, ok := refusalOfOne(c, decided[i])
		if !ok {
			continue
		}
		if returned == 0 {
			returned = s.clock()
		}
		hold := s.hold(d.RetryAfter)
		if returned-q.sent >= hold {
			continue
		}
		r := &refusal{hash: q.hash[i], key: strings.Clone(c.Key), limit: c.Limit, cost: cost, floor: c.Floor,
			decided: d, hold: hold, changes: q.changes[i], sent: q.sent, returned: returned, era: q.era}
		if s.table.put(r) {
			s.learned.Add(1)
		}
	}
}

// hold is how long a refusal is remembered. Both clocks are slewed by up to 500 ppm, so the last 1/512 of the
// wait is left to the store.
func (s *refusalCache) hold(retryAfter time.Duration) time.Duration {
	return min(s.longest, retryAfter-retryAfter>>9)
}

// DecideKey is Decide of one request, for a remembered refusal of one limit: see weir.Limiter.
func (s *refusalCache) DecideKey(key string, limits []*weir.Limit, cost, floor int64) (worst int, granted bool,
	remaining int64, retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if len(limits) != 1 || len(key) > maxRememberedKey || s.closed.Load() ||
		uint64(cost) > weir.MaxUnits || uint64(floor) > weir.MaxUnits {
		return
	}
	c := weir.Claim{Key: key, Limit: limits[0], Cost: cost, Floor: floor}
	now, hash := s.clock(), s.seed.state(c.Limit.Hash(), key)
	r := s.table.set(hash).find(&c, hash, s.table.era.Load(), now)
	if r == nil {
		return
	}
	s.recalled.add()
	d := r.decision(&c, r.at(now))
	return 0, false, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, true
}

func (s *refusalCache) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return s.change(claims, 1, decisions, func() error { return s.next.Charge(ctx, claims, decisions) })
}

func (s *refusalCache) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	return s.change(claims, 1, decisions, func() error { return s.next.Refund(ctx, claims, takenAt, decisions) })
}

func (s *refusalCache) Reset(ctx context.Context, claims []weir.Claim) error {
	return s.change(claims, 0, nil, func() error { return s.next.Reset(ctx, claims) })
}

// change makes a call that changes state. It forgets before the call is sent and disables learning until it has
// returned: a caller that has seen the effect must not be refused by an older answer.
func (s *refusalCache) change(claims []weir.Claim, times int64, decisions []weir.Decision, call func() error) error {
	if err := s.check(claims, times, decisions); err != nil {
		return err
	}
	for i := range claims {
		if c := &claims[i]; isRemembered(c.Limit, c.Key) {
			s.table.set(s.seed.state(c.Limit.Hash(), c.Key)).begin()
		}
	}
	defer s.changed(claims) // also after a failure: the call may have been executed
	return call()
}

func (s *refusalCache) changed(claims []weir.Claim) {
	for i := range claims {
		c := &claims[i]
		if !isRemembered(c.Limit, c.Key) {
			continue
		}
		s.table.set(s.seed.state(c.Limit.Hash(), c.Key)).end()
		if s.notifier != nil {
			s.notifier.enqueue(c.Limit.Hash(), c.Key)
		}
	}
}

// Stop makes the layer refuse further calls, and ends the exchange with other nodes after sending the queued
// states, for at most a quarter of a second. The store below and the Updates stay open.
func (s *refusalCache) Stop() {
	if !s.closed.Swap(true) && s.notifier != nil {
		s.notifier.close()
	}
}

// Close implements weir.Store: it stops the layer and closes the store below.
func (s *refusalCache) Close() error {
	s.Stop()
	return s.next.Close()
}

// A refusal is a store's decision about a key that has no unit left above a floor. It is immutable but for asked.
type refusal struct {
	hash    uint64
	key     string
	limit   *weir.Limit
	cost    int64         // the refused cost: 1, or 0
	floor   int64         // the refused floor; above 0 for windows and calendars alone
	decided weir.Decision // the decision for that cost and floor

	hold           time.Duration // how long it holds, since sent
	sent, returned time.Duration // times of the call on the monotonic clock
	era            uint64        // of the table, before the call
	changes        uint64        // of the set, before the call

	asked atomic.Bool // used since the clock hand passed
}

// refusalOfOne derives the decision for one unit of the claim's key (for cost 0, if the claim costs 0) above its floor.
// ok is false unless that is refused and known exactly.
func refusalOfOne(c *weir.Claim, d weir.Decision) (decided weir.Decision, cost int64, ok bool) {
	switch {
	case c.Floor > 0 && !c.Limit.Windowed(): // claims with a smaller floor may lengthen the wait
		return d, c.Cost, false
	case c.Floor > 0:
		return d, min(c.Cost, 1), d.RetryAfter > 0 && d.RetryAfter != weir.Never && d.Remaining == 0
	case c.Cost <= 1:
		return d, c.Cost, d.RetryAfter > 0
	case d.Remaining > 0 || d.RetryAfter == weir.Never:
		return d, 1, false
	}
	longer, ok := longerWait(c.Limit, c.Cost)
	d.RetryAfter -= longer
	return d, 1, ok
}

// is reports whether the refusal is of a state.
func (r *refusal) is(key string, limit *weir.Limit) bool {
	return r.key == key && r.limit.SameState(limit)
}

// sameNumbers compares the numbers of limits, because a reload makes new limits.
func sameNumbers(a, b *weir.Limit) bool { return a == b || a.String() == b.String() }

// covers reports whether the refusal determines the decision for a cost and a floor. Cost 0 covers no other cost: the
// store corrects a state of a clock that was ahead only for a request that asks for units.
func (r *refusal) covers(cost, floor int64) bool {
	if r.floor > 0 { // of a window, whose end is the end of every wait
		return floor >= r.floor && (cost > 0) == (r.cost > 0)
	}
	return r.coversUnits(cost + floor)
}

// coversUnits is covers without a floor: where no unit is left, a floor waits as so many units would. Cost 0 covers
// only itself: its wait is not the wait for a unit.
func (r *refusal) coversUnits(cost int64) bool {
	if cost == r.cost {
		return true
	}
	if cost < r.cost || r.cost == 0 {
		return false
	}
	_, ok := longerWait(r.limit, cost)
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

// decision is the store's decision for a covered claim at an instant.
func (r *refusal) decision(c *weir.Claim, at weir.Instant) weir.Decision {
	d, needs := movedTo(r.decided, at), algorithm.Needs(c)
	switch {
	case needs > r.limit.Most() || d.RetryAfter == weir.Never:
		d.RetryAfter = weir.Never
	case needs != r.cost:
		longer, _ := longerWait(r.limit, needs)
		d.RetryAfter += longer
	}
	return d
}

// movedTo is an earlier decision as of an instant.
func movedTo(d weir.Decision, at weir.Instant) weir.Decision {
	by := time.Duration(at-d.At) * time.Microsecond
	d.At = at
	d.ResetAfter, d.Delay = max(0, d.ResetAfter-by), max(0, d.Delay-by)
	if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		d.RetryAfter = max(time.Microsecond, d.RetryAfter-by)
	}
	return d
}

// longerWait is how much longer a cost waits than one unit where no unit is left: a window has all units at its
// end, and a bucket gains one in each interval. ok is false where that is not known to the microsecond: of
// buckets that step, or with an interval of a fraction of one, and of logs and counters.
func longerWait(l *weir.Limit, cost int64) (wait time.Duration, ok bool) {
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

// refusalBatch is the reused memory of one DecideBatch.
type refusalBatch struct {
	lookups []refusalLookup
	rest    passedOn
}

// DecideBatch implements weir.Batcher. Requests known to be refused are answered here, with the requests that
// follow them; the others go to the store below together.
func (s *refusalCache) DecideBatch(ctx context.Context, requests []weir.Request) {
	if s.closed.Load() {
		for i := range requests {
			requests[i].Granted, requests[i].Err = 0, weir.ErrClosed
		}
		return
	}
	b := s.batches.Get().(*refusalBatch)
	defer s.batches.Put(b)
	if cap(b.lookups) < len(requests) {
		b.lookups = make([]refusalLookup, len(requests))
	}
	lookups := b.lookups[:len(requests)]
	answered := false
	for i := range requests {
		answered = s.answers(&lookups[i], &requests[i]) || answered
	}
	if !answered {
		decideBatch(ctx, s.next, requests)
	} else {
		for i := range requests {
			switch r := &requests[i]; {
			case b.rest.void(r):
			case lookups[i].answered:
				b.rest.answered(r)
			default:
				b.rest.add(i, r)
			}
		}
		b.rest.decide(ctx, s.next, requests)
	}
	for i := range requests {
		s.learnFrom(lookups[i:], requests[i:])
	}
	clear(lookups)
}

// answers answers a request that is known to be refused.
func (s *refusalCache) answers(q *refusalLookup, r *weir.Request) bool {
	q.asked = false
	if r.Times < 1 || r.Check() != nil {
		return false
	}
	q.asked = true
	found := s.find(q, r.Claims)
	q.answered = found == len(r.Claims) || found > 0 && r.Decisions == nil
	if !q.answered {
		return false
	}
	s.recalled.add()
	r.Granted, r.Err = 0, nil
	for rest := r.Decisions; len(rest) > 0; rest = rest[len(r.Claims):] {
		q.answer(r.Claims, rest[:len(r.Claims)])
	}
	return true
}

// learnFrom learns from the last decisions of the first request, unless a later request shares a key: units may
// have come back in between.
func (s *refusalCache) learnFrom(lookups []refusalLookup, requests []weir.Request) {
	q, r := &lookups[0], &requests[0]
	if !q.asked || q.answered || r.Err != nil || r.Decisions == nil {
		return
	}
	decided := r.Decisions[len(r.Decisions)-len(r.Claims):]
	refuses := slices.ContainsFunc(decided, func(d weir.Decision) bool { return d.RetryAfter != 0 })
	if !refuses || outdated(q.hash[:len(r.Claims)], lookups[1:], requests[1:]) {
		return
	}
	s.learn(q, r.Claims, decided)
}

// outdated reports whether one of some states is among the states of requests.
func outdated(states []uint64, lookups []refusalLookup, requests []weir.Request) bool {
	for i := range requests {
		for _, hash := range lookups[i].hash[:min(len(requests[i].Claims), weir.MaxClaims)] {
			if hash != 0 && slices.Contains(states, hash) {
				return true
			}
		}
	}
	return false
}

const (
	setWays  = 8
	oneEvent = 1 << 32 // in set.changes
)

// A refusalTable is a fixed number of small sets of refusals. Each state belongs to one set, so that looking up and
// evicting take constant time.
type refusalTable struct {
	sets    []refusalSet
	shift   uint8
	era     atomic.Uint64 // refusals of earlier eras are forgotten
	evicted atomic.Int64
}

// A refusalSet is read without a lock. Its refusals are forgotten together, so that a change needs no search; it
// seldom affects other keys.
type refusalSet struct {
	changes atomic.Uint64 // upper 32 bits: times forgotten; lower: calls under way that change a state
	tags    [setWays]atomic.Uint32
	mu      sync.Mutex // for writing tags and refusals
	hand    uint32
	way     [setWays]atomic.Pointer[refusal]
	_       [8]byte // two cache lines in all
}

func newRefusalTable(refusals int) *refusalTable {
	width := bits.Len(uint(max(1, refusals-1) / setWays))
	t := &refusalTable{sets: make([]refusalSet, 1<<width), shift: uint8(64 - width)}
	return t
}

func (t *refusalTable) set(hash uint64) *refusalSet { return &t.sets[hash>>t.shift] }

// tagOf is a part of a hash that excludes nearly all other keys; 0 is an empty slot.
func tagOf(hash uint64) uint32 { return uint32(hash) | 1 }

// forget forgets everything.
func (t *refusalTable) forget() { t.era.Add(1) }

// find returns a refusal that currently answers for a claim.
func (s *refusalSet) find(c *weir.Claim, hash, era uint64, now time.Duration) *refusal {
	for i := range s.tags {
		if s.tags[i].Load() != tagOf(hash) {
			continue
		}
		r := s.way[i].Load()
		if r == nil || !r.is(c.Key, c.Limit) || !r.holds(era, s.changes.Load(), now) {
			continue
		}
		if !sameNumbers(r.limit, c.Limit) {
			s.forget() // grants under one limit's numbers may change refusals under the other's
			return nil
		}
		if !r.covers(c.Cost, c.Floor) {
			return nil
		}
		if !r.asked.Load() { // avoids a write for each use, which would bounce the cache line
			r.asked.Store(true)
		}
		return r
	}
	return nil
}

// begin forgets, and disables the set until end.
func (s *refusalSet) begin() { s.changes.Add(oneEvent + 1) }

// end forgets the decisions of calls that began before it.
func (s *refusalSet) end() { s.changes.Add(oneEvent - 1) }

func (s *refusalSet) forget() { s.changes.Add(oneEvent) }

func changesUnderWay(changes uint64) bool { return changes%oneEvent != 0 }

// put remembers a refusal, and reports whether it did.
func (t *refusalTable) put(r *refusal) bool {
	s := t.set(r.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	era, changes := t.era.Load(), s.changes.Load()
	if !r.holds(era, changes, r.returned) {
		return false // forgotten during the call
	}
	i := s.own(r, era, changes)
	if i < 0 {
		i = s.free(era, changes, r.returned)
	}
	if i < 0 {
		i = s.victim()
		t.evicted.Add(1)
	}
	if i == setWays {
		return false
	}
	s.way[i].Store(r)
	s.tags[i].Store(tagOf(r.hash))
	return true
}

// own is the slot with a refusal of the same state: −1 if no slot has it, ways if that one should stay. The one
// that covers more is kept, among equals the later one.
func (s *refusalSet) own(r *refusal, era, changes uint64) int {
	for i := range s.way {
		old := s.way[i].Load()
		if old == nil || !old.is(r.key, r.limit) {
			continue
		}
		if old.holds(era, changes, r.returned) && old.covers(r.cost, r.floor) && sameNumbers(old.limit, r.limit) &&
			(!r.covers(old.cost, old.floor) || old.sent >= r.sent) {
			return setWays
		}
		return i
	}
	return -1
}

// free is an empty or expired slot, or −1.
func (s *refusalSet) free(era, changes uint64, now time.Duration) int {
	for i := range s.way {
		if old := s.way[i].Load(); old == nil || !old.holds(era, changes, now) {
			return i
		}
	}
	return -1
}

// victim is the first slot that was not used since the clock hand passed. So a flood of keys that come once
// each evicts its own, not a key that is being refused.
func (s *refusalSet) victim() int {
	i := s.hand % setWays
	for range setWays {
		s.hand++
		if !s.way[i].Load().asked.Swap(false) {
			break
		}
		i = s.hand % setWays
	}
	return int(i)
}

// stripedCounter are a counter without one cache line that all cores write.
type stripedCounter [16]struct {
	n atomic.Int64
	_ [56]byte
}

func (s *stripedCounter) add() { s[rand.Uint32()%uint32(len(s))].n.Add(1) }

func (s *stripedCounter) sum() (n int64) {
	for i := range s {
		n += s[i].n.Load()
	}
	return n
}
