// Package recall is a refusal cache: while a refusal holds, the same request is refused here without a call of
// the store below. A flood of refused requests then costs Redis one call in [WithLongest] for each key and
// node.
//
// # What is answered from memory
//
// Only decisions whose every field is known exactly. A key without a unit left cannot change before its own
// retry-after, because any request that would charge it is refused. So the layer remembers, until then, that
// not one unit is granted, or that a request of cost 0 is refused. It answers from that:
//
//   - a request of one unit, or of cost 0 where that is refused;
//   - of windows, calendars and continuous buckets whose units take a whole number of microseconds to refill:
//     any larger
//     cost;
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
// (see [News]).
//
// # What can be stale
//
// A refusal can be stale for up to [WithLongest] if this node receives no message about a change: Redis lost
// its data or its clock was stepped, another program wrote there, a message was lost, a refund was executed
// after its call had been given up, nodes had other numbers for one limit, this machine slept, or a Redis
// Cluster returned units that one slot granted and another refused. Where decisions span several slots, choose
// it short: a second.
//
// # What is never remembered
//
// Concurrency limits, whose retry-after is an upper bound; keys of more than [MaxKey] bytes; errors. Peeks
// (times = 0) always go to the store.
package recall

import (
	"context"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/mix"
)

const (
	// DefaultLongest is the default of WithLongest.
	DefaultLongest = 10 * time.Second
	// DefaultRefusals is the default of WithRefusals.
	DefaultRefusals = 100_000
	// MaxRefusals is the largest value of WithRefusals.
	MaxRefusals = 1 << 24
	// MaxKey is the longest key in bytes that is remembered, so that memory and messages are bounded.
	MaxKey = 256
)

// An Option configures New.
type Option func(*config)

type config struct {
	longest  time.Duration
	refusals int
	news     News
	clock    func() time.Duration
	warn     func(text string)
}

// WithLongest sets the longest time for which a refusal is answered from memory; more than 0. The default is
// 10s.
func WithLongest(longest time.Duration) Option { return func(c *config) { c.longest = longest } }

// WithRefusals sets how many refusals are remembered, 1 to MaxRefusals, rounded up to a power of two, at least
// 8. The default is 100,000. One takes about 170 bytes and its key.
func WithRefusals(n int) Option { return func(c *config) { c.refusals = n } }

// WithNews connects this node to the others, for changes of state. Without it, changes through other nodes are
// noticed after WithLongest.
func WithNews(news News) Option { return func(c *config) { c.news = news } }

// WithClock sets the monotonic clock, for tests: the time since any fixed instant, safe for concurrent use. The
// default is the process's clock.
func WithClock(clock func() time.Duration) Option { return func(c *config) { c.clock = clock } }

// WithWarn sets a function that is called when invalidations can no longer be sent or received; the default is
// slog.Warn, and nil is silence.
func WithWarn(warn func(text string)) Option { return func(c *config) { c.warn = warn } }

func (c *config) check() error {
	switch {
	case c.longest <= 0:
		return &weir.InputError{Field: "longest", Given: c.longest, Allowed: "more than 0, such as 10s"}
	case c.refusals < 1 || c.refusals > MaxRefusals:
		return &weir.InputError{Field: "refusals", Given: c.refusals, Allowed: "1 to 16777216"}
	case c.clock == nil:
		return &weir.InputError{Field: "clock", Given: "nil",
			Allowed: "a function that returns the time since a fixed instant"}
	}
	return nil
}

// Store is a weir.Store over another one. Make one with New.
type Store struct {
	next     weir.Store
	longest  time.Duration
	clock    func() time.Duration
	seed     maphash.Seed
	table    *table
	notifier *notifier // nil without News
	decided  sync.Pool
	batches  sync.Pool // of *batch
	recalled stripes
	learned  atomic.Int64
	closed   atomic.Bool
}

