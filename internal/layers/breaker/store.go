package breaker

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

func (b *Breaker) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (granted int64, err error) {
	err = b.call(ctx, claims, times, decisions, func() (err error) {
		granted, err = b.next.Decide(ctx, claims, times, decisions)
		return err
	})
	return granted, err
}

func (b *Breaker) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return b.call(ctx, claims, 1, decisions, func() error { return b.next.Charge(ctx, claims, decisions) })
}

func (b *Breaker) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	called := false
	err := b.call(ctx, claims, 1, decisions, func() error {
		called = true
		return b.next.Refund(ctx, claims, takenAt, decisions)
	})
	if !called && errors.Is(err, weir.ErrUnavailable) {
		b.releaseLater(claims, takenAt)
	}
	return err
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// releaseLater tells the store below of leases that were not released: the store sends nothing in a context that has
// ended, and releases them in the background.
func (b *Breaker) releaseLater(claims []weir.Claim, takenAt weir.Instant) {
	for i := range claims {
		if claims[i].Renew { // the call depends on it: its caller repeats it
			return
		}
	}
	for i := range claims {
		if claims[i].Lease != "" {
			b.next.Refund(ended, claims[i:i+1:i+1], takenAt, nil)
		}
	}
}

func (b *Breaker) Reset(ctx context.Context, claims []weir.Claim) error {
	return b.call(ctx, claims, 0, nil, func() error { return b.next.Reset(ctx, claims) })
}

// Close stops the probes and closes the next store.
func (b *Breaker) Close() error {
	b.stop()
	return b.next.Close()
}

// call makes a call of one request, or refuses it. Wrong input stays wrong input: gates answer in place of an
// unavailable store, and a client must not be able to provoke that.
func (b *Breaker) call(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision,
	next func() error) error {
	t, began, away := b.enter()
	if away != nil {
		if err := weir.Check(claims, times, decisions); err != nil {
			return err
		}
		b.counts.turnedAway.Add(1)
		return away
	}
	err := next()
	var o outcome
	b.add(ctx, &o, err)
	b.leave(t, began, o)
	return err
}

// DecideBatch implements weir.Batcher. A batch is admitted as a whole or not at all; each of its requests counts.
func (b *Breaker) DecideBatch(ctx context.Context, requests []weir.Request) {
	t, began, away := b.enter()
	if away != nil {
		b.turnAwayAll(requests, away)
		return
	}
	layer.DecideBatch(ctx, b.next, requests)
	var o outcome
	for i := range requests {
		b.add(ctx, &o, requests[i].Err)
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
