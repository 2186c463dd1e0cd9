// Package guard puts a limiter before a function: what an annotation does in other
// languages.
//
//	send := guard.Func(limiter, byPhone, sendCode)
//	receipt, err := send(ctx, message)
//	var refused *weir.RefusedError
//	if errors.As(err, &refused) {
//		// it was not sent; come back in refused.Answer.RetryAfter
//	}
package guard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// Func is fn behind a limiter: each call asks for one unit of the key that its argument
// has, and calls fn only if it is granted; otherwise the error is a *weir.RefusedError.
// Where the key or the store fails, fn is not called and their error is returned: to pass
// then is for the caller to decide.
//
// A concurrency limit is held until fn returns (or panics): while fn runs, its lease is
// renewed. If it is lost all the same, because the store did not answer for the lease's
// time-to-live, fn's context is cancelled with the cause weir.ErrLeaseGone. What was borrowed
// (an overdraft, a leaky queue) is slept before fn is called; if the context ends meanwhile, fn
// is not called, and the unit is given back.
//
// It takes fn as its third argument, not in a second call, because Go could then not infer
// fn's result.
func Func[A, R any](limiter *weir.Limiter, key func(context.Context, A) (string, error), fn func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	reserves := slices.ContainsFunc(limiter.Limits(), needsReservation)
	return func(ctx context.Context, argument A) (result R, err error) {
		name, err := key(ctx, argument)
		if err != nil {
			return result, err
		}
		if !reserves {
			if err := allow(ctx, limiter, name); err != nil {
				return result, err
			}
			return fn(ctx, argument)
		}
		reservation, err := limiter.Reserve(ctx, name, 1)
		if err != nil {
			return result, err
		}
		cost := int64(0)
		// The context may be over: the units are given back all the same. Where that
		// fails they come back by themselves; what fn did is not undone by it.
		defer func() { reservation.Settle(context.WithoutCancel(ctx), cost) }()
		held, lose := context.WithCancelCause(ctx)
		defer lose(nil)
		defer reservation.KeepAlive(ctx, func(err error) {
			if errors.Is(err, weir.ErrLeaseGone) {
				lose(err)
			}
		})()
		if err := sleep(held, reservation.Answer().Delay); err != nil {
			return result, err
		}
		cost = 1
		return fn(held, argument)
	}
}

// needsReservation reports whether a grant is held while fn runs, or may wait before.
func needsReservation(limit *weir.Limit) bool {
	return limit.Algorithm() == weir.AlgorithmConcurrency || limit.Overdraft() > 0
}

func allow(ctx context.Context, limiter *weir.Limiter, key string) error {
	answer, err := limiter.Allow(ctx, key)
	if err == nil && !answer.Allowed {
		err = &weir.RefusedError{Answer: answer}
	}
	return err
}

func sleep(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
