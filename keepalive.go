package weir

import (
	"context"
	"errors"
	"sync"
	"time"
)

// KeepAlive calls renew each third of ttl, so that a lease outlives its time-to-live while
// the work that holds it goes on: renew is [Lease.Renew], or what renews several at once.
// Two renewals may fail before the lease is lost. It holds a timer, not a goroutine.
//
// It ends when stop is called, which is safe to call more than once, and when renew says
// ErrLeaseGone. failed is told of each error of renew, one after the other, from another
// goroutine; nil is nobody. Renewals keep ctx' values and not its end: a lease is held until it is released,
// also for a caller who has gone. Stop cancels a renewal that is on its way, and does not
// wait for it.
func KeepAlive(ctx context.Context, ttl time.Duration, renew func(context.Context) error, failed func(error)) (stop func()) {
	k := &keeper{every: max(ttl/3, time.Millisecond), renew: renew, failed: failed}
	var cancel context.CancelFunc
	k.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock()
	k.timer = time.AfterFunc(k.every, k.keep)
	k.mu.Unlock()
	return func() {
		cancel()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.timer.Stop()
	}
}

// A keeper is a KeepAlive that runs.
type keeper struct {
	ctx    context.Context // over: it was stopped
	every  time.Duration
	renew  func(context.Context) error
	failed func(error)
	mu     sync.Mutex // guards timer, which may fire before it is known
	timer  *time.Timer
}

func (k *keeper) keep() {
	if k.stopped() {
		return
	}
	err := k.renew(k.ctx)
	if k.stopped() { // what a stopped renewal says is nobody's business
		return
	}
	if err != nil && k.failed != nil {
		k.failed(err)
	}
	if !errors.Is(err, ErrLeaseGone) {
		k.again()
	}
}

func (k *keeper) stopped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ctx.Err() != nil
}

func (k *keeper) again() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() == nil {
		k.timer.Reset(k.every)
	}
}
