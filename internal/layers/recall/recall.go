// Package recall is a refusal cache: while a refusal holds, the same request is refused here without a call of the
// store below. A flood of refused requests then costs Redis one call in Config.Longest for each key and node.
//
// # What is answered from memory
//
// Only decisions whose every field is known exactly. A key without a unit left cannot change before its own
// retry-after, because any request that would charge it is refused. So the layer remembers, until then, that
// not one unit is granted, or that a request of cost 0 is refused. It answers from that:
//
//   - a request of one unit, or of cost 0 where that is refused;
//   - of windows, calendars and continuous buckets whose units take a whole number of microseconds to refill:
//     any larger cost;
//   - a request of several claims of which each is known so.
//
// Everything else goes to the store, including a larger cost where some units are left: a smaller request may
// take them meanwhile. (Tempting, and wrong: repeating the earlier answer. Its retry-after would be too short.)
// The wait is counted on the monotonic clock from before the call was sent, for the same limit with the same
// numbers. At is early by as long as the remembered call took and never late: at At + RetryAfter the store
// grants. A caller that passes no decisions only learns whether it is granted, so one refused claim is enough.
//
// A refusal is forgotten when [Store.Refund], [Store.Reset] or [Store.Charge] changes the state of its key:
// here before the call is sent and again when it returns, on other nodes as soon as they receive the message
// (see [Updates]).
//
// # What can be stale
//
// A refusal can be stale for up to Config.Longest if this node receives no message about a change: Redis lost its
// data or its clock was stepped, another program wrote there, a message was lost, a refund was executed after its
// call had been given up, nodes had other numbers for one limit, this machine slept, or a Redis Cluster returned
// units that one slot granted and another refused. Where decisions span several slots, choose it short: a second.
//
// # What is never remembered
//
// Concurrency limits, whose retry-after is an upper bound; ids (weir.Once), of which there is one for each grant; keys
// of more than [MaxKey] bytes; errors. Peeks (times = 0) always go to the store.
package recall

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

const (
	// MaxKey is the longest key in bytes that is remembered, so that memory and messages are bounded.
	MaxKey = 256
)

