package gate

import (
	"context"
	"sync/atomic"
	"time"
)

// patient is the longest budget for which a decision need not look up from its wait when its
// caller goes away: it ends soon enough.
const patient = 250 * time.Millisecond

// WithBudget bounds a whole decision, from Decide to its return: the first call of the store,
// and those for bans, candidates and shadow rules after it. The store has 14/16 of it at least.
// What it has not answered by then is decided by the rules' on_store_error, and refusals, candidates and
// shadow rules go uncounted. Give it the store's timeout: each call alone is bounded by that. The default is none.
func WithBudget(budget time.Duration) Option { return func(g *Gate) { g.budget.length = budget } }

// A budget makes contexts of decisions. A context with a timer for each of them would cost more
// than all else that a gate does; here all decisions that begin within a sixteenth of the budget
// share one.
type budget struct {
	length  time.Duration // 0: none
	current atomic.Pointer[span]
}

// A span is a context that decisions may begin with until a certain time. It ends by its timer, not
// by stop: decisions may still wait for it when the next has taken its place.
type span struct {
	context.Context
	stop  context.CancelFunc
	until time.Time
}

// begin is the context of a decision that begins now, and what to call after it.
func (b *budget) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.length <= 0 || ctx.Err() != nil {
		return ctx, func() {}
	}
	now := time.Now()
	end := now.Add(b.length - b.length/16)
	if own, ok := ctx.Deadline(); ok && own.Before(end) {
		return ctx, func() {}
	}
	if b.length > patient && ctx.Done() != nil {
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

// callerLeft is why the context of the decision's caller is over; nil if only the budget is.
func callerLeft(ctx context.Context) error {
	if d, ok := ctx.Value(decisionKey{}).(*decisionContext); ok {
		return d.caller.Err()
	}
	return ctx.Err()
}

// outlasting is the context of what is done even if the caller leaves, for so long at most, and for
// no longer than what is left of the budget.
func outlasting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(most)
	if d, ok := ctx.Value(decisionKey{}).(*decisionContext); ok {
		if left, ok := d.Context.Deadline(); ok && left.Before(end) {
			end = left
		}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
