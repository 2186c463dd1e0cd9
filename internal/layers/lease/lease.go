// Package lease is a layer for keys so hot that one call of the store for each request is too much: a node
// takes units ahead of need in one call, spends them from memory and gives back unused ones.
//
// A key earns its lease by its rate; other keys, and all refusals, are decided by the store. Units are charged
// before they are spent, so the limit is never charged more than without leases; how much later they may pass,
// and what that means for the limit, is stated by [BoundOf].
package lease

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

const (
	// DefaultMaxLeases bounds the leases of a Store. A lease costs some 600 bytes and its keys; keys without room
	// are decided one by one.
	DefaultMaxLeases = 1024
	// DefaultTimeout bounds a call that the layer makes for many callers or for none: taking a lease, giving back.
	// It is longer than what the store itself allows for a call.
	DefaultTimeout = time.Second
)

// Store is a weir.Store that leases from another. It is safe for concurrent use. It has one goroutine while it
// has leases, and one for each lease that is being taken.
//
// A lease is for all claims of a decision together: their keys, limits and costs, in their order. It is taken
// where all of them may be leased; otherwise the decision passes through. So do peeks, requests for several
// times at once, costs of 0, those with an id (weir.Once), decisions without a result slice (nil), Charge and Refund.
// A limit with other numbers is another limit: the old one's lease goes back when its time is over.
//
// A decision from a lease describes the instant of its charge: At and ResetAfter are of that instant, so that
// Refund finds the unit and their sum stays true. Remaining is what the store had left then plus what the lease
// has left now. RetryAfter is 0, but for the last unit of a lease that took all there was. Delay, where a
// bucket is overdrawn, is that of the unit, counted from now.
//
// While the store is unavailable, leased units are spent until their time is over; then callers get the store's
// error.
type Store struct {
	weir.Store       // the next one. Refund gives units from a lease back to it, too.
	keyed      keyed // the next one, if it implements it
	terms      func(*weir.Limit) Terms
	timeout    time.Duration
	room       int // most leases

	seed    layer.Seed
	start   time.Time
	heat    heat
	buckets []atomic.Pointer[entry]
	batches sync.Pool // of *batch

	mu       sync.Mutex
	accounts accounts
	landed   *flight // a flight that has ended
	stats    Stats
	sweeping bool
	closed   bool
	stop     chan struct{}
	running  sync.WaitGroup // the sweeper and refills
}

// keyed is a store that decides some requests of one key without claims, as weir.Limiter knows it.
type keyed interface {
	DecideKey(key string, limits []*weir.Limit, cost int64) (worst int, granted bool, remaining int64,
		retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool)
}

// New returns a layer over next. terms says how a limit may be leased; the zero Terms, and Terms that
// [Terms.Check] refuses, say that it may not. It is called concurrently, after each granted decision without a
// lease, and must always return the same for one limit: a look-up in a constant map is right.
//
// Close gives units back and closes next.
func New(next weir.Store, terms func(*weir.Limit) Terms) *Store {
	s := &Store{
		Store: next, terms: terms, timeout: DefaultTimeout, room: DefaultMaxLeases,
		seed: layer.NewSeed(), start: time.Now(),
		buckets:  make([]atomic.Pointer[entry], 2<<bits.Len(DefaultMaxLeases-1)),
		accounts: make(accounts), stop: make(chan struct{}), landed: &flight{done: make(chan struct{})},
	}
	close(s.landed.done)
	s.batches.New = func() any { return new(batch) }
	s.keyed, _ = next.(keyed)
	return s
}

// now is the monotonic clock in nanoseconds.
func (s *Store) now() int64 { return int64(time.Since(s.start)) }

func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	hash, ok := s.hash(claims)
	if !ok || times != 1 || len(decisions) != len(claims) {
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	e := s.find(hash, claims)
	if e == nil {
		return s.ask(ctx, hash, claims, decisions)
	}
	if e.spend(s.now(), decisions) {
		return 1, nil
	}
	return s.await(ctx, e, claims, decisions)
}

// DecideKey is Decide of one request, for a lease of one claim: see weir.Limiter.
func (s *Store) DecideKey(key string, limits []*weir.Limit, cost int64) (worst int, granted bool, remaining int64,
	retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if len(limits) == 1 {
		l := limits[0]
		if e := s.findOne(s.seed.Claim(0, key, l, cost), key, l, cost); e != nil {
			remaining, retryAfter, resetAfter, at, granted = e.spendOne(s.now())
			return 0, granted, remaining, retryAfter, resetAfter, 0, at, granted
		}
	}
	if s.keyed == nil || slices.ContainsFunc(limits, s.lends) {
		return
	}
	return s.keyed.DecideKey(key, limits, cost)
}

// ask passes on a decision without a lease. A granted one counts towards earning one.
func (s *Store) ask(ctx context.Context, hash uint64, claims []weir.Claim, decisions []weir.Decision) (int64, error) {
	granted, err := s.Store.Decide(ctx, claims, 1, decisions)
	if err == nil && granted > 0 {
		s.warm(hash, claims, decisions)
	}
	return granted, err
}

// rounds is how often a caller waits for a lease when others have spent the last one first. Waiting is no
// slower than a call of its own and spares the store: with 128 callers and leases too small for them, twice as
// many a second got through.
const rounds = 4

// await decides on a key whose lease is used up: it waits for the next grant, or calls the store where none can
// be had. Only the store refuses.
func (s *Store) await(ctx context.Context, e *entry, claims []weir.Claim, decisions []weir.Decision) (int64, error) {
	for range rounds {
		f := s.join(ctx, e)
		if f == nil {
			break
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w (waiting for a lease, not charged): %w", weir.ErrUnavailable, ctx.Err())
		}
		if f.err != nil {
			return 0, f.err
		}
		if e.spend(s.now(), decisions) {
			return 1, nil
		}
	}
	granted, err := s.Store.Decide(ctx, claims, 1, decisions)
	if err == nil {
		e.room.Store(e.share(decisions))
	}
	return granted, err
}

// Reset implements weir.Store. Leases of these keys on this node end, and their units are not given back, since
// their charge was reset. Other nodes spend what they hold until its time is over, and give the rest back as if
// there had been no reset.
func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	if weir.Check(claims, 0, nil) != nil {
		return s.Store.Reset(ctx, claims) // which reports the error
	}
	// Before, so that no unit of a reset charge is refunded; after, because a lease may have been taken meanwhile.
	before := s.forget(claims)
	return errors.Join(before, s.Store.Reset(ctx, claims), s.forget(claims))
}

// Stats are counters of a store.
type Stats struct {
	Leases   int64 // current leases
	Refills  int64 // calls that took units ahead of need
	Taken    int64 // requests that these calls paid for
	Returned int64 // requests of Taken whose units were given back
	Lost     int64 // requests of Taken whose refund failed: they stay charged
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close implements weir.Store. It waits for calls under way, gives all units back, which takes three timeouts
// at most, and closes the store below.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.Store.Close()
	}
	s.closed = true
	close(s.stop)
	left := s.unlink(func(*entry) bool { return true })
	s.mu.Unlock()
	s.running.Wait() // refills find their entry gone and give their units back
	return errors.Join(s.retireAll(left), s.Store.Close())
}

// retireAll gives back the units of entries, within one timeout.
func (s *Store) retireAll(entries []*entry) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	var mu sync.Mutex
	var failed []error
	s.atOnce(entries, func(e *entry) {
		if err := s.retire(ctx, e, e.grant.Load()); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		}
	})
	return errors.Join(failed...)
}
