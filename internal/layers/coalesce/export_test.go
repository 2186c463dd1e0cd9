package coalesce

import (
	"context"
	"time"

	"github.com/weirproject/weir"
)

// NewAt is New with places of the test's.
func NewAt(next weir.Store, timeout time.Duration, places int, place func([]weir.Claim) int) *Store {
	s := newStore(next, places)
	s.place, s.timeout = place, timeout
	return s
}

// Places and Place are the queues of a Cluster.
const Places = places

// Place is the queue of a decision.
func Place(claims []weir.Claim) int { return placeOf(claims) }

// NewLanes is New with a number of shards.
func NewLanes(next weir.Store, shards int) *Store { return newStore(next, shards) }

// Shards is the number of shards.
func (s *Store) Shards() int { return len(s.shards) }

const (
	EnoughTrips = enoughCalls
	MostTrips   = mostCalls
	MostClaims  = mostClaims
	MostMerged  = mostMerged
)

// Waiting are the lengths of the shards' queues together, and the calls under way.
func (s *Store) Waiting() (batches, calls int) {
	for i := range s.shards {
		l := &s.shards[i]
		l.mu.Lock()
		batches += len(l.queue)
		calls += len(l.calls)
		l.mu.Unlock()
	}
	return batches, calls
}

// A Batched store sends every decision in a batch, even single ones.
type Batched struct{ *Store }

// Decide takes a waiter where Store's would ask the store below.
func (s Batched) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if s.closed.Load() || times != 1 || weir.Check(claims, times, decisions) != nil || leased(claims) {
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	l := &s.shards[0]
	l.mu.Lock()
	at := l.join(s.hash(claims), claims, decisions != nil)
	b := l.take()
	l.mu.Unlock()
	if b != nil {
		go s.send(l, b)
	}
	return at.wait(ctx, decisions)
}