// New returns a layer over a store. Closing it closes the store.
func New(next weir.Store, opts ...Option) (*Store, error) {
	start := time.Now()
	c := config{
		longest: DefaultLongest, refusals: DefaultRefusals,
		clock: func() time.Duration { return time.Since(start) },
		warn:  func(text string) { slog.Warn(text) },
	}
	for _, opt := range opts {
		opt(&c)
	}
	if next == nil {
		return nil, &weir.InputError{Field: "store", Given: "nil", Allowed: "a store, such as one of redisstore.Open"}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Store{next: next, longest: c.longest, clock: c.clock, seed: maphash.MakeSeed(), table: newTable(c.refusals)}
	s.batches.New = func() any { return new(batch) }
	s.decided.New = func() any { return new([weir.MaxClaims]weir.Decision) }
	if c.news != nil {
		s.notifier = newNotifier(s, c.news, c.warn)
		s.notifier.open()
	}
	return s, nil
}

// Stats are counters since New.
type Stats struct {
	Recalled  int64 // decisions refused from memory
	Learned   int64 // refusals remembered
	Evicted   int64 // refusals evicted before their end: if it grows, raise WithRefusals
	Listening bool  // subscribed to the invalidations of other nodes
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	return Stats{
		Recalled: s.recalled.sum(), Learned: s.learned.Load(), Evicted: s.table.evicted.Load(),
		Listening: s.notifier != nil && s.notifier.listening.Load(),
	}
}

// hash is that of a state: the limit's name and algorithm, and the key.
func (s *Store) hash(limit uint64, key string) uint64 {
	return mix.Bits(maphash.String(s.seed, key) ^ limit)
}

// remembers reports whether refusals of a claim may be remembered.
func remembers(limit *weir.Limit, key string) bool {
	return len(key) <= MaxKey && limit.Algorithm() != weir.AlgorithmConcurrency
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

// Decide implements weir.Store.
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
		q.hash[i] = s.hash(c.Limit.Hash(), c.Key)
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
		if decided[i].RetryAfter == 0 || !remembers(c.Limit, c.Key) || underWay(q.changes[i]) {
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

// Shortcut implements weir.Shortcut for remembered refusals.
func (s *Store) Shortcut(key string, limit *weir.Limit,
	cost int64) (granted bool, remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	if len(key) > MaxKey || uint64(cost) > weir.MaxUnits || s.closed.Load() {
		return
	}
	now, hash := s.clock(), s.hash(limit.Hash(), key)
	r := s.table.set(hash).find(key, limit, cost, hash, s.table.era.Load(), now)
	if r == nil || r.decided.Delay != 0 {
		return
	}
	s.recalled.add()
	d := r.decision(cost, r.at(now))
	return false, d.Remaining, d.RetryAfter, d.ResetAfter, d.At, true
}

// Charge implements weir.Store.
func (s *Store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	s.changing(claims)
	defer s.changed(claims)
	return s.next.Charge(ctx, claims, decisions)
}

// Refund implements weir.Store.
func (s *Store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	s.changing(claims)
	defer s.changed(claims)
	return s.next.Refund(ctx, claims, takenAt, decisions)
}

// Reset implements weir.Store.
func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := s.check(claims, 0, nil); err != nil {
		return err
	}
	s.changing(claims)
	defer s.changed(claims)
	return s.next.Reset(ctx, claims)
}

// changing forgets before the call is sent and disables learning until it has returned: a caller that has seen
// the effect must not be refused by an older answer.
func (s *Store) changing(claims []weir.Claim) {
	for i := range claims {
		if c := &claims[i]; remembers(c.Limit, c.Key) {
			s.table.set(s.hash(c.Limit.Hash(), c.Key)).begin()
		}
	}
}

// changed is called after failures too, because a failed call may have been executed.
func (s *Store) changed(claims []weir.Claim) {
	for i := range claims {
		c := &claims[i]
		if !remembers(c.Limit, c.Key) {
			continue
		}
		s.table.set(s.hash(c.Limit.Hash(), c.Key)).end()
		if s.notifier != nil {
			s.notifier.enqueue(c.Limit.Hash(), c.Key)
		}
	}
}

// Stop makes the layer refuse further calls, and ends the exchange with other nodes after sending what is
// queued, for at most a quarter of a second. The store below and the News stay open.
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
