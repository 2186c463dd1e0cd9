package redisstore

import (
	"context"
	"time"

	"github.com/weirproject/weir/internal/deadline"
)

// A bound puts a timeout on calls.
type bound struct{ deadline.Shared }

func newBound(timeout time.Duration) *bound { return &bound{deadline.Shared{Timeout: timeout}} }

// limit returns the context for one call, and its cancel function. The context ends after 14/16 to 15/16 of the
// timeout, so that the caller has the error in time, or at ctx's deadline, whichever is earlier. A cancellation of
// ctx during the call takes effect at once only if the timeout is over a quarter of a second, and at the end of the
// timeout otherwise.
func (b *bound) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, nothing
	}
	now := time.Now()
	if end, ok := ctx.Deadline(); ok && end.Sub(now) <= b.Timeout {
		return ctx, nothing
	}
	if b.Timeout > deadline.Short && ctx.Done() != nil {
		return context.WithDeadline(ctx, now.Add(b.Timeout))
	}
	if ctx == context.Background() {
		return b.Context(now), nothing
	}
	return &limited{b.Context(now), ctx}, nothing
}

func nothing() {}

// limited ends with the shared context and has the caller's values, such as its trace.
type limited struct {
	context.Context
	values context.Context
}

func (l *limited) Value(key any) any { return l.values.Value(key) }
