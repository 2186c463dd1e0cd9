// Package ratefields writes and reads the values of RateLimit-Policy, RateLimit and Retry-After, which are the same in
// the headers of HTTP and in the metadata of gRPC.
package ratefields

import (
	"cmp"
	"strconv"
	"time"

	"github.com/weirproject/weir"
)

// largest is the maximum integer of a structured field.
const largest = 999_999_999_999_999

// MaxBytes is the maximum length of RateLimit-Policy and RateLimit together. A decision may have 32 limits with names
// of 128 bytes, and a proxy that cannot read a head of 4 KB takes its own failure for an outage.
const MaxBytes = 2048

// Binding orders decisions for fields that cannot hold all of them: the ones nearest to their end first.
func Binding(a, b *weir.Decision) int {
	switch {
	case a == nil || b == nil:
		return cmp.Compare(present(b), present(a))
	case weir.Worse(a, b):
		return -1
	case weir.Worse(b, a):
		return 1
	}
	return 0
}

func present(d *weir.Decision) int {
	if d == nil {
		return 0
	}
	return 1
}

// comma separates the items of a list.
func comma(buffer []byte) []byte {
	if len(buffer) == 0 {
		return buffer
	}
	return append(buffer, ", "...)
}

// AppendLimit appends an item to a value of RateLimit.
func AppendLimit(buffer []byte, limit *weir.Limit, d *weir.Decision, allowed bool) []byte {
	buffer = parameter(name(comma(buffer), limit), "r", d.Remaining)
	switch {
	case d.RetryAfter == weir.Never:
		return buffer
	case d.RetryAfter > 0:
		return parameter(buffer, "t", Seconds(limit.Advice(d.RetryAfter)))
	case allowed:
		return parameter(buffer, "t", Seconds(d.ResetAfter))
	}
	return buffer
}

// Policy is the value of RateLimit-Policy for these limits, whose units are requests if unit is "".
func Policy(limits []*weir.Limit, unit string) string {
	var buffer []byte
	for _, limit := range limits {
		buffer = AppendPolicy(buffer, limit, unit)
	}
	return string(buffer)
}

// AppendPolicy appends an item to a value of RateLimit-Policy. A unit is stated although the registry of the draft does
// not have it: a client takes a policy without a unit for one of requests.
func AppendPolicy(buffer []byte, limit *weir.Limit, unit string) []byte {
	buffer = parameter(name(comma(buffer), limit), "q", limit.Most())
	if limit.Leases() {
		return append(buffer, `;qu="concurrent-requests"`...)
	}
	if unit != "" { // it has only plain characters
		buffer = append(append(append(buffer, `;qu="`...), unit...), '"')
	}
	if w := Window(limit); w >= 1e6 {
		buffer = parameter(buffer, "w", ceil(w, 1e6))
	}
	return buffer
}

// Window is the time in microseconds until the quota returns; 0 if it varies.
func Window(limit *weir.Limit) int64 {
	switch calendar, _ := limit.Spec().(weir.Calendar); {
	case calendar.Unit > weir.Week:
		return 0
	case !limit.Refills():
		return limit.Length()
	case limit.Step():
		return ceil(limit.Most(), limit.Refill()) * limit.Period()
	}
	span := limit.Span()
	if span.Num > 0 {
		return span.Whole + 1
	}
	return span.Whole
}

// name needs no escaping: names of limits have only plain characters.
func name(buffer []byte, limit *weir.Limit) []byte {
	return append(append(append(buffer, '"'), limit.Name()...), '"')
}

func parameter(buffer []byte, key string, n int64) []byte {
	buffer = append(append(append(buffer, ';'), key...), '=')
	return strconv.AppendInt(buffer, min(n, largest), 10)
}

// Reset is the value of X-RateLimit-Reset: seconds until the limit grants again, or, if it grants now, until it is
// fully restored; with unix the seconds since 1970 at that time, by the store's clock.
func Reset(limit *weir.Limit, d *weir.Decision, unix bool) int64 {
	wait := limit.Advice(d.RetryAfter)
	if wait == 0 || wait == weir.Never {
		wait = d.ResetAfter
	}
	if !unix {
		return Seconds(wait)
	}
	at := max(d.At, -d.At) // negative for a decision of the local store of layers
	return ceil(int64(at)+wait.Microseconds(), 1e6)
}

// Seconds rounds up: a client that returns a moment too early is refused again.
func Seconds(d time.Duration) int64 { return ceil(int64(d), int64(time.Second)) }

func ceil(a, b int64) int64 {
	whole := a / b
	if a%b > 0 {
		whole++
	}
	return whole
}
