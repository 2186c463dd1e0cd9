// Package recall is a store over a store that remembers refusals: while a refusal holds, the
// same request is refused here, and the store below is not asked. A flood of refused requests
// then costs Redis one call in [WithLongest], by each node.
//
// # What is answered from memory
//
// Only what is known exactly: each field of each decision is what the store would say. What makes
// that possible is that a key without a unit left cannot change before its own retry-after: any
// request that would charge it is refused. So it is remembered, until then, that not one unit is
// granted, or that a request of cost 0 is refused; and from that are answered:
//
//   - a request of one unit, or of cost 0 where that is refused;
//   - of windows, calendars and continuous buckets whose units take a whole number of
//     microseconds to refill: any larger cost;
//   - a request of several claims of which each is known so.
//
// Everything else is asked, and so is a larger cost where some units are left: a smaller request
// may take those meanwhile. (Tempting, and wrong: to answer it with what was said earlier. Its
// retry-after would be too short.) The wait is counted on the monotonic clock from before the
// call was sent, for the same limit with the same numbers. At is early by as long as the
// remembered call took; it never is late: at At + RetryAfter the store grants. A caller that
// passes no decisions wants to know only whether it is granted: for it one claim is enough.
//
// A refusal is forgotten when [Store.Refund], [Store.Reset] or [Store.Charge] changes the state
// of its key: here before the call is sent and again when it returns, on other nodes as soon as
// they receive the message (see [News]).
//
// # What is believed too long
//
// But never longer than [WithLongest], if nobody tells this node that the state has changed: Redis
// lost its data or its clock was stepped, a program other than weir wrote there, a message was lost, a
// refund was executed after its call had been given up, nodes had other numbers for one limit, this
// machine slept, or a Redis Cluster gave back what one slot granted and another refused. Where
// decisions are of several slots, choose it short: a second.
//
// # What is never remembered
//
// Concurrency limits, whose retry-after is an upper bound; keys of more than [MaxKey] bytes;
// errors. Peeks (times = 0) always ask the store.
package recall

import (
	"context"
	"hash/maphash"
	"log/slog"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	// DefaultLongest is how long a refusal is believed at most, without WithLongest.
	DefaultLongest = 10 * time.Second
	// DefaultRefusals is how many are remembered at most, without WithRefusals.
	DefaultRefusals = 100_000
	// MaxRefusals is the most that WithRefusals takes.
	MaxRefusals = 1 << 24
	// MaxKey is the longest key that is remembered, in bytes: longer ones are passed on, so
	// that memory and messages are bounded.
	MaxKey = 256
)

// An Option changes what New makes.
type Option func(*config)

type config struct {
	longest  time.Duration
	refusals int
	news     News
	clock    func() time.Duration
	warn     func(text string)
}

// WithLongest is the longest that a refusal is believed before the store is asked again;
// more than 0. The default is 10s.
func WithLongest(longest time.Duration) Option { return func(c *config) { c.longest = longest } }

// WithRefusals is how many refusals are remembered, 1 to MaxRefusals; it is rounded up to a
// power of two, at least 8. The default is 100,000. One costs about 170 bytes and its key.
func WithRefusals(n int) Option { return func(c *config) { c.refusals = n } }

// WithNews tells other nodes what was given back here, and hears it of them. Without it
// the store must have no other nodes, or what they give back is learned after WithLongest.
func WithNews(news News) Option { return func(c *config) { c.news = news } }

// WithClock is the monotonic clock, for tests: the time since any fixed instant. It must be
// safe for concurrent use. The default is the process's.
func WithClock(clock func() time.Duration) Option { return func(c *config) { c.clock = clock } }

// WithWarn is told when news can no longer be told or heard; the default is slog.Warn, and
// nil is silence.
func WithWarn(warn func(text string)) Option { return func(c *config) { c.warn = warn } }

func (c *config) check() error {
	switch {
	case c.longest <= 0:
		return &weir.InputError{Field: "longest", Given: c.longest, Allowed: "more than 0, such as 10s"}
	case c.refusals < 1 || c.refusals > MaxRefusals:
		return &weir.InputError{Field: "refusals", Given: c.refusals, Allowed: "1 to 16777216"}
	case c.clock == nil:
		return &weir.InputError{Field: "clock", Given: "nil", Allowed: "a function that tells the time since a fixed instant"}
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
	desk     *desk // nil without news
	said     sync.Pool
	batches  sync.Pool // of *batch
	recalled stripes
	learned  atomic.Int64
	closed   atomic.Bool
}

// New makes a layer over a store, which it closes when it is closed.
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
		return nil, &weir.InputError{Field: "store", Given: "nil", Allowed: "the store to ask, such as one of redisstore.Open"}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Store{next: next, longest: c.longest, clock: c.clock, seed: maphash.MakeSeed(), table: newTable(c.refusals)}
	s.batches.New = func() any { return new(batch) }
	s.said.New = func() any { return new([weir.MaxClaims]weir.Decision) }
	if c.news != nil {
		s.desk = newDesk(s, c.news, c.warn)
		s.desk.open()
	}
	return s, nil
}

