package weir

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
)

// Guard returns fn behind a limiter, as an annotation does in other languages: each call takes one unit of each limit,
// in one decision, and calls fn only if all grant it.
//
// keys returns the key of the call: one for all limits, or one for each in the order of Limits, such as the user, the
// address and "all". With nil keys, all calls have one key: the name of fn with its package. The name of a closure is
// no key, because it changes with the program: then each call returns an error. An error of keys is returned, and fn
// is not called.
//
// fallback is called instead of fn after a refusal, with a *[RefusedError], and when the store fails, with its error;
// nil returns that error. [FailOpen] makes a fallback that calls fn when the store is unavailable.
//
// A concurrency limit is held until fn returns or panics: while fn runs, its lease is renewed. If the lease is lost all
// the same, because the store did not answer for its time-to-live, the context of fn is cancelled with the cause
// [ErrLeaseGone]. The delay of a grant (an overdraft, a leaky queue) is slept before fn is called; if the context ends
// meanwhile, the units are given back and fn is not called.
func Guard[A, R any](
	limiter *Limiter,
	keys func(context.Context, A) ([]string, error),
	fn func(context.Context, A) (R, error),
	fallback func(context.Context, A, error) (R, error),
) func(context.Context, A) (R, error) {
	if keys == nil {
		name, err := nameOf(fn)
		keys = func(context.Context, A) ([]string, error) { return []string{name}, err }
	}
	return func(ctx context.Context, argument A) (result R, err error) {
		names, err := keys(ctx, argument)
		if err == nil {
			err = limiter.checkKeys(names)
		}
		if err != nil {
			return result, err
		}
		reservation, err := limiter.reserve(ctx, costs{1}, names...)
		switch {
		case err != nil && fallback != nil:
			return fallback(ctx, argument, err)
		case err != nil:
			return result, err
		}
		cost := int64(0)
		// The context may be over: the units are given back all the same. An error is dropped:
		// fn has run, and the units come back with time.
		defer func() { reservation.Settle(context.WithoutCancel(ctx), cost) }()
		held, lose := context.WithCancelCause(ctx)
		defer lose(nil)
		defer reservation.KeepAlive(ctx, func(err error) {
			if errors.Is(err, ErrLeaseGone) {
				lose(err)
			}
		})()
		if delay := reservation.Answer().Delay; delay > 0 && !pause(delay, held.Done()) {
			return result, context.Cause(held)
		}
		cost = 1
		return fn(held, argument)
	}
}

var closure = regexp.MustCompile(`\.func\d+(\.\d+|-range\d+)*$`)

// nameOf is the name of a function. That of a closure, such as main.func1, changes with the program around it: two
// builds of one program would count apart.
func nameOf(fn any) (string, error) {
	name := runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name()
	if closure.MatchString(name) {
		return "", invalid("keys", "none for the closure "+name, "give keys, or a function that has a name")
	}
	return name, nil
}

// FailOpen is a fallback of [Guard] that calls fn, without a limit, when the store is unavailable. It returns refusals
// and all other errors.
func FailOpen[A, R any](fn func(context.Context, A) (R, error)) func(context.Context, A, error) (R, error) {
	return func(ctx context.Context, argument A, err error) (result R, _ error) {
		if errors.Is(err, ErrUnavailable) {
			return fn(ctx, argument)
		}
		return result, err
	}
}

func (l *Limiter) checkKeys(keys []string) error {
	if n := len(keys); n != 1 && n != len(l.limits) {
		return invalid("keys", n, "1 for all limits, or "+strconv.Itoa(len(l.limits))+", one for each limit")
	}
	return nil
}
