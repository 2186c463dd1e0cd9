package weir

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Wait waits until one unit is granted, and until its Delay has passed.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN waits until n units are granted, and until their Delay has passed. If the context
// ends first, the units are given back; if it would end before the wait is over, as far as that
// is known, WaitN fails at once. The error is a *RefusedError ([ErrNever], [ErrTooLong]),
// the context's, or the store's.
//
// Callers of one Limiter that wait for the same key are served in order of arrival: small
// requests do not overtake a large n. One call of the store asks for many of them. Several
// limiters and several processes compete, and so do calls that do not wait, such as Allow, which
// may take the units that a large n waits for. A limiter of the same name with a bucket that may borrow n
// units ([Borrowing]) takes its turn in the store at once: calls by the one that may not borrow come
// after it, in all processes.
//
// While callers wait, a call of the store that fails with ErrUnavailable is repeated for up to a
// second, for one caller at a time. Units that a call without an answer charged stay
// charged.
//
// A limiter with a concurrency limit cannot wait: see AcquireWait.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	return l.waitOnly(ctx, key, costs{n})
}

// WaitEach is WaitN with a cost for each limit, in the order of Limits.
func (l *Limiter) WaitEach(ctx context.Context, key string, cost ...int64) error {
	if err := l.checkEach(cost); err != nil {
		return err
	}
	return l.waitOnly(ctx, key, slices.Clone(cost))
}

// waitOnly waits for units that need no release.
func (l *Limiter) waitOnly(ctx context.Context, key string, c costs) error {
	if l.holds() {
		return invalid("limits", "a concurrency limit", "limits without leases to wait; use AcquireWait")
	}
	_, err := l.wait(ctx, key, c)
	return err
}

// wait waits for units. The reservation is nil where they need neither a delay nor a release.
func (l *Limiter) wait(ctx context.Context, key string, c costs) (*Reservation, error) {
	if err := ctx.Err(); err != nil { // charge nothing for a caller that has gone
		return nil, err
	}
	if !l.fits(c) { // it is never granted: no caller may queue behind it
		reservation, err := l.try(ctx, key, c)
		return sleepDelay(ctx, reservation, err)
	}
	q, direct := l.waiters.enter(l, key)
	if !direct {
		return q.wait(ctx, c, nil)
	}
	reservation, err := l.try(ctx, key, c)
	if refused, ok := err.(*RefusedError); ok && refused.Answer.RetryAfter != Never {
		return q.wait(ctx, c, &refused.Answer)
	}
	q.leave()
	return sleepDelay(ctx, reservation, err)
}

// try asks the store once; a refusal is a plain *RefusedError. The reservation is nil where a
// grant has neither a delay nor a lease.
func (l *Limiter) try(ctx context.Context, key string, c costs) (*Reservation, error) {
	if len(c) > 1 || l.holds() || slices.ContainsFunc(l.limits, (*Limit).lends) {
		return l.reserve(ctx, c, key)
	}
	answer, err := l.decide(ctx, key, c[0])
	if err == nil && !answer.Allowed {
		err = &RefusedError{Answer: answer}
	}
	return nil, err
}

// lends reports whether a grant may have a delay.
func (l *Limit) lends() bool { return l.overdraft > 0 }

// fits reports whether the limits can ever grant the costs.
func (l *Limiter) fits(c costs) bool {
	for i, limit := range l.limits {
		if n := c.of(i); n < 0 || n+l.floor(i) > limit.Most() {
			return false
		}
	}
	return true
}

// sleepDelay ends a wait: it sleeps the reservation's delay, if there is one, and cancels the
// reservation if the context ends first.
func sleepDelay(ctx context.Context, r *Reservation, err error) (*Reservation, error) {
	if err != nil || r == nil || r.answer.Delay == 0 {
		return r, err
	}
	defer r.KeepAlive(ctx, nil)()
	if err = sleep(ctx, r.answer); err != nil {
		// The context may be over: the units are given back all the same.
		return nil, errors.Join(err, r.Cancel(context.WithoutCancel(ctx)))
	}
	return r, nil
}

// sleep sleeps answer.Delay, or fails at once if the context would end before.
func sleep(ctx context.Context, answer Answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := tooLong(ctx, answer, answer.Delay); err != nil {
		return err
	}
	if !pause(answer.Delay, ctx.Done()) {
		return ctx.Err()
	}
	return nil
}

// pause reports whether d passed before done was ready.
func pause(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

// tooLong is a refusal if the context would end before the wait does.
func tooLong(ctx context.Context, answer Answer, wait time.Duration) error {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > wait { // at its deadline a context is over
		return nil
	}
	answer.Allowed, answer.RetryAfter = false, wait
	return &RefusedError{Answer: answer, cause: errors.Join(ErrTooLong, context.DeadlineExceeded)}
}
