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
	"time"

	"github.com/weirproject/weir"
)

// Func is fn behind a limiter: each call asks for one unit of the key that its argument
// has, and calls fn only if it is granted; otherwise the error is a *weir.RefusedError.
// Where the key or the store fails, fn is not called and their error is returned: to pass
// then is for the caller to decide.
//
// A concurrency limit is held until fn returns (or panics): while fn runs, its lease is
// renewed each third of its time-to-live. If it is lost all the same, because the store
// did not answer for that long, fn is not told. What was borrowed (an overdraft, a leaky
// queue) is slept before fn is called; if the context ends meanwhile, fn is not called, and
// the unit stays charged.
//
// It takes fn as its third argument, not in a second call, because Go could then not infer
// fn's result.
func Func[A, R any](limiter *weir.Limiter, key func(context.Context, A) (string, error), fn func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	ttl := timeToLive(limiter)
	return func(ctx context.Context, argument A) (result R, err error) {
		name, err := key(ctx, argument)
		if err != nil {
			return result, err
		}
		answer, held, err := admit(ctx, limiter, name, ttl > 0)
		if err != nil {
			return result, err
		}
		if held != nil {
			// The context may be over: the units are given back all the same. Where that
			// fails they come back by themselves; what fn did is not undone by it.
			defer held.Release(context.WithoutCancel(ctx))
			defer weir.KeepAlive(ctx, ttl, held.Renew, nil)()
		}
		if err := sleep(ctx, answer.Delay); err != nil {
			return result, err
		}
		return fn(ctx, argument)
	}
}

// timeToLive is the shortest of what the limiter holds; 0: it holds nothing.
func timeToLive(limiter *weir.Limiter) (ttl time.Duration) {
	for _, limit := range limiter.Limits() {
		if limit.Algorithm() != weir.AlgorithmConcurrency {
			continue
		}
		if own := time.Duration(limit.Period()) * time.Microsecond; ttl == 0 || own < ttl {
			ttl = own
		}
	}
	return ttl
}

// admit is the answer that grants, and the lease if the limiter holds one.
func admit(ctx context.Context, limiter *weir.Limiter, key string, holds bool) (weir.Answer, *weir.Lease, error) {
	if !holds {
		answer, err := limiter.Allow(ctx, key)
		if err == nil && !answer.Allowed {
			err = &weir.RefusedError{Answer: answer}
		}
		return answer, nil, err
	}
	held, err := limiter.Acquire(ctx, key)
	if err != nil {
		return weir.Answer{}, nil, err
	}
	return held.Answer(), held, nil
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
		return ctx.Err()
	}
}