// A Config configures New.
type Config struct {
	// Longest is the longest time for which a refusal is answered from memory; 0 is 10s.
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

// Store is a weir.Store over another one. Make one with New.
type Store struct {
	next     weir.Store
	longest  time.Duration
	clock    func() time.Duration
	seed     layer.Seed
	table    *table
	notifier *notifier // nil without Updates
	decided  sync.Pool
	batches  sync.Pool // of *batch
	recalled stripes
	learned  atomic.Int64
	closed   atomic.Bool
}

// since is the time since now. It is read for each decision: time.Since by itself is compiled into the caller.
func since() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// New returns a layer over a store. Closing it closes the store.
func New(next weir.Store, config Config) *Store {
	if config.Clock == nil {
		config.Clock = since()
	}
	s := &Store{
		next: next, longest: cmp.Or(config.Longest, 10*time.Second), clock: config.Clock,
		seed: layer.NewSeed(), table: newTable(cmp.Or(config.refusals, 100_000)),
	}
	s.batches.New = func() any { return new(batch) }
	s.decided.New = func() any { return new([weir.MaxClaims]weir.Decision) }
	if config.Updates != nil {
		s.notifier = newNotifier(s, config)
		s.notifier.open()
	}
	return s
}

// Stats are counters since New.
type Stats struct {
	Recalled  int64 // decisions refused from memory
	Learned   int64 // refusals remembered
	Evicted   int64 // refusals evicted before their end
	Listening bool  // subscribed to the invalidations of other nodes
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	return Stats{
		Recalled: s.recalled.sum(), Learned: s.learned.Load(), Evicted: s.table.evicted.Load(),
		Listening: s.notifier != nil && s.notifier.listening.Load(),
	}
}

// remembers reports whether refusals of a claim may be remembered.
func remembers(limit *weir.Limit, key string) bool {
	return len(key) <= MaxKey && !limit.Leases()
}

func (s *Store) check(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if s.closed.Load() {
		return weir.ErrClosed
	}
	return weir.Check(claims, times, decisions)
}

// A lookup is the state of the table before a call.
type lookup struct {
	sent    time.Duration
	era     uint64
	hash    [weir.MaxClaims]uint64
	changes [weir.MaxClaims]uint64
	found   [weir.MaxClaims]*refusal

	asked, answered bool // in a batch
}

func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if times < 1 { // a peek should see the store's state; less is an error
		return s.next.Decide(ctx, claims, times, decisions)
	}
	if err := s.check(claims, times, decisions); err != nil {
		return 0, err
	}
	var q lookup
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
func (s *Store) find(q *lookup, claims []weir.Claim) (found int) {
	q.sent, q.era = s.clock(), s.table.era.Load()
	for i := range claims {
		c := &claims[i]
		if len(c.Key) > MaxKey {
			continue
		}
		q.hash[i] = s.seed.State(c.Limit.Hash(), c.Key)
		set := s.table.set(q.hash[i])
		q.changes[i] = set.changes.Load() // before the call is sent
		if q.found[i] = set.find(c.Key, c.Limit, c.Cost, q.hash[i], q.era, q.sent); q.found[i] != nil {
			found++
		}
	}
	return found
}

// answer fills in the known decisions. All claims have one instant, the latest known.
func (q *lookup) answer(claims []weir.Claim, decisions []weir.Decision) {
	var at weir.Instant
	for _, r := range q.found[:len(decisions)] {
		at = max(at, r.at(q.sent))
	}
	for i := range decisions {
		decisions[i] = q.found[i].decision(claims[i].Cost, at)
	}
}

// learn remembers the claims without a unit left, including those whose last units were just granted.
func (s *Store) learn(q *lookup, claims []weir.Claim, decided []weir.Decision) {
	var returned time.Duration
	for i := range claims {
		c := &claims[i]
		if decided[i].RetryAfter == 0 || c.Once || !remembers(c.Limit, c.Key) || underWay(q.changes[i]) {
			continue
		}
		d, cost, ok := none(c, decided[i])
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
		r := &refusal{hash: q.hash[i], key: strings.Clone(c.Key), limit: c.Limit, cost: cost, decided: d, hold: hold,
			changes: q.changes[i], sent: q.sent, returned: returned, era: q.era}
		if s.table.put(r) {
			s.learned.Add(1)
		}
	}
}

// hold is how long a refusal is remembered. Both clocks are slewed by up to 500 ppm, so the last 1/512 of the
// wait is left to the store.
func (s *Store) hold(retryAfter time.Duration) time.Duration {
	return min(s.longest, retryAfter-retryAfter>>9)
}

// DecideKey is Decide of one request, for a remembered refusal of one limit: see weir.Limiter.
func (s *Store) DecideKey(key string, limits []*weir.Limit, cost int64) (worst int, granted bool, remaining int64,
	retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if len(limits) != 1 || len(key) > MaxKey || uint64(cost) > weir.MaxUnits || s.closed.Load() {
		return
	}
	limit := limits[0]
	now, hash := s.clock(), s.seed.State(limit.Hash(), key)
	r := s.table.set(hash).find(key, limit, cost, hash, s.table.era.Load(), now)
	if r == nil {
		return
	}
	s.recalled.add()
	d := r.decision(cost, r.at(now))
	return 0, false, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, true
}

func (s *Store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return s.change(claims, 1, decisions, func() error { return s.next.Charge(ctx, claims, decisions) })
}

func (s *Store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	return s.change(claims, 1, decisions, func() error { return s.next.Refund(ctx, claims, takenAt, decisions) })
}

func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	return s.change(claims, 0, nil, func() error { return s.next.Reset(ctx, claims) })
}

// change makes a call that changes state. It forgets before the call is sent and disables learning until it has
// returned: a caller that has seen the effect must not be refused by an older answer.
func (s *Store) change(claims []weir.Claim, times int64, decisions []weir.Decision, call func() error) error {
	if err := s.check(claims, times, decisions); err != nil {
		return err
	}
	for i := range claims {
		if c := &claims[i]; remembers(c.Limit, c.Key) {
			s.table.set(s.seed.State(c.Limit.Hash(), c.Key)).begin()
		}
	}
	defer s.changed(claims) // also after a failure: the call may have been executed
	return call()
}

func (s *Store) changed(claims []weir.Claim) {
	for i := range claims {
		c := &claims[i]
		if !remembers(c.Limit, c.Key) {
			continue
		}
		s.table.set(s.seed.State(c.Limit.Hash(), c.Key)).end()
		if s.notifier != nil {
			s.notifier.enqueue(c.Limit.Hash(), c.Key)
		}
	}
}

// Stop makes the layer refuse further calls, and ends the exchange with other nodes after sending what is
// queued, for at most a quarter of a second. The store below and the Updates stay open.
func (s *Store) Stop() {
	if !s.closed.Swap(true) && s.notifier != nil {
		s.notifier.close()
	}
}

// Close implements weir.Store: it stops the layer and closes the store below.
func (s *Store) Close() error {
	s.Stop()
	return s.next.Close()
}
