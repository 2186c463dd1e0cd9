// Package pace delays the requests of a client for as long as the server that it calls has requested.
package pace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
)

// MaxWait is the longest wait that is respected, unless the user of a client sets another.
const MaxWait = 30 * time.Second

// maxTargets is the maximum of targets with a wait.
const maxTargets = 1024

// Waits are the waits that targets have requested. The zero value is ready to use. It is safe for concurrent use.
type Waits struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// Block delays requests to a target. Of two waits the longer counts. A target beyond the maximum is not recorded.
func (w *Waits) Block(target string, wait time.Duration) {
	if wait <= 0 {
		return
	}
	now := time.Now()
	until := now.Add(wait)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until == nil {
		w.until = make(map[string]time.Time)
	}
	if _, known := w.until[target]; !known && len(w.until) >= maxTargets {
		w.forget(now)
	}
	if len(w.until) < maxTargets && until.After(w.until[target]) {
		w.until[target] = until
	}
}

// forget drops the waits that have ended.
func (w *Waits) forget(now time.Time) {
	for target, until := range w.until {
		if !until.After(now) {
			delete(w.until, target)
		}
	}
}

// Remaining is the rest of the wait for a target, 0 or less if it is over.
func (w *Waits) Remaining(target string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, ok := w.until[target]
	if !ok {
		return 0
	}
	wait := time.Until(until)
	if wait <= 0 {
		delete(w.until, target)
	}
	return wait
}

// Await sleeps the rest of the wait for a target. If ctx would end before, it fails at once with an error that is
// weir.ErrTooLong and context.DeadlineExceeded.
func (w *Waits) Await(ctx context.Context, target string) error {
	wait := w.Remaining(target)
	if wait <= 0 {
		return ctx.Err()
	}
	if !Fits(ctx, wait) {
		return fmt.Errorf("%s requests a wait of another %v: %w",
			target, wait, errors.Join(weir.ErrTooLong, context.DeadlineExceeded))
	}
	if !pause.For(wait, ctx.Done()) {
		return ctx.Err()
	}
	return nil
}

// Fits reports whether a wait ends before the context does.
func Fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

// Take waits until the client's own limiter grants a unit, for at most the given time. Under a concurrency limit the
// unit is held until release is called; else release is nil.
func Take(ctx context.Context, limiter *weir.Limiter, key string, most time.Duration) (release func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var lease *weir.Lease
	if slices.ContainsFunc(limiter.Limits(), (*weir.Limit).Leases) {
		lease, err = limiter.AcquireWait(bounded, key)
	} else {
		err = limiter.Wait(bounded, key)
	}
	switch {
	case errors.Is(err, weir.ErrTooLong):
		return nil, fmt.Errorf("the maximum wait is %v: %w", most, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, fmt.Errorf("the maximum wait is %v: %w", most, errors.Join(weir.ErrTooLong, err))
	case err != nil || lease == nil:
		return nil, err
	}
	stop := lease.KeepAlive(ctx, nil)
	return sync.OnceFunc(func() {
		stop()
		_ = lease.Release(context.WithoutCancel(ctx)) // the store repeats it
	}), nil
}
