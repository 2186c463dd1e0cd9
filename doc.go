// Package weir decides whether requests may pass: rate limits, quotas and concurrency
// limits, exact to the microsecond, the same on every [Store].
//
// A [Spec] is the numbers of a limit (a [TokenBucket], a [SlidingLog], …); a
// [Limit] is a Spec that was checked and given a name; a [Limiter] binds limits
// to a store. Most programs call a Limiter:
//
//	logins, err := weir.New(memstore.New(), "login", weir.SlidingLog{Limit: 5, Window: time.Minute})
//	...
//	answer, err := logins.Allow(ctx, "ip:203.0.113.7")
//
// Time is counted in whole microseconds by the store's clock, never by the
// caller's. Every type here is safe for concurrent use unless it says otherwise.
//
// This package imports the standard library only.
package weir
