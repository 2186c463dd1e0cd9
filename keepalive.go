package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// KeepAlive renews a lease each third of ttl while the work that holds it goes on: renew is
// [Lease.Renew], or a function that renews several leases at once. After an error it tries again
// each sixth of ttl, so that three renewals may fail before the lease is lost.
//
// The lease is lost when renew returns ErrLeaseGone, or when ttl has passed since KeepAlive was
// called, or since before the last successful call of renew: from then on another caller may hold
// it, whether or not the store answers. failed, if non-nil, is called with each error of renew,
// sequentially, on another goroutine. Its last call is with ErrLeaseGone; then KeepAlive ends.
//
// ttl counts from the call of KeepAlive. [Lease.KeepAlive] counts from when the lease was taken.
//
// Renewals keep the values of ctx but not its end: a lease is held until it is released, also
// after its caller has gone. stop ends KeepAlive and may be called more than once: it cancels a
// renewal that is under way, and does not wait for it. KeepAlive holds timers, not a goroutine.
func KeepAlive(
	ctx context.Context, ttl time.Duration, renew func(context.Context) error, failed func(error),
) (stop func()) {
	return keepAlive(ctx, time.Now(), ttl, renew, failed)
}

// keepAlive counts the first time-to-live from since.
func keepAlive(
	ctx context.Context, since time.Time, ttl time.Duration, renew func(context.Context) error, failed func(error),
) (stop func()) {
	k := &keeper{ttl: max(ttl, 3*time.Millisecond), renew: renew, failed: failed, since: since}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = time.AfterFunc(time.Until(since.Add(k.ttl/3)), k.renewal)
	k.lost = time.AfterFunc(time.Until(since.Add(k.ttl)), k.expire)
	return k.stop
}

// A keeper is a KeepAlive that runs.
type keeper struct {
	ctx    context.Context // done when the keeper has ended
	cancel context.CancelFunc
	ttl    time.Duration
	renew  func(context.Context) error
	failed func(error)

	reporting sync.Mutex // held while failed is called
	mu        sync.Mutex // guards the fields below; a timer may fire before they are set
	since     time.Time  // before the last call was sent that took or renewed the lease
	err       error      // of the last renewal
	next      *time.Timer
	lost      *time.Timer
}

// renewal does not wait for failed to return before the next renewal.
func (k *keeper) renewal() {
	if k.ctx.Err() != nil {
		return
	}
	sent := time.Now()
	err := k.renew(k.ctx)
	switch {
	case errors.Is(err, ErrLeaseGone):
		k.end(err)
	case k.schedule(sent, err) && err != nil:
		k.report(err)
	}
}

// schedule resets the timers after a renewal. It is false if the keeper ended meanwhile.
func (k *keeper) schedule(sent time.Time, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	wait := k.ttl / 6
	if k.err = err; err == nil {
		wait = k.ttl / 3
		k.since = sent // the store renewed it later, but how much later is not known
		k.lost.Reset(time.Until(sent.Add(k.ttl)))
	}
	if next := sent.Add(wait); next.Before(k.since.Add(k.ttl)) {
		k.next.Reset(time.Until(next))
	}
	return true
}

// expire ends the keeper of a lease that was not renewed in time.
func (k *keeper) expire() {
	k.mu.Lock()
	early, err := time.Since(k.since) < k.ttl, k.err // early: it was renewed as the timer fired
	k.mu.Unlock()
	switch {
	case early:
	case err == nil:
		k.end(fmt.Errorf("%w: not renewed within %v", ErrLeaseGone, k.ttl))
	default:
		k.end(fmt.Errorf("%w: not renewed within %v: %w", ErrLeaseGone, k.ttl, err))
	}
}

// end reports a lost lease, unless the keeper has ended before.
func (k *keeper) end(err error) {
	if k.stopped() {
		k.report(err)
	}
}

func (k *keeper) report(err error) {
	if k.failed != nil {
		k.reporting.Lock()
		defer k.reporting.Unlock()
		k.failed(err)
	}
}

func (k *keeper) stop() { k.stopped() }

// stopped ends the keeper, and reports whether it had not ended before.
func (k *keeper) stopped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return false
	}
	k.cancel()
	k.next.Stop()
	k.lost.Stop()
	return true
}
