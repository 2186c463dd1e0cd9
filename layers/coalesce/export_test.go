package coalesce

import (
	"context"

	"github.com/weirproject/weir"
)

// NewLanes is New with a number of lanes.
func NewLanes(next weir.Store, lanes int) (*Store, error) { return newStore(next, lanes) }

const (
	EnoughTrips = enoughTrips
	MostTrips   = mostTrips
	MostClaims  = mostClaims
	MostMerged  = mostMerged
)

// Waiting are the lengths of the lanes' queues together, and the trips under way.
func (s *Store) Waiting() (batches, trips int) {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.mu.Lock()
		batches += len(l.queue)
		trips += len(l.trips)
		l.mu.Unlock()
	}
	return batches, trips
}

// A Batched store sends every decision that it can in a batch, even if nobody else asks.
type Batched struct{ *Store }

// Decide takes a seat where Store's would ask the store below.
func (s Batched) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if s.closed.Load() || times != 1 || weir.Check(claims, times, decisions) != nil || leased(claims) {
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	l := &s.lanes[0]
	l.mu.Lock()
	at := l.join(s.hash(claims), claims, decisions != nil)
	b := l.take()
	l.mu.Unlock()
	if b != nil {
		go s.send(l, b)
	}
	return at.wait(ctx, decisions)
}
