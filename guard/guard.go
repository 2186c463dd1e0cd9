// Package guard puts a limiter before a function, as an annotation does in other languages.
//
//	send := guard.Func(limiter, byPhone, sendCode)
//	receipt, err := send(ctx, message)
//	var refused *weir.RefusedError
//	if errors.As(err, &refused) {
//		// it was not sent; retry after refused.Answer.RetryAfter
//	}
package guard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// Func is fn behind a limiter: each call asks for one unit of its argument's key and calls fn
// only if the unit is granted; otherwise the error is a *weir.RefusedError. If the key or the
// store fails, fn is not called and the error is returned: the caller decides whether to go on.
//
// A concurrency limit is held until fn returns (or panics): while fn runs, its lease is
// renewed. If the lease is lost all the same, because the store did not answer for its
// time-to-live, fn's context is cancelled with the cause weir.ErrLeaseGone. The delay of a grant
// (an overdraft, a leaky queue) is slept before fn is called; if the context ends meanwhile, fn
// is not called, and the unit is given back.
//
// fn is the third argument, not that of a second call, because Go could then not infer its
// result.
func Func[A, R any](
	limiter *weir.Limiter, key func(context.Context, A) (string, error), fn func(context.Context, A) (R, error),
) func(context.Context, A) (R, error) {
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
		// The context may be over: the units are given back all the same. An error is dropped:
		// fn has run, and the units come back with time.
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

// needsReservation reports whether a grant is held while fn runs, or may have a delay before it.
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
