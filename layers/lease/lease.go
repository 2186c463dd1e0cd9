// Package lease is a layer for keys so hot that one call of the store for each request is
// too much: a node takes units ahead of need in one call, spends them in its own memory
// and gives back what it did not use.
//
// A key earns its lease by its rate; all others, and all refusals, are the store's. Units
// are charged before they are spent, so never more than the limit is charged; how much
// later they may pass, and what that means for the limit, says [BoundOf].
package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	// DefaultMaxLeases is how many leases a Store without WithMaxLeases has at most.
	DefaultMaxLeases = 1024
	// DefaultTimeout is how long a call on behalf of many waits without WithTimeout.
	DefaultTimeout = time.Second
)

// Store is a weir.Store that leases from another. It is safe for concurrent use. It has a
// goroutine while it has leases, and one for each lease that is being taken.
//
// A lease is of all claims of a decision together: their keys, limits and costs, in their
// order. It is taken where all of them may be leased; where one may not, the decision
// passes through. So do peeks, requests for several at once (times other than 1), costs
// of 0, decisions that nobody wants to see (nil), Charge and Refund. A limit with other
// numbers is another limit: the old one's lease goes back when its time is over.
//
// A decision from a lease is as of the instant at which its unit was charged: At and
// ResetAfter are of that instant, so that Refund finds the unit and their sum stays true.
// Remaining is what the store had left then and what the lease has left now. RetryAfter is
// 0, but for the last unit of a lease that took all there was. Delay, where a bucket is
// overdrawn, is of the unit, counted from now.
//
// While the store does not answer, what a lease still holds is spent until its time is
// over; then callers get the store's error.
type Store struct {
	next    weir.Store
	short   weir.Shortcut // next, if it is one
	terms   func(*weir.Limit) Terms
	timeout time.Duration
	room    int // for leases

	seed    maphash.Seed
	start   time.Time
	heat    heat
	buckets []atomic.Pointer[entry]
	batches sync.Pool // of *batch

	mu       sync.Mutex
	accounts accounts
	landed   *flight // one that is over
	stats    Stats
	sweeping bool
	closed   bool
	stop     chan struct{}
	running  sync.WaitGroup // the sweeper, and refills
}

// An Option sets what New makes.
type Option func(*Store)

// WithMaxLeases sets how many leases there are at most, 1 or more. A lease costs some 600
// bytes and its keys; what finds no room asks singly.
func WithMaxLeases(n int) Option { return func(s *Store) { s.room = n } }

// WithTimeout sets how long the layer waits for a call that it makes for many callers or
// for none: taking a lease, giving back. It is more than 0, and rather more than what the
// store itself allows for a call.
func WithTimeout(d time.Duration) Option { return func(s *Store) { s.timeout = d } }

// New makes a layer over next. Terms says how a limit may be leased; the zero Terms, and
// such as [Terms.Check] refuses, that it may not. It is asked after each granted decision
// that no lease made, by many goroutines at once, and has to say the same of one limit
// every time: a look-up in a map that does not change is right.
//
// Close gives back what is held and closes next.
func New(next weir.Store, terms func(*weir.Limit) Terms, options ...Option) (*Store, error) {
	s := &Store{next: next, terms: terms, timeout: DefaultTimeout, room: DefaultMaxLeases,
		seed: maphash.MakeSeed(), start: time.Now(), accounts: make(accounts), stop: make(chan struct{}), landed: &flight{done: make(chan struct{})}}
	close(s.landed.done)
	for _, option := range options {
		option(s)
	}
	switch {
	case next == nil:
		return nil, &weir.InputError{Field: "next", Given: "nil", Allowed: "a store"}
	case terms == nil:
		return nil, &weir.InputError{Field: "terms", Given: "nil", Allowed: "a function that says how a limit may be leased"}
	case s.room < 1 || s.room > 1<<20:
		return nil, &weir.InputError{Field: "max leases", Given: s.room, Allowed: "1 to 1048576"}
	case s.timeout <= 0:
		return nil, &weir.InputError{Field: "timeout", Given: s.timeout, Allowed: "more than 0"}
	}
	s.batches.New = func() any { return new(batch) }
	s.short, _ = next.(weir.Shortcut)
	s.buckets = make([]atomic.Pointer[entry], 2<<bits.Len(uint(s.room-1)))
	return s, nil
}

