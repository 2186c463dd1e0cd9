package weir

import (
	"errors"
	"fmt"
)

var (
	// ErrNever is returned (wrapped) by Wait, Reserve and Acquire when no wait can help: the
	// cost is more than the limit can ever hold.
	ErrNever = errors.New("weir: the cost is more than the limit can ever hold")

	// ErrTooLong is returned (wrapped, together with context.DeadlineExceeded) by Wait when
	// the context would end before the wait does. No limit was charged.
	ErrTooLong = errors.New("weir: the wait is longer than the context allows")

	// ErrLeaseGone means that a lease is not held: its time-to-live passed, it was released,
	// or it was never taken. No state was changed.
	ErrLeaseGone = errors.New("weir: the lease is gone: it expired or was released")

	// ErrRefused is every [RefusedError], also one that is ErrNever or ErrTooLong.
	ErrRefused = errors.New("weir: refused")

	// ErrClosed is returned by a store that was closed.
	ErrClosed = errors.New("weir: the store is closed")

	// ErrForeignState is returned (wrapped) when the state under a key was not written by
	// this store: another type, format or version. It is never overwritten.
	ErrForeignState = errors.New("weir: the state under this key is not weir's")

	// ErrUnavailable is returned (wrapped) when the store could not be reached or did not
	// answer in time. Whether it executed the call is unknown unless the error says so.
	ErrUnavailable = errors.New("weir: the store is unavailable")

	// ErrNotExecuted is wrapped beside ErrUnavailable if the call was never executed, so that it may be repeated.
	ErrNotExecuted = errors.New("the call was not executed")

	// ErrNotAsked is the error of a request of a batch that was left undecided because it
	// follows a refused one (Request.Follows). It was not charged.
	ErrNotAsked = errors.New("weir: not asked, as the request that this one follows is refused")
)

// An InputError reports a value that cannot be used. No limit was charged.
type InputError struct {
	Field   string // "cost", "key", "period", …
	Given   any
	Allowed string // in words: "0 to 4503599627370496 (2^52)"
}

// Error names the field, the value and the allowed values.
func (e *InputError) Error() string {
	if text, ok := e.Given.(string); ok {
		return fmt.Sprintf("weir: %s is %.80q; allowed: %s", e.Field, text, e.Allowed)
	}
	return fmt.Sprintf("weir: %s is %v; allowed: %s", e.Field, e.Given, e.Allowed)
}

func invalid(field string, given any, allowed string) error {
	return &InputError{Field: field, Given: given, Allowed: allowed}
}

// A RefusedError is the refusal of Reserve, Acquire, Wait and Guard. It is [ErrRefused], and also
// [ErrNever] when no wait can help, or [ErrTooLong] when the context leaves too little time.
type RefusedError struct {
	Answer Answer
	cause  error // nil: ErrNever or ErrRefused, by the answer
}

// Error names the limit and when to retry.
func (e *RefusedError) Error() string {
	name := "limit"
	if e.Answer.Limit != nil {
		name = fmt.Sprintf("limit %q (%s)", e.Answer.Limit.Name(), e.Answer.Limit)
	}
	if e.Answer.RetryAfter == Never {
		return name + " refused: the cost is more than it can ever hold; ask for less"
	}
	if errors.Is(e.cause, ErrTooLong) {
		return fmt.Sprintf("%s refused: the wait of %v is longer than the context allows", name, e.Answer.RetryAfter)
	}
	return fmt.Sprintf("%s refused: retry after %v", name, e.Answer.RetryAfter)
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap is the cause for errors.Is.
func (e *RefusedError) Unwrap() error {
	switch {
	case e.cause != nil:
		return e.cause
	case e.Answer.RetryAfter == Never:
		return ErrNever
	}
	return ErrRefused
}
