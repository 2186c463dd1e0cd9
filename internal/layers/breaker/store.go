package breaker

import (
	"context"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/partial"
)

// Decide implements weir.Store.
func (b *Breaker) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	t, began, away := b.enter()
	if away != nil {
		return 0, b.turnAway(claims, times, decisions, away)
	}
	granted, err := b.next.Decide(ctx, claims, times, decisions)
	b.ended(ctx, t, began, err)
	return granted, err
}

// Charge implements weir.Store.
func (b *Breaker) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	t, began, away := b.enter()
	if away != nil {
		return b.turnAway(claims, 1, decisions, away)
	}
	err := b.next.Charge(ctx, claims, decisions)
	b.ended(ctx, t, began, err)
	return err
}

// Refund implements weir.Store.
func (b *Breaker) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	t, began, away := b.enter()
	if away != nil {
		return b.turnAway(claims, 1, decisions, away)
	}
	err := b.next.Refund(ctx, claims, takenAt, decisions)
	b.ended(ctx, t, began, err)
	return err
}

// Reset implements weir.Store.
func (b *Breaker) Reset(ctx context.Context, claims []weir.Claim) error {
	t, began, away := b.enter()
	if away != nil {
		return b.turnAway(claims, 0, nil, away)
	}
	err := b.next.Reset(ctx, claims)
	b.ended(ctx, t, began, err)
	return err
}

// Close stops the probes and closes the next store.
func (b *Breaker) Close() error {
	b.stop()
	return b.next.Close()
}

// turnAway returns the error of a refused call. Wrong input stays wrong input: gates answer in place of an
// unavailable store, and a client must not be able to provoke that.
func (b *Breaker) turnAway(claims []weir.Claim, times int64, decisions []weir.Decision, away error) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	b.counts.turnedAway.Add(1)
	return away
}

// ended counts a call of one request.
func (b *Breaker) ended(ctx context.Context, t *phase, began time.Duration, err error) {
	var o outcome
	o.add(ctx, err)
	b.leave(t, began, o)
}

// DecideBatch implements weir.Batcher. A batch is admitted as a whole or not at all; each of its requests
// counts.
func (b *Breaker) DecideBatch(ctx context.Context, requests []weir.Request) {
	t, began, away := b.enter()
	if away != nil {
		b.turnAwayAll(requests, away)
		return
	}
	partial.Decide(ctx, b.next, requests)
	var o outcome
	for i := range requests {
		o.add(ctx, requests[i].Err)
	}
	b.leave(t, began, o)
}

func (b *Breaker) turnAwayAll(requests []weir.Request, away error) {
	for i := range requests {
		r := &requests[i]
		if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
			r.Err = away
			b.counts.turnedAway.Add(1)
		}
	}
}
