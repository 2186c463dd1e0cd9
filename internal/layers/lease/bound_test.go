package lease_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
)

func TestBound(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		spec  weir.Spec
		share float64
		span  time.Duration
		most  int64
		text  string
	}{
		{weir.TokenBucket{Capacity: 1000, Refill: 100, Period: second}, 0.1, us, 1000 + 300,
			"at most 1000 + 100/1s × T + 3 × 100 units in any T"},
		{weir.TokenBucket{Capacity: 1000, Refill: 100, Period: second}, 0.1, second, 1000 + 99 + 300, ""},
		{weir.TokenBucket{Capacity: 1000, Refill: 100, Period: second}, 0.1, second + us, 1000 + 100 + 300, ""},
		{weir.TokenBucket{Capacity: 100, Refill: 10, Period: second, Overdraft: 50, Mode: weir.Step}, 0.1, second + us,
			150 + 10 + 3*15, ""},
		{weir.TokenBucket{Capacity: 100, Refill: 10, Period: second, Overdraft: 50, Mode: weir.Step}, 0.1,
			second + 2*us, 150 + 20 + 3*15, ""},
		{weir.FixedWindow{Limit: 100, Window: second, Anchor: weir.Epoch}, 0.1, us, 100,
			"at most 100 units in each window, as without leases"},
		{weir.FixedWindow{Limit: 100, Window: second}, 0.1, second + us, 200, ""},
		{weir.FixedWindow{Limit: 100, Window: second}, 0.1, second + 2*us, 300, ""},
		{weir.SlidingLog{Limit: 100, Window: 2 * second}, 0.1, 2 * second, 100 + 30,
			"at most 100 + 3 × 10 units in any 2s, 100 in any 1.9s"},
		{weir.SlidingLog{Limit: 100, Window: 2 * second}, 0.1, 1900 * ms, 100, ""},
		{weir.SlidingLog{Limit: 100, Window: 2 * second}, 0.1, 2*second + us, 200, ""},
		{weir.SlidingLog{Limit: 100, Window: 2 * second}, 1, 2 * second, 200, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * second, Slices: 1}, 0.1, second, 155,
			"at most 3 × 10 units more than the counter of 100 in any time"},
		{weir.SlidingCounter{Limit: 100, Window: 2 * second, Slices: 1}, 1, second, 155, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * second, Slices: 4}, 0.1, 1500 * ms, 120, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * second, Slices: 4}, 0.1, 1400 * ms, 100, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * second, Slices: 4}, 0.1, 3 * second, 200 + 100, ""},
		{weir.SlidingCounter{Limit: 100, Window: 2 * second, Slices: 4}, 0.1, 3500 * ms, 200 + 120, ""},
		{weir.SlidingLog{Limit: 100, Window: 999 * ms}, 0.1, 999 * ms, 100, "not leased"},
		{weir.TokenBucket{Capacity: 19, Refill: 10, Period: second}, 0.1, us, 19, "not leased"},
		{weir.FixedWindow{Limit: weir.MaxUnits, Window: us}, 0.1, math.MaxInt64, weir.MaxUnits, ""},
	} {
		limit := weir.MustLimit("limit", c.spec)
		bound := lease.BoundOf(limit, lease.Terms{Share: c.share}, 3)
		if most, ok := bound.Most(c.span); !ok || most != c.most {
			t.Errorf("%s, share %v: %d in %v (%v), want %d", limit, c.share, most, c.span, ok, c.most)
		}
		if c.text != "" && bound.String() != c.text {
			t.Errorf("%s: %q, want %q", limit, bound, c.text)
		}
	}
}

func TestLimitsWithoutABound(t *testing.T) {
	for spec, text := range map[weir.Spec]string{
		weir.Calendar{Limit: 100, Unit: weir.Day}:    "at most 100 units in each window, as without leases",
		weir.Concurrency{Limit: 100, TTL: time.Hour}: "not leased",
	} {
		bound := lease.BoundOf(weir.MustLimit("limit", spec), lease.Terms{Share: 0.5}, 3)
		if most, ok := bound.Most(time.Hour); ok || bound.String() != text {
			t.Errorf("%s: %d, %q", spec, most, bound)
		}
	}
}

func TestTerms(t *testing.T) {
	for _, c := range []struct {
		terms lease.Terms
		field string
	}{
		{lease.Terms{}, ""},
		{lease.Terms{Share: 1, Hold: 10 * second}, ""},
		{lease.Terms{Share: 0.01, Hold: time.Millisecond}, ""},
		{lease.Terms{Share: 1.01}, "share"},
		{lease.Terms{Share: -0.1}, "share"},
		{lease.Terms{Share: math.NaN()}, "share"},
		{lease.Terms{Share: 0.1, Hold: time.Millisecond - 1}, "hold"},
		{lease.Terms{Share: 0.1, Hold: -second}, "hold"},
		{lease.Terms{Share: 0.1, Hold: 10*second + 1}, "hold"},
	} {
		var input *weir.InputError
		if err := c.terms.Check(); (err == nil) != (c.field == "") || errors.As(err, &input) && input.Field != c.field {
			t.Errorf("%+v: %v", c.terms, err)
		}
		if held := lease.BoundOf(daily(1000), c.terms, 1).Held; (held > 0) != (c.field == "" && c.terms.Share > 0) {
			t.Errorf("%+v: %d are held", c.terms, held)
		}
	}
}
