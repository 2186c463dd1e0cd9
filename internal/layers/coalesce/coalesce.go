// Package coalesce is a layer that lets concurrent callers share calls of the store: callers with equal claims
// become one request with times = their number, and requests for different keys go in one batch.
//
// It has no timer. A caller that finds few calls under way calls the store itself, at once; the others wait
// until a call ends, and then share the next one.
//
// # Why it is exact
//
// The store decides each request at an instant between its sending and its answer. A batch is sealed before it is
// sent, so nobody joins a request that may have been decided already: that instant lies between call and return of
// every caller of the batch, as it would had each called the store alone. Deciding k equal requests one after the
// other at one instant grants the first g and refuses the rest, since a refusal changes nothing; that is what times =
// k means. The first caller gets the first grant: at one instant any order would be right, and this one is fair.
//
// Peeks, leases, several times at once, Charge, Refund and Reset pass straight through, past the waiting
// callers. They need no position among them: a waiting caller has no answer yet, so its instant may lie after
// that of a refund that overtakes it; and a request made after a refund has returned is sent after it.
package coalesce

import (
	"context"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
	"github.com/weirproject/weir/internal/redisslot"
)

// Store is a weir.Store over another one. Make one with New.
//
// Its own errors, beyond those of the store below: a caller whose context ends while it waits gets an error that
// wraps weir.ErrUnavailable and the context's error, and says whether the decision was surely not made, or is under
// way and may be charged. A panic of the store in a batch is an ErrUnavailable for each of its callers.
type Store struct {
	weir.Store // the next one
	seed       layer.Seed
	timeout    time.Duration
	place      func([]weir.Claim) int // nil: by hash
	shards     []shard
	closed     atomic.Bool
}

// A Config configures New.
type Config struct {
	// Timeout bounds the whole wait of a caller. A batch is called with the rest of its callers' time; otherwise a
	// frozen store would hold them for its own timeout twice. 0 is the timeout of the store, if it has one, as
	// redisstore does, otherwise 24 hours.
	Timeout time.Duration
	// Cluster says that the store is a Redis Cluster. Callers are split into queues by ranges of slots: only callers of
	// one range share a call, so that a frozen server delays only its own. A call is for one slot anyway.
	Cluster bool
}

// places is the number of queues of a Cluster.
const places = 64

// placeOf is the queue of a decision in a Cluster, 0 to places − 1. Of several claims it takes the slot of the last,
// since the first ones are those that many requests share, such as of a whole site.
func placeOf(claims []weir.Claim) int {
	return int(redisslot.Of(claims[len(claims)-1].Key)) / (redisslot.Count / places)
}

// longest is the timeout of a store without one.
const longest = 24 * time.Hour

// coresPerShard is the number of cores that share a shard. More shards mean less contention and smaller batches.
const coresPerShard = 4

// New returns the layer over a store, which should be a weir.Batcher: otherwise callers wait for nothing.
//
// A batch is decided in a context without the values of any caller's and without a deadline but that of
// Config.Timeout: next must bound its calls in time itself, as redisstore does. Closing the layer closes next.
func New(next weir.Store, config Config) *Store {
	s := newStore(next, max(1, runtime.GOMAXPROCS(0)/coresPerShard))
	if config.Cluster {
		s.place, s.shards = placeOf, make([]shard, places)
	}
	if config.Timeout > 0 {
		s.timeout = config.Timeout
	}
	return s
}

func newStore(next weir.Store, shards int) *Store {
	limit := layer.Timeout(next)
	if limit <= 0 {
		limit = longest
	}
	return &Store{Store: next, seed: layer.NewSeed(), timeout: limit, shards: make([]shard, shards)}
}

func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	switch {
	case s.closed.Load():
		return 0, weir.ErrClosed
	case times != 1:
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	// Checked here, because one wrong request would fail all callers of its batch.
	if err := weir.Check(claims, 1, decisions); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, unavailable(notExecuted, err)
	}
	if leased(claims) {
		return s.Store.Decide(ctx, claims, 1, decisions)
	}
	return s.decide(ctx, claims, decisions)
}

// leased reports whether a claim has a lease, whose id is unique to its caller.
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
	l := s.shard(hash, claims)
	l.mu.Lock()
	if s.closed.Load() { // again, under the lock: Close waits only for earlier callers
		l.mu.Unlock()
		return 0, weir.ErrClosed
	}
	if own := (call{hash: hash, wide: len(claims) > mostShared}); l.free(own) {
		l.begin(own)
		l.mu.Unlock()
		defer s.end(l, own) // even if next panics: others may be waiting
		return s.Store.Decide(ctx, claims, 1, decisions)
	}
	waiter := l.join(hash, claims, decisions != nil)
	full := l.takeFull()
	l.mu.Unlock()
	if full != nil {
		go s.send(l, full)
	}
	return waiter.wait(ctx, decisions)
}

// shard returns the queue for claims; equal claims have the same one.
func (s *Store) shard(hash uint64, claims []weir.Claim) *shard {
	if s.place != nil {
		return &s.shards[s.place(claims)]
	}
	at, _ := bits.Mul64(hash, uint64(len(s.shards)))
	return &s.shards[at]
}

// hash is equal for equal claims, and unpredictable to clients.
func (s *Store) hash(claims []weir.Claim) (hash uint64) {
	for i := range claims {
		c := &claims[i]
		hash = s.seed.Claim(hash, c.Key, c.Limit, c.Cost)
	}
	return hash
}

// send decides a batch, in a context that is no caller's, whose end would fail the others.
func (s *Store) send(l *shard, b *batch) {
	defer s.end(l, call{batch: b})
	defer b.finish()
	ctx, stop := s.bound(b)
	defer stop()
	layer.DecideBatch(ctx, s.Store, b.requests)
	b.returned = true
}

// bound is the context of a batch. A deadline costs a timer, so it is set only if the callers have already
// waited for a considerable part of their time.
func (s *Store) bound(b *batch) (context.Context, context.CancelFunc) {
	part := s.timeout / 16
	if time.Since(b.opened) < part {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), b.opened.Add(s.timeout-part))
}

// end removes a call that has ended, and begins the next if callers wait.
func (s *Store) end(l *shard, t call) {
	if t.batch != nil {
		// Let the callers that were just woken return first: it makes the batches of a hot key a third larger.
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

// DecideBatch implements weir.Batcher. A batch passes straight through.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	layer.DecideBatch(ctx, s.Store, requests)
}

// Stats are counters since New, without the calls that pass straight through. Decisions by Requests is how much
// hot keys share, Requests by Trips how full batches are.
type Stats struct {
	Decisions int64 // decisions for callers, sent to the store below
	Requests  int64 // requests that they became: equal ones are merged
	Trips     int64 // calls of the store, for single callers and batches
}

// Stats returns the counters.
func (s *Store) Stats() (sum Stats) {
	for i := range s.shards {
		one := s.shards[i].counted()
		sum.Decisions += one.Decisions
		sum.Requests += one.Requests
		sum.Trips += one.Trips
	}
	return sum
}

// Close waits for the decisions that began before it, and closes the store below. Closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	for i := range s.shards {
		s.shards[i].drain()
	}
	return s.Store.Close()
}
