package gate

import (
	"context"
	"sync/atomic"
	"time"
)

// shortBudget is the longest budget for which a decision does not watch its caller's context while it waits:
// it ends soon enough.
const shortBudget = 250 * time.Millisecond

// WithBudget bounds a whole decision, from Decide to its return: the first call of the store, and the calls
// after it for bans, candidates and shadow rules. The store has at least 14/16 of it. After that the rules'
// on_store_error decides, and refusals, candidates and shadow rules go uncounted. Give it the store's timeout,
// which bounds single calls only. The default is no bound.
func WithBudget(budget time.Duration) Option { return func(g *Gate) { g.budget.length = budget } }

// A budget makes the contexts of decisions. A timer for each decision would cost more than the rest of the
// gate, so all decisions that begin within a sixteenth of the budget share one.
type budget struct {
	length  time.Duration // 0: none
	current atomic.Pointer[span]
}

// A span is the context of decisions that begin before until. It ends by its timer, and is not stopped when
// the next span replaces it: decisions may still wait on it.
type span struct {
	context.Context
	stop  context.CancelFunc
	until time.Time
}

// begin returns the context of a decision that begins now, and a function to call at its end.
func (b *budget) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.length <= 0 || ctx.Err() != nil {
		return ctx, func() {}
	}
	now := time.Now()
	end := now.Add(b.length - b.length/16)
	if own, ok := ctx.Deadline(); ok && own.Before(end) {
		return ctx, func() {}
	}
	if b.length > shortBudget && ctx.Done() != nil {
		bounded, cancel := context.WithDeadline(ctx, end)
		return &decisionContext{bounded, ctx}, cancel
	}
	return &decisionContext{b.shared(now), ctx}, func() {}
}

func (b *budget) shared(now time.Time) context.Context {
	current := b.current.Load()
	if current != nil && now.Before(current.until) {
		return current
	}
	share := b.length / 16
	ctx, stop := context.WithDeadline(context.Background(), now.Add(b.length-share))
	next := &span{ctx, stop, now.Add(share)}
	if b.current.CompareAndSwap(current, next) {
		return next
	}
	next.stop()
	return b.current.Load()
}

// A decisionContext ends with its decision's budget, and has the values of the caller's context.
type decisionContext struct {
	context.Context
	caller context.Context
}

type decisionKey struct{}

// Value implements context.Context.
func (d *decisionContext) Value(key any) any {
	if key == (decisionKey{}) {
		return d
	}
	return d.caller.Value(key)
}

// Err implements context.Context.
func (d *decisionContext) Err() error {
	if err := d.caller.Err(); err != nil {
		return err
	}
	return d.Context.Err()
}

// callerLeft is the error of the caller's own context; nil if only the budget has ended.
func callerLeft(ctx context.Context) error {
	if d, ok := ctx.Value(decisionKey{}).(*decisionContext); ok {
		return d.caller.Err()
	}
	return ctx.Err()
}

// detached is a context for work that goes on after the caller leaves, for at most this long and within the
// rest of the budget.
func detached(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(most)
	if d, ok := ctx.Value(decisionKey{}).(*decisionContext); ok {
		if left, ok := d.Context.Deadline(); ok && left.Before(end) {
			end = left
		}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