// now is nanoseconds of the process's monotonic clock.
func (s *Store) now() int64 { return int64(time.Since(s.start)) }

// Decide implements weir.Store.
func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	hash, ok := s.hash(claims)
	if !ok || times != 1 || len(decisions) != len(claims) {
		return s.next.Decide(ctx, claims, times, decisions)
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

// Shortcut implements weir.Shortcut, for a lease of one claim.
func (s *Store) Shortcut(key string, l *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	if l == nil {
		return
	}
	if e := s.findOne(mix(s.part(key, l), cost), key, l, cost); e != nil {
		return e.shortcut(s.now())
	}
	if s.short == nil || s.lends(l) {
		return
	}
	return s.short.Shortcut(key, l, cost)
}

// ask is a decision for which there is no lease. One that is granted earns the next ones
// a lease, if there are many.
func (s *Store) ask(ctx context.Context, hash uint64, claims []weir.Claim, decisions []weir.Decision) (int64, error) {
	granted, err := s.next.Decide(ctx, claims, 1, decisions)
	if err == nil && granted > 0 {
		s.warm(hash, claims, decisions)
	}
	return granted, err
}

// rounds is how often a caller waits for a lease, when others have spent the last one before
// it could. Waiting is no slower than a call of one's own, and leaves the store in peace: of 128
// callers and leases too small for them, twice as many a second got through.
const rounds = 4

// await is a decision on a key whose lease is used up: it waits for the next one, or asks
// singly where there is none to be had. A refusal is always the store's.
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
	granted, err := s.next.Decide(ctx, claims, 1, decisions)
	if err == nil {
		e.room.Store(e.share(decisions))
	}
	return granted, err
}

// Charge implements weir.Store.
func (s *Store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return s.next.Charge(ctx, claims, decisions)
}

// Refund implements weir.Store. What came from a lease goes back to the store.
func (s *Store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	return s.next.Refund(ctx, claims, takenAt, decisions)
}

// Reset implements weir.Store. Units of these keys that this node holds end with it, and
// are not given back: their charge was forgotten. What other nodes hold they may spend until its time
// is over, and give back then, as if they had never been forgotten.
func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	if weir.Check(claims, 0, nil) != nil {
		return s.next.Reset(ctx, claims) // it says what is wrong
	}
	// Before, so that nothing goes back that was forgotten; after, because a lease may
	// have been taken meanwhile.
	before := s.forget(claims)
	return errors.Join(before, s.next.Reset(ctx, claims), s.forget(claims))
}

// Stats are counts of a store.
type Stats struct {
	Leases   int64 // keys that have earned one, now
	Refills  int64 // calls that took units ahead of need
	Taken    int64 // requests that they paid for
	Returned int64 // requests of those that were not needed and went back
	Lost     int64 // requests of those whose way back failed: they stay charged
}

// Stats counts.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close implements weir.Store. It waits for calls under way and gives all units back, which
// takes three timeouts at most; then it closes the store below.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.next.Close()
	}
	s.closed = true
	close(s.stop)
	left := s.takeOut(func(*entry) bool { return true })
	s.mu.Unlock()
	s.running.Wait() // refills find their entry gone, and give back what they got
	return errors.Join(s.retireAll(left), s.next.Close())
}

// retireAll gives back what entries hold, in the time of one call.
func (s *Store) retireAll(entries []*entry) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	var mu sync.Mutex
	var failed []error
	atOnce(entries, func(e *entry) {
		if err := s.retire(ctx, e, e.grant.Load()); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		}
	})
	return errors.Join(failed...)
}
