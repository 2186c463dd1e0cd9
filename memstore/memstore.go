// Package memstore is the embedded store: limits decided in this process's memory.
//
// It keeps a fixed number of keys and bytes at most (a million and 1 GiB unless said otherwise),
// needs no goroutine, and does not allocate for a known key. Refusals of token buckets
// and windows take no lock at all; other refusals take a lock of their key. Keys are held
// as keyed hashes of 95 bits: a long key costs no more than a short one. Members of a [weir.Fair] limit are
// held as keyed hashes of 64 bits.
//
// A store that is full first drops keys that are indistinguishable from keys never used. If there is no such key, a new
// key shares one overflow key with all other new keys of its limit: a flood of new keys can never erase the state of a
// key that is being limited. A key that later gets its own entry starts unused there; refunds of earlier reservations
// go to the overflow key. A new key of a concurrency limit gets [ErrFull] instead: each lease belongs to its key.
// [Store.Stats] counts overflow decisions and dropped keys.
package memstore

import (
	"context"
	"slices"
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

	// defaultMaxBytes is the ceiling of bytes of a store without WithMaxBytes.
	defaultMaxBytes = 1 << 30
)

// Store is a weir.Store in memory. Make one with New.
//
// Its methods never wait, so they ignore their context.
type Store struct {
	keyer    keyer
	clock    func() weir.Instant // nil: the process's monotonic clock
	start    time.Time
	epoch    int64 // µs since 1970 at start
	wall     wall
	maxKeys  int64
	maxBytes int64
	apart    bool // no overflow keys

	closed   atomic.Bool
	keys     atomic.Int64 // claimed places, some of whose entries are not made yet
	overflow atomic.Int64
	dropped  atomic.Int64
	unfound  atomic.Int64
	examined atomic.Int64 // keys looked at in search of room, for tests
	large    atomic.Int64 // bytes of large states
	loans    loans
	shards   [shards]shard
}

type shard struct {
	table    atomic.Pointer[table]
	mu       sync.Mutex
	soonest  soonest      // under mu; what expires first, known once the store was full
	earliest atomic.Int64 // when the first key may be dropped; the lowest number: not known
	owners   [8]*owner    // under mu; of the limits seen last
	_        [64]byte     // its own cache line
}

// An Option sets what New makes.
type Option func(*Store)

// WithClock drives the store by a given clock, for tests and replays. It must be safe for
// concurrent use, and may step back.
func WithClock(now func() weir.Instant) Option {
	return func(s *Store) { s.clock = now }
}

// WithMaxKeys sets the ceiling of keys, 1 or more; a smaller number reads as 1. A key of
// a token bucket or a window costs up to 63 bytes, whatever its length, one of a sliding counter of at most 11 slices
// or of a sliding log with at most two grants 127.
func WithMaxKeys(n int) Option {
	return func(s *Store) { s.maxKeys = int64(max(1, n)) }
}

// WithMaxBytes sets the ceiling of memory, which counts what grows beyond a key's fixed size as well: a sliding log's
// 16 bytes a grant, a sliding counter's slices, leases. At the ceiling there is no room for new keys, as with
// WithMaxKeys, and what would make a known key's log, counts or leases grow gets [ErrFull].
func WithMaxBytes(n int64) Option {
	return func(s *Store) { s.maxBytes = n }
}

// WithoutOverflow makes a full store return [ErrFull] for new keys of any limit, instead of sharing one overflow key,
// and describe keys that it does not hold as never used. It is for programs with their own policy for a full
// store, such as the ceilings of package layers, which grant.
func WithoutOverflow() Option { return func(s *Store) { s.apart = true } }

// New makes an empty store.
func New(options ...Option) *Store {
	now := time.Now()
	s := &Store{
		keyer:    newKeyer(),
		start:    now,
		epoch:    now.UnixMicro(),
		maxKeys:  DefaultMaxKeys,
		maxBytes: defaultMaxBytes,
	}
	s.wall.micros = time.Time.UnixMicro
	for _, option := range options {
		option(s)
	}
	for i := range s.shards {
		s.shards[i].table.Store(newTable(1))
		s.shards[i].earliest.Store(unknown)
	}
	return s
}

// Fallback is the store itself, which is always there: a gate needs no other one for rules that fall back to a local
// store.
func (s *Store) Fallback([]*weir.Limit) weir.Store {
	if s.shards[0].table.Load() == nil {
		panic("memstore: a Store must be made by New")
	}
	return s
}

// Stats are statistics of a store.
type Stats struct {
	Keys     int64 // keys held, among them expired ones that nothing made room for yet
	Overflow int64 // decisions that were made on a shared overflow key
	Dropped  int64 // keys that were dropped to make room
	Bytes    int64 // about the memory of the keys and their states

	// Unfound counts refunds of claims without an effect: no current window has units of the instant of the charge,
	// mostly because that window is over. A bucket has no such instants; a lease gets ErrLeaseGone.
	Unfound int64
}

