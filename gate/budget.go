package gate

import (
	"context"
	"time"

	"github.com/weirproject/weir/internal/deadline"
)

// WithBudget bounds a whole decision, from Decide to its return: the first call of the store, and the calls
// after it for bans, candidates and shadow rules. The store has at least 14/16 of it. After that the rules'
// on_store_error decides, and refusals, candidates and shadow rules go uncounted. Give it the store's timeout,
// which bounds single calls only. The default is no bound.
func WithBudget(budget time.Duration) Option { return func(g *Gate) { g.budget.Timeout = budget } }

// A budget makes the contexts of decisions. Its Timeout is 0 without a budget.
type budget struct{ deadline.Shared }

// begin returns the context of a decision that begins now, and a function to call at its end.
func (b *budget) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.Timeout <= 0 || ctx.Err() != nil {
		return ctx, func() {}
	}
	now := time.Now()
	end := now.Add(b.Timeout - b.Timeout/16)
	if own, ok := ctx.Deadline(); ok && own.Before(end) {
		return ctx, func() {}
	}
	caller := ctx
	if d, ok := ctx.(*decisionContext); ok {
		caller = d.caller
	}
	if b.Timeout > deadline.Short && ctx.Done() != nil {
		bounded, cancel := context.WithDeadline(ctx, end)
		return &decisionContext{bounded, caller}, cancel
	}
	return &decisionContext{b.Context(now), caller}, func() {}
}

// maxBefore is the longest time before a caller's deadline that is kept for the answer.
const maxBefore = 25 * time.Millisecond

// beforeDeadline is begin for a caller that does not wait beyond its deadline: the decision ends before it.
func (b *budget) beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.Timeout <= 0 {
		return b.begin(ctx)
	}
	early, cancel := BeforeDeadline(ctx)
	bounded, done := b.begin(early)
	return bounded, func() { done(); cancel() }
}

// BeforeDeadline returns a context for Decide that ends a quarter before the deadline of ctx, at most 25 ms: then the
// store is not waited for any longer, and on_store_error decides, so that the answer is in time. With ctx itself,
// Decide would return its error. Without a deadline it is ctx.
func BeforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(end)
	bounded, cancel := context.WithDeadline(ctx, end.Add(-min(left/4, maxBefore)))
	return &decisionContext{Context: bounded, caller: ctx}, cancel
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

// counting bounds the time for the counts after a decision.
func (g *Gate) counting() time.Duration { return max(countTimeout, g.budget.Timeout) }

// detached is a context for work that goes on after the caller leaves, within the rest of the budget.
func (g *Gate) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	most := g.counting()
	d, ok := ctx.Value(decisionKey{}).(*decisionContext)
	if !ok {
		return context.WithTimeout(context.WithoutCancel(ctx), most)
	}
	end := time.Now().Add(most)
	if left, ok := d.Context.Deadline(); ok && left.Before(end) {
		end = left
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
