// Package coalesce is a layer that lets callers who wait at the same moment share a trip
// to the store: those who ask the same become one request with times = how many they are,
// and requests for different keys go in one batch.
//
// It has no timer. A caller who finds nothing under way asks the store itself, at once;
// others wait together until a call ends, and then for one trip.
//
// # Why it is exact
//
// The store below decides each request at an instant between its sending and its answer.
// A batch is sealed before it is sent, so nobody joins what may have been decided already:
// that instant lies between call and return of every caller of the batch, as it would had
// each asked the store alone. Deciding k equal requests one after the other at one instant
// grants the first g and refuses the rest, since a refusal changes nothing; that is what
// times = k means. Who comes first has the first place: all places lie at one instant, so
// any order would be right, and this one is fair.
//
// Peeks, leases, several times at once, Charge, Refund and Reset pass straight through,
// past those that wait. They need no place among them: who waits has no answer yet, so its
// instant may as well come after that of a refund that overtakes it; and who asks after a
// refund has returned is sent after it.
package coalesce

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/internal/timeout"
)

// Store is a weir.Store over another one. Make one with New.
//
// What it adds to the errors of the store below: a caller whose context ends while it
// waits gets an error that wraps weir.ErrUnavailable and the context's error, and says
// whether the decision was surely not made, or is on its way and may be charged. A panic
// of the store in a batch is an ErrUnavailable for each of its callers.
type Store struct {
	next    weir.Store
	batcher weir.Batcher // next
	seed    maphash.Seed
	timeout time.Duration
	place   func([]weir.Claim) int // nil: any
	lanes   []lane
	closed  atomic.Bool
}

// An Option changes what New makes.
type Option func(*Store)

// WithTimeout is for how long a caller waits at most, from when it asks; more than 0. The call of
// those who have waited for another has what is left of it, where otherwise a store that froze
// would keep them for its own timeout twice. The default is the timeout of the store, if the
// store tells it, as redisstore does, else none that matters.
func WithTimeout(timeout time.Duration) Option { return func(s *Store) { s.timeout = timeout } }

// WithPlaces is for a store of several servers, each of which may be silent by itself: only
// who asks about the same of so many places, 1 or more, waits for the same trip, so that
// callers of one server do not wait for another. Place is from 0 to below places; it is asked
// about each decision, by many goroutines at once. Of a Redis Cluster, whose calls are about
// one slot each anyway, parts of the slots are good places.
func WithPlaces(places int, place func(claims []weir.Claim) int) Option {
	return func(s *Store) { s.lanes, s.place = make([]lane, max(places, 0)), place }
}

// longest is the timeout where none is known.
const longest = 24 * time.Hour

// coresALane is how many cores share a lane. More lanes mean less waiting for a mutex, and
// smaller batches.
const coresALane = 4

// New puts the layer over a store that decides batches; over another it would only make
// callers wait, so that is an error.
//
// A batch is decided in a context of its own, without the values of any caller's and
// without a deadline but that of WithTimeout: next must bound its calls in time itself, as
// redisstore does. Next belongs to the layer from then on, whose Close closes it.
func New(next weir.Store, opts ...Option) (*Store, error) {
	s, err := newStore(next, max(1, runtime.GOMAXPROCS(0)/coresALane))
	if err != nil {
		return nil, err
	}
	for _, opt := range opts {
		opt(s)
	}
	switch {
	case s.timeout <= 0:
		return nil, &weir.InputError{Field: "timeout", Given: s.timeout, Allowed: "more than 0"}
	case len(s.lanes) == 0:
		return nil, &weir.InputError{Field: "places", Given: 0, Allowed: "1 or more"}
	}
	return s, nil
}

func newStore(next weir.Store, lanes int) (*Store, error) {
	batcher, ok := next.(weir.Batcher)
	if !ok {
		return nil, &weir.InputError{Field: "next", Given: fmt.Sprintf("%T", next),
			Allowed: "a store that is a weir.Batcher, such as redisstore's"}
	}
	patience := timeout.Of(next)
	if patience <= 0 {
		patience = longest
	}
	return &Store{next: next, batcher: batcher, seed: maphash.MakeSeed(), timeout: patience, lanes: make([]lane, lanes)}, nil
}

