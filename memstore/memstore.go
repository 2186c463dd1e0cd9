// Package memstore is the embedded store: limits decided in this process's memory.
//
// It keeps a fixed number of keys at most (a million unless said otherwise), needs no
// goroutine, and allocates nothing for a key that it knows. Refusals of token buckets and
// windows take no lock at all; other refusals take a read lock of their key.
//
// A store that is full first drops keys that are indistinguishable from keys never used.
// If there are none, a newcomer shares one overflow key with all other newcomers of its
// limit: a flood of new keys can never erase the memory of a key that is being limited.
// A newcomer that later gets a key of its own starts anew there; what it had reserved before
// is refunded to the overflow key. A newcomer to a concurrency limit gets [ErrFull] instead:
// each lease belongs to its key. [Store.Stats] counts overflow and dropped keys.
package memstore

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	shardBits = 6
	shards    = 1 << shardBits

	// DefaultMaxKeys is the ceiling of keys of a store without WithMaxKeys.
	DefaultMaxKeys = 1_000_000
)

// Store is a weir.Store in memory. Make one with New.
//
// Its methods never wait, so they ignore their context.
type Store struct {
	seed    maphash.Seed
	clock   func() weir.Instant // nil: the process's monotonic clock
	start   time.Time
	epoch   int64 // µs since 1970 at start
	maxKeys int64
	empty   *large // read as the state of a key never used; nobody writes it

	closed   atomic.Bool
	keys     atomic.Int64 // claimed places, of which some nodes are just being made
	overflow atomic.Int64
	dropped  atomic.Int64
	examined atomic.Int64 // keys looked at in search of room, for tests
	loans    loans
	shards   [shards]shard
}

type shard struct {
	table    atomic.Pointer[table]
	mu       sync.Mutex
	soonest  soonest      // under mu; what expires first, known once the store was full
	earliest atomic.Int64 // when the first key may be dropped; the lowest number: not known
	_        [64]byte     // its own cache line
}

// An Option sets what New makes.
type Option func(*Store)

// WithClock drives the store by a given clock, for tests and replays. It must be safe for
// concurrent use, and may step back.
func WithClock(now func() weir.Instant) Option {
	return func(s *Store) { s.clock = now }
}

// WithMaxKeys sets the ceiling of keys, 1 or more; a smaller number reads as 1. A key
// costs about 80 bytes and its own length, with a token bucket or a window.
func WithMaxKeys(n int) Option {
	return func(s *Store) { s.maxKeys = int64(max(1, n)) }
}

// New makes an empty store.
func New(options ...Option) *Store {
	now := time.Now()
	s := &Store{seed: maphash.MakeSeed(), start: now, epoch: now.UnixMicro(), maxKeys: DefaultMaxKeys, empty: new(large)}
	for _, option := range options {
		option(s)
	}
	for i := range s.shards {
		s.shards[i].table.Store(newTable(1))
		s.shards[i].earliest.Store(unknown)
	}
	return s
}

// Stats are counts of a store.
type Stats struct {
	Keys     int64 // keys held, among them expired ones that nothing made room for yet
	Overflow int64 // decisions that were made on a shared overflow key
	Dropped  int64 // keys that were dropped to make room
}

// Stats counts.
func (s *Store) Stats() Stats {
	return Stats{Keys: s.keys.Load(), Overflow: s.overflow.Load(), Dropped: s.dropped.Load()}
}

// now is the store's clock. time.Since reads one clock where time.Now reads two.
func (s *Store) now() int64 {
	if s.clock != nil {
		return int64(s.clock())
	}
	return s.epoch + time.Since(s.start).Microseconds()
}

// hash mixes the limit's hash in, so that a constant key under many limits spreads too.
func (s *Store) hash(key string, limit *weir.Limit) uint64 {
	hi, lo := bits.Mul64(maphash.String(s.seed, key)^limit.Hash(), 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (s *Store) nodeHash(n *node) uint64 { return s.hash(n.key(), n.limit.Load()) }

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>(64-shardBits)] }

// Decide implements weir.Store.
func (s *Store) Decide(_ context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if err := s.check(claims, times, decisions); err != nil {
		return 0, err
	}
	if len(claims) == 1 && times == 1 {
		granted, remaining, retry, reset, at, ok := s.Shortcut(claims[0].Key, claims[0].Limit, claims[0].Cost)
		if ok {
			if decisions != nil {
				decisions[0] = weir.Decision{Remaining: remaining, RetryAfter: retry, ResetAfter: reset, At: at}
			}
			return one(granted), nil
		}
	}
	var t transaction
	t.start(s, claims)
	if granted, ok := t.refuse(times, decisions); ok {
		return granted, nil
	}
	defer t.unlock()
	if err := t.lock(); err != nil {
		return 0, err
	}
	granted := t.fit(times)
	if granted > 0 {
		t.charge(granted)
	}
	t.decide(decisions)
	return granted, nil
}

func one(granted bool) int64 {
	if granted {
		return 1
	}
	return 0
}

func (s *Store) check(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if s.closed.Load() {
		return weir.ErrClosed
	}
	return weir.Check(claims, times, decisions)
}

// Charge implements weir.Store.
func (s *Store) Charge(_ context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	var t transaction
	t.start(s, claims)
	defer t.unlock()
	if err := t.lock(); err != nil {
		return err
	}
	t.charge(1)
	t.decide(decisions)
	return nil
}

// Refund implements weir.Store.
func (s *Store) Refund(_ context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	var t transaction
	t.startRefund(s, claims, int64(takenAt))
	defer t.unlock()
	t.lockShards()
	ok := t.refund(int64(takenAt))
	t.decide(decisions)
	if !ok {
		return weir.ErrLeaseGone
	}
	return nil
}

// Reset implements weir.Store.
func (s *Store) Reset(_ context.Context, claims []weir.Claim) error {
	if err := s.check(claims, 0, nil); err != nil {
		return err
	}
	for i := range claims {
		hash := s.hash(claims[i].Key, claims[i].Limit)
		sh := s.shard(hash)
		sh.mu.Lock()
		if n := sh.table.Load().find(hash, claims[i].Key, claims[i].Limit); n != nil {
			n.lock()
			s.drop(sh, n)
		}
		sh.mu.Unlock()
	}
	return nil
}

// Close implements weir.Store. The keys are forgotten: Save them first if they matter.
func (s *Store) Close() error {
	s.closed.Store(true)
	for i := range s.shards {
		s.shards[i].mu.Lock()
		s.shards[i].table.Store(newTable(1))
		s.shards[i].mu.Unlock()
	}
	return nil
}

// drop takes a locked node out of the table and leaves it locked for ever. The caller
// holds the shard's mutex.
func (s *Store) drop(sh *shard, n *node) {
	n.word.Store(dead)
	sh.table.Load().remove(s.nodeHash(n), n)
	if !n.shared() {
		s.keys.Add(-1)
	}
}

// put adds a node to a shard whose mutex the caller holds.
func (s *Store) put(sh *shard, hash uint64, n *node) {
	if t := sh.table.Load(); t.full() {
		s.resize(sh, t.grown())
	}
	sh.table.Load().put(hash, n)
}

// resize gives a shard a new table of the same nodes; readers go on in the old one.
func (s *Store) resize(sh *shard, groups int) {
	resized := newTable(groups)
	for n := range sh.table.Load().all {
		resized.put(s.nodeHash(n), n)
	}
	sh.table.Store(resized)
}