// Stats are counts of a layer since it was made.
type Stats struct {
	Recalled  int64 // decisions that were refused from memory
	Learned   int64 // refusals that were remembered
	Evicted   int64 // refusals that still held and made room for others: give it more
	Listening bool  // news of other nodes are heard now
}

// Stats counts.
func (s *Store) Stats() Stats {
	return Stats{
		Recalled: s.recalled.sum(), Learned: s.learned.Load(), Evicted: s.table.evicted.Load(),
		Listening: s.desk != nil && s.desk.listening.Load(),
	}
}

// hash is of a state: the limit's name and algorithm, and the key.
func (s *Store) hash(limit uint64, key string) uint64 { return mix(maphash.String(s.seed, key), limit) }

func mix(key, limit uint64) uint64 {
	hi, lo := bits.Mul64(key^limit, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// remembers reports whether a refusal of a claim on this can be remembered.
func remembers(limit *weir.Limit, key string) bool {
	return len(key) <= MaxKey && limit.Algorithm() != weir.AlgorithmConcurrency
}

func (s *Store) check(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if s.closed.Load() {
		return weir.ErrClosed
	}
	return weir.Check(claims, times, decisions)
}

// A question is what is known when a decision is asked for.
type question struct {
	sent    time.Duration
	era     uint64
	hash    [weir.MaxClaims]uint64
	changes [weir.MaxClaims]uint64
	found   [weir.MaxClaims]*refusal

	asked, answered bool // in a batch
}

// Decide implements weir.Store.
func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if times < 1 { // a peek is how people look at what is true; less is an error
		return s.next.Decide(ctx, claims, times, decisions)
	}
	if err := s.check(claims, times, decisions); err != nil {
		return 0, err
	}
	var q question
	if found := s.find(&q, claims); found == len(claims) || found > 0 && decisions == nil {
		s.recalled.add()
		q.answer(claims, decisions)
		return 0, nil
	}
	said := decisions
	if said == nil {
		borrowed := s.said.Get().(*[weir.MaxClaims]weir.Decision)
		defer s.said.Put(borrowed)
		said = borrowed[:len(claims)]
	}
	granted, err := s.next.Decide(ctx, claims, times, said)
	if err == nil {
		s.learn(&q, claims, said)
	}
	return granted, err
}

// find looks the claims up, and counts those that are known to be refused.
func (s *Store) find(q *question, claims []weir.Claim) (found int) {
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

// answer fills in what is known. All claims have one instant, the latest that is known.
func (q *question) answer(claims []weir.Claim, decisions []weir.Decision) {
	var at weir.Instant
	for _, r := range q.found[:len(decisions)] {
		at = max(at, r.at(q.sent))
	}
	for i := range decisions {
		decisions[i] = q.found[i].decision(claims[i].Cost, at)
	}
}

// learn remembers which claims have no unit left, also those whose last units were just granted.
func (s *Store) learn(q *question, claims []weir.Claim, said []weir.Decision) {
	var returned time.Duration
	for i := range claims {
		c := &claims[i]
		if said[i].RetryAfter == 0 || !remembers(c.Limit, c.Key) || underWay(q.changes[i]) {
			continue
		}
		d, cost, ok := none(c, said[i])
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
		r := &refusal{hash: q.hash[i], key: strings.Clone(c.Key), limit: c.Limit, cost: cost, said: d, hold: hold,
			changes: q.changes[i], sent: q.sent, returned: returned, era: q.era}
		if s.table.put(r) {
			s.learned.Add(1)
		}
	}
}

// hold is how long a refusal is believed. A clock is slewed by up to 500 ppm, here as there:
// the last 1/512 of the wait, the store is asked.
func (s *Store) hold(retryAfter time.Duration) time.Duration {
	return min(s.longest, retryAfter-retryAfter>>9)
}

// Shortcut implements weir.Shortcut for refusals that are remembered.
func (s *Store) Shortcut(key string, limit *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	if len(key) > MaxKey || uint64(cost) > weir.MaxUnits || s.closed.Load() {
		return
	}
	now, hash := s.clock(), s.hash(limit.Hash(), key)
	r := s.table.set(hash).find(key, limit, cost, hash, s.table.era.Load(), now)
	if r == nil || r.said.Delay != 0 {
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
func (s *Store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
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

// changing forgets before the call is sent, and lets nothing be learned until it has returned:
// a caller who has seen its effect must not be refused by an answer from before it.
func (s *Store) changing(claims []weir.Claim) {
	for i := range claims {
		if c := &claims[i]; remembers(c.Limit, c.Key) {
			s.table.set(s.hash(c.Limit.Hash(), c.Key)).begin()
		}
	}
}

// changed is called whatever came of the call: one that failed may have been executed.
func (s *Store) changed(claims []weir.Claim) {
	for i := range claims {
		c := &claims[i]
		if !remembers(c.Limit, c.Key) {
			continue
		}
		s.table.set(s.hash(c.Limit.Hash(), c.Key)).end()
		if s.desk != nil {
			s.desk.tell(c.Limit.Hash(), c.Key)
		}
	}
}

// Close implements weir.Store. It tells what was not told yet, for at most a quarter of a
// second, and leaves the News open.
func (s *Store) Close() error {
	if !s.closed.Swap(true) && s.desk != nil {
		s.desk.close()
	}
	return s.next.Close()
}