// Decide implements weir.Store.
func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	switch {
	case s.closed.Load():
		return 0, weir.ErrClosed
	case times != 1:
		return s.next.Decide(ctx, claims, times, decisions)
	}
	// Checked here, as one wrong request would be the error of all who ask the same.
	if err := weir.Check(claims, 1, decisions); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, unavailable(notExecuted, err)
	}
	if leased(claims) {
		return s.next.Decide(ctx, claims, 1, decisions)
	}
	return s.decide(ctx, claims, decisions)
}

// leased reports whether a claim has a lease, whose id nobody else asks for.
func leased(claims []weir.Claim) bool {
	for i := range claims {
		if claims[i].Lease != "" {
			return true
		}
	}
	return false
}

func (s *Store) decide(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) (int64, error) {
	hash := s.hash(claims)
	l := s.lane(hash, claims)
	l.mu.Lock()
	if s.closed.Load() { // since it was looked at: Close waits only for who was here before
		l.mu.Unlock()
		return 0, weir.ErrClosed
	}
	if l.free(hash) {
		l.begin(trip{hash: hash})
		l.mu.Unlock()
		defer s.end(l, trip{hash: hash}) // even if next panics: others may wait
		return s.next.Decide(ctx, claims, 1, decisions)
	}
	seat := l.join(hash, claims, decisions != nil)
	full := l.takeFull()
	l.mu.Unlock()
	if full != nil {
		go s.send(l, full)
	}
	return seat.wait(ctx, decisions)
}

// lane is where callers of the same claims meet.
func (s *Store) lane(hash uint64, claims []weir.Claim) *lane {
	if s.place != nil {
		return &s.lanes[s.place(claims)]
	}
	at, _ := bits.Mul64(hash, uint64(len(s.lanes)))
	return &s.lanes[at]
}

// hash is the same for the same claims, and hard to guess.
func (s *Store) hash(claims []weir.Claim) (hash uint64) {
	for i := range claims {
		c := &claims[i]
		hi, lo := bits.Mul64(hash^maphash.String(s.seed, c.Key)^c.Limit.Hash()^uint64(c.Cost), 0x9e3779b97f4a7c15)
		hash = hi ^ lo
	}
	return hash
}

// send decides a batch, in nobody's context: that of a caller would end for all.
func (s *Store) send(l *lane, b *batch) {
	defer s.end(l, trip{batch: b})
	defer b.finish()
	ctx, stop := s.bound(b)
	defer stop()
	s.batcher.DecideBatch(ctx, b.requests)
	b.returned = true
}

// bound is the context of a trip. A deadline of its own costs a timer, so that it has one
// only where its callers have waited for a part of their time that counts.
func (s *Store) bound(b *batch) (context.Context, context.CancelFunc) {
	part := s.timeout / 16
	if time.Since(b.opened) < part {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), b.opened.Add(s.timeout-part))
}

// end is called when a trip has ended, and begins the next if somebody waits.
func (s *Store) end(l *lane, t trip) {
	if t.batch != nil {
		// Who was just woken may ask again: let them come first. It makes the batches of a
		// hot key a third larger.
		runtime.Gosched()
	}
	l.mu.Lock()
	l.remove(t)
	next := l.take()
	l.mu.Unlock()
	if t.batch != nil {
		t.batch.release()
	}
	if next != nil {
		go s.send(l, next)
	}
}

// DecideBatch implements weir.Batcher: what is gathered already passes straight through.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	s.batcher.DecideBatch(ctx, requests)
}

// Charge implements weir.Store.
func (s *Store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return s.next.Charge(ctx, claims, decisions)
}

// Refund implements weir.Store.
func (s *Store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	return s.next.Refund(ctx, claims, takenAt, decisions)
}

// Reset implements weir.Store.
func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	return s.next.Reset(ctx, claims)
}

// Stats are counts since the layer was made, without what passes straight through.
// Decisions by Requests says how much hot keys share, Requests by Trips how full batches are.
type Stats struct {
	Decisions int64 // that callers asked for, and that were sent to the store below
	Requests  int64 // that they became: those who ask the same are one
	Trips     int64 // calls, of lone callers and of batches
}

// Stats counts.
func (s *Store) Stats() (sum Stats) {
	for i := range s.lanes {
		one := s.lanes[i].counted()
		sum.Decisions += one.Decisions
		sum.Requests += one.Requests
		sum.Trips += one.Trips
	}
	return sum
}

// Close waits until all decisions that were asked for before it are made, and then
// closes the store below. Closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	for i := range s.lanes {
		s.lanes[i].drain()
	}
	return s.next.Close()
}
