package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// patient is the longest timeout under which a call does not watch its caller's context: it
// ends soon enough.
const patient = 250 * time.Millisecond

// A bound puts a timeout on calls. context.WithTimeout for each of them would cost a
// fifth of the throughput: five allocations and a timer a call. Here all calls that
// begin within a sixteenth of the timeout share one context.
type bound struct {
	timeout time.Duration
	current atomic.Pointer[deadline]
}

// deadline is a context that calls may begin to use until a certain time. It ends by its
// timer, not by stop: calls may still wait for it when the next has taken its place.
type deadline struct {
	context.Context
	stop  context.CancelFunc
	until time.Time
}

func newBound(timeout time.Duration) *bound { return &bound{timeout: timeout} }

// limit returns the context for one call, and its cancel function. The context ends after
// 14/16 to 15/16 of the timeout, so that the caller has the error in time, or at ctx's
// deadline, whichever is earlier.
// A cancellation of ctx during the call takes effect at once only if the timeout is over a
// quarter of a second, and at the end of the timeout otherwise.
func (b *bound) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, nothing
	}
	now := time.Now()
	if end, ok := ctx.Deadline(); ok && end.Sub(now) <= b.timeout {
		return ctx, nothing
	}
	if b.timeout > patient && ctx.Done() != nil {
		return context.WithDeadline(ctx, now.Add(b.timeout))
	}
	if ctx == context.Background() {
		return b.shared(now), nothing
	}
	return &limited{b.shared(now), ctx}, nothing
}

func nothing() {}

// limited ends with the shared context and has the caller's values, such as its trace.
type limited struct {
	context.Context
	values context.Context
}

func (l *limited) Value(key any) any { return l.values.Value(key) }

func (b *bound) shared(now time.Time) context.Context {
	current := b.current.Load()
	if current != nil && now.Before(current.until) {
		return current
	}
	share := b.timeout / 16
	ctx, stop := context.WithDeadline(context.Background(), now.Add(b.timeout-share))
	next := &deadline{ctx, stop, now.Add(share)}
	if b.current.CompareAndSwap(current, next) {
		return next
	}
	next.stop()
	return b.current.Load()
}