// Stats returns the statistics.
func (s *Store) Stats() Stats {
	return Stats{
		Keys:     s.keys.Load(),
		Overflow: s.overflow.Load(),
		Dropped:  s.dropped.Load(),
		Bytes:    s.bytes(),
		Unfound:  s.unfound.Load(),
	}
}

// id identifies a key under a limit in the table. The limit's hash is mixed in so that a constant key under many
// limits spreads too.
func (s *Store) id(key string, limit *weir.Limit) id {
	a, b := s.keyer.sum(key)
	return makeID(a, b, limit)
}

func makeID(a, b uint64, limit *weir.Limit) id {
	return id{a ^ limit.Hash(), uint32(b) &^ sharedTag}
}

// overflowID is the id of the overflow key of a limit.
func (s *Store) overflowID(limit *weir.Limit) id {
	key := s.id("", limit)
	key.tag |= sharedTag
	return key
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>(64-shardBits)] }

// Decide implements weir.Store.
func (s *Store) Decide(_ context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if err := s.check(claims, times, decisions); err != nil {
		return 0, err
	}
	if len(claims) == 1 && times == 1 && (claims[0].Lease != "" || claims[0].Limit.Whole() != nil) {
		if granted, ok := s.takeClaim(&claims[0], decisions); ok {
			return granted, nil
		}
	} else if len(claims) == 1 && times == 1 {
		c := &claims[0]
		granted, remaining, retry, reset, delay, at, ok := s.take(c.Key, c.Limit, c.Cost, c.Floor)
		if ok {
			if decisions != nil {
				d := &decisions[0]
				d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At = remaining, retry, reset, delay, at
				d.Standing = nil
			}
			return one(granted), nil
		}
	}
	if len(claims) > 1 && times == 1 && decisions != nil {
		if granted, ok := s.decideTogether(claims, decisions); ok {
			return granted, nil
		}
	}
	var t transaction
	t.start(s, claims)
	return t.run(times, decisions)
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
	if !t.allHeld() {
		t.decide(decisions)
		return weir.ErrLeaseGone
	}
	t.back(1)
	if err := t.charge(1); err != nil {
		return err
	}
	t.spendLeases()
	t.decide(decisions)
	return nil
}

// Refund implements weir.Store.
func (s *Store) Refund(_ context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	if len(claims) == 1 && !claims[0].Renew {
		if ok, err := s.giveBack(&claims[0], int64(takenAt), decisions); ok {
			return err
		}
	}
	var t transaction
	t.startRefund(s, claims, int64(takenAt))
	defer t.unlock()
	t.lockShards()
	ok := t.allHeld()
	if ok {
		t.back(1)
		ok = t.refund(int64(takenAt))
	}
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
		key := s.id(claims[i].Key, claims[i].Limit)
		sh := s.shard(key.hash)
		sh.mu.Lock()
		if e := sh.table.Load().find(key, claims[i].Limit); e != nil {
			e.lock()
			s.drop(sh, e)
		}
		sh.mu.Unlock()
	}
	return nil
}

// ResetNames deletes the states of all keys under limits of these names, and returns their number.
func (s *Store) ResetNames(names ...string) (keys int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for e := range sh.table.Load().all {
			if slices.Contains(names, e.owner.Load().limit.Name()) {
				e.lock()
				s.drop(sh, e)
				keys++
			}
		}
		sh.mu.Unlock()
	}
	return keys
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

// drop takes a locked entry out of the table. The caller holds the shard's mutex.
func (s *Store) drop(sh *shard, e *entry) {
	e.word.Store(dead)
	sh.table.Load().live--
	if !e.shared() {
		s.keys.Add(-1)
	}
	if big := e.owner.Load().large(); big != nil {
		s.large.Add(-big.size())
		big.mu.Unlock()
	}
}

// insert adds an entry of a key never used, locked, to a shard that has room reserved.
func (s *Store) insert(sh *shard, key id, limit *weir.Limit) *entry {
	if isLarge[limit.Algorithm()] {
		return sh.table.Load().put(key, s.lock(newLarge(limit)), 0, 0)
	}
	own := sh.owner(limit)
	if part := form(limit, state{}); part != 0 {
		return sh.table.Load().put(key, own, never|locked, part)
	}
	return sh.table.Load().put(key, own, locked, 0)
}

// lock is the owner of a large state that enters the store, locked.
func (s *Store) lock(big *large) *owner {
	big.mu.Lock()
	s.large.Add(big.size())
	return &big.owner
}

// owner is one of small states of the limit.
func (sh *shard) owner(limit *weir.Limit) *owner {
	recent := &sh.owners[limit.Hash()%uint64(len(sh.owners))]
	if *recent == nil || (*recent).limit != limit {
		*recent = &owner{limit: limit}
	}
	return *recent
}
