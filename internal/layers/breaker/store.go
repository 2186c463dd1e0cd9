package breaker

import (
	"context"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/timeout"
)

// store is the weir.Store behind Breaker.Store.
type store struct{ *Breaker }

// Decide implements weir.Store.
func (s *store) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	t, began, away := s.enter()
	if away != nil {
		return 0, s.turnAway(claims, times, decisions, away)
	}
	granted, err := s.next.Decide(ctx, claims, times, decisions)
	s.ended(ctx, t, began, err)
	return granted, err
}

// Charge implements weir.Store.
func (s *store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	t, began, away := s.enter()
	if away != nil {
		return s.turnAway(claims, 1, decisions, away)
	}
	err := s.next.Charge(ctx, claims, decisions)
	s.ended(ctx, t, began, err)
	return err
}

// Refund implements weir.Store.
func (s *store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	t, began, away := s.enter()
	if away != nil {
		return s.turnAway(claims, 1, decisions, away)
	}
	err := s.next.Refund(ctx, claims, takenAt, decisions)
	s.ended(ctx, t, began, err)
	return err
}

// Reset implements weir.Store.
func (s *store) Reset(ctx context.Context, claims []weir.Claim) error {
	t, began, away := s.enter()
	if away != nil {
		return s.turnAway(claims, 0, nil, away)
	}
	err := s.next.Reset(ctx, claims)
	s.ended(ctx, t, began, err)
	return err
}

// Timeout is the timeout of the next store, 0 if it has none, for the layers above.
func (s *store) Timeout() time.Duration { return timeout.Of(s.next) }

// Close stops the probes and closes the next store.
func (s *store) Close() error {
	s.stop()
	return s.next.Close()
}

// turnAway returns the error of a refused call. Wrong input stays wrong input: gates answer in place of an
// unavailable store, and a client must not be able to provoke that.
func (s *store) turnAway(claims []weir.Claim, times int64, decisions []weir.Decision, away error) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	s.counts.turnedAway.Add(1)
	return away
}

// ended counts a call of one request.
func (s *store) ended(ctx context.Context, t *phase, began time.Duration, err error) {
	var o outcome
	o.add(ctx, err)
	s.leave(t, began, o)
}

// batchStore is a store that decides batches.
type batchStore struct {
	store
	batcher weir.Batcher
}

// DecideBatch implements weir.Batcher. A batch is admitted as a whole or not at all; each of its requests
// counts.
func (s *batchStore) DecideBatch(ctx context.Context, requests []weir.Request) {
	t, began, away := s.enter()
	if away != nil {
		s.turnAwayAll(requests, away)
		return
	}
	s.batcher.DecideBatch(ctx, requests)
	var o outcome
	for i := range requests {
		o.add(ctx, requests[i].Err)
	}
	s.leave(t, began, o)
}

func (s *batchStore) turnAwayAll(requests []weir.Request, away error) {
	for i := range requests {
		r := &requests[i]
		if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
			r.Err = away
			s.counts.turnedAway.Add(1)
		}
	}
}
