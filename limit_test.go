package weir_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

const year = 365 * 24 * time.Hour

func TestNewLimitErrorsNameTheField(t *testing.T) {
	bucket := func(s weir.TokenBucket) weir.Spec { return s }
	for _, test := range []struct {
		name  string
		spec  weir.Spec
		field string
		says  string // the given value, in the error
	}{
		{"", weir.PerMinute(1), "name", `""`},
		{"a b", weir.PerMinute(1), "name", `"a b"`},
		{"naïve", weir.PerMinute(1), "name", `"naïve"`},
		{strings.Repeat("n", 129), weir.PerMinute(1), "name", "nnn"},
		{"n", nil, "spec", "nil"},

		{"n", bucket(weir.TokenBucket{}), "period", "0s"},
		{"n", weir.PerMinute(0), "capacity", "0"},
		{"n", weir.PerMinute(-1), "capacity", "-1"},
		{"n", weir.PerMinute(math.MaxInt64), "capacity", "9223372036854775807"},
		{"n", weir.PerSecond(weir.MaxUnits + 1), "capacity", "4503599627370497"},
		{"n", weir.GCRA(1, 0, time.Second), "refill", "0"},
		{"n", weir.GCRA(1, 1, 0), "period", "0s"},
		{"n", weir.GCRA(1, 1, -time.Second), "period", "-1s"},
		{"n", weir.GCRA(1, 1, time.Nanosecond), "period", "1ns"},
		{"n", weir.GCRA(1, 1, time.Second+time.Nanosecond), "period", "1.000000001s"},
		{"n", weir.GCRA(1, 1, 200*year), "period", "1752000h"},
		{"n", weir.GCRA(200, 1, year), "capacity", "200"}, // would take 200 years to fill
		{"n", weir.Borrowing(100, 1, year, 100), "capacity", "100"},
		{"n", weir.Borrowing(1, 1, time.Second, -1), "overdraft", "-1"},
		{"n", weir.Borrowing(weir.MaxUnits, 1, time.Microsecond, 1), "capacity + overdraft", "4503599627370497"},
		{"n", weir.LeakyQueue(10, time.Second, -1), "overdraft", "-1"},
		{"n", weir.Throttle(-1, 1, time.Second), "capacity", "0"},
		{"n", weir.Throttle(math.MaxInt64, 1, time.Second), "capacity", "4503599627370497"},
		{"n", bucket(weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Second, Mode: 2}), "mode", "2"},
		{"n", bucket(weir.TokenBucket{Capacity: 143, Refill: 1, Period: year, Mode: weir.Step}), "capacity", "143"},

		{"n", weir.FixedWindow{Window: time.Second}, "limit", "0"},
		{"n", weir.FixedWindow{Limit: 1}, "window", "0s"},
		{"n", weir.FixedWindow{Limit: 1, Window: time.Second, Anchor: 2}, "anchor", "2"},
		{"n", weir.Calendar{Limit: 1}, "unit", "none"},
		{"n", weir.Calendar{Limit: 1, Unit: weir.Year + 1}, "unit", "unit(7)"},
		{"n", weir.Calendar{Limit: 0, Unit: weir.Day}, "limit", "0"},
		{"n", weir.Calendar{Limit: 1, Unit: weir.Day, Zone: "Mars/Olympus"}, "zone", `"Mars/Olympus"`},
		{"n", weir.Calendar{Limit: 1, Unit: weir.Day, Zone: "Local"}, "zone", `"Local"`},
		{"n", weir.SlidingLog{Limit: -5, Window: time.Second}, "limit", "-5"},
		{"n", weir.SlidingLog{Limit: 5, Window: 1500 * time.Nanosecond}, "window", "1.5µs"},
		{"n", weir.SlidingCounter{Limit: 5, Window: 7 * time.Microsecond}, "slices", "10"},
		{"n", weir.SlidingCounter{Limit: 5, Window: time.Second, Slices: 3}, "slices", "3"},
		{"n", weir.SlidingCounter{Limit: 5, Window: time.Second, Slices: weir.MaxSlices + 1}, "slices", "101"},
		{"n", weir.SlidingCounter{Limit: weir.MaxUnits, Window: time.Second + time.Microsecond, Slices: 1}, "limit",
			"4503599627370496"},
		{"n", weir.Concurrency{Limit: 1}, "ttl", "0s"},
		{"n", weir.Concurrency{TTL: time.Second}, "limit", "0"},
		{"n", weir.Fair{}, "fair", "nothing"},
		{"n", weir.Fair{Of: weir.FixedWindow{Limit: 1}}, "window", "0s"},
		{"n", weir.Fair{Of: weir.SlidingCounter{Limit: 10, Window: time.Minute}}, "fair",
			"allowed: a fixed_window, calendar or concurrency"},
		{"n", weir.Fair{Of: weir.Fair{Of: weir.FixedWindow{Limit: 1, Window: time.Second}}}, "fair", "fair_fixed_window"},
		{"n", weir.Fair{Of: weir.FixedWindow{Limit: 1, Window: time.Second}, Above: 101}, "above", "101"},
		{"n", weir.Fair{Of: weir.FixedWindow{Limit: 1, Window: time.Second}, MaxKeys: 10_001}, "keys", "10001"},
		{"n", weir.Fair{Of: weir.FixedWindow{Limit: 1 << 43, Window: time.Second}}, "fair", "8796093022208"},
	} {
		_, err := weir.NewLimit(test.name, test.spec)
		var input *weir.InputError
		if !errors.As(err, &input) {
			t.Errorf("%q %v: the error is %v, want an *InputError", test.name, test.spec, err)
			continue
		}
		if input.Field != test.field || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q %v: the error is %q, want one of field %q that shows %s", test.name, test.spec, err,
				test.field, test.says)
		}
		if len(input.Allowed) < 8 {
			t.Errorf("%q %v: the error does not name the allowed values: %q", test.name, test.spec, err)
		}
	}
}

func TestNewLimitAcceptsValidSpecs(t *testing.T) {
	for _, spec := range []weir.Spec{
		weir.PerSecond(1), weir.PerMinute(2), weir.PerHour(3), weir.PerDay(1_000_003),
		weir.PerSecond(weir.MaxUnits),
		weir.GCRA(1, weir.MaxUnits, time.Microsecond),
		weir.GCRA(100, 1, year),
		weir.LeakyMeter(3, 1, 1900*time.Millisecond),
		weir.LeakyQueue(10, time.Second, 0),
		weir.Throttle(0, 1, time.Second),
		weir.Throttle(weir.MaxUnits-1, weir.MaxUnits, time.Microsecond),
		weir.FixedWindow{Limit: weir.MaxUnits, Window: 142 * year, Anchor: weir.Epoch},
		weir.SlidingLog{Limit: weir.MaxUnits, Window: time.Microsecond},
		weir.SlidingCounter{Limit: 1, Window: 10 * time.Millisecond, Slices: weir.MaxSlices},
		weir.SlidingCounter{Limit: weir.MaxUnits, Window: time.Second, Slices: 1},
		weir.Calendar{Limit: 1, Unit: weir.Week},
		weir.Concurrency{Limit: weir.MaxUnits, TTL: time.Microsecond},
	} {
		limit, err := weir.NewLimit("A-z_0.9", spec)
		if err != nil {
			t.Errorf("%v: %v", spec, err)
			continue
		}
		if limit.Name() != "A-z_0.9" || limit.Spec() != spec || limit.String() != spec.String() {
			t.Errorf("%v: the limit is %q, %v", spec, limit.Name(), limit.Spec())
		}
	}
}

func TestLimitHasTheNumbersOfItsSpec(t *testing.T) {
	bucket := weir.MustLimit("b", weir.Borrowing(7, 3, time.Minute, 2))
	type numbers struct {
		algorithm                                             weir.Algorithm
		capacity, most, overdraft, refill, period, slices, ns int64
	}
	of := func(l *weir.Limit) numbers {
		return numbers{l.Algorithm(), l.Capacity(), l.Most(), l.Overdraft(), l.Refill(), l.Period(), l.Slices(),
			l.Tick()}
	}
	minute := time.Minute.Microseconds()
	for _, test := range []struct {
		limit *weir.Limit
		want  numbers
	}{
		{bucket, numbers{weir.AlgorithmTokenBucket, 7, 9, 2, 3, minute, 0, 0}},
		{weir.MustLimit("w", weir.FixedWindow{Limit: 7, Window: time.Minute}),
			numbers{weir.AlgorithmFixedWindow, 7, 7, 0, 0, minute, 0, 0}},
		{weir.MustLimit("c", weir.SlidingCounter{Limit: 7, Window: time.Minute, Slices: 60}),
			numbers{weir.AlgorithmSlidingCounter, 7, 7, 0, 0, minute, 60, 1}},
		{weir.MustLimit("s", weir.SlidingCounter{Limit: 1 << 40, Window: time.Minute, Slices: 60}),
			numbers{weir.AlgorithmSlidingCounter, 1 << 40, 1 << 40, 0, 0, minute, 60, 1000}},
		{weir.MustLimit("h", weir.Concurrency{Limit: 7, TTL: time.Minute}),
			numbers{weir.AlgorithmConcurrency, 7, 7, 0, 0, minute, 0, 0}},
		{weir.MustLimit("l", weir.SlidingLog{Limit: 7, Window: time.Minute}),
			numbers{weir.AlgorithmSlidingLog, 7, 7, 0, 0, minute, 0, 0}},
	} {
		if got := of(test.limit); got != test.want {
			t.Errorf("%v: got %+v, want %+v", test.limit, got, test.want)
		}
	}
	if interval := *bucket.Interval(); interval != (weir.Ratio{Whole: 20_000_000, Den: 1}) {
		t.Errorf("a unit of 3 a minute takes %+v", interval)
	}
	if bucket.Step() || !weir.MustLimit("b",
		weir.TokenBucket{Capacity: 1, Refill: 1, Period: 1000, Mode: weir.Step}).Step() {
		t.Error("Step does not say which bucket steps")
	}
}

func TestMustLimitPanicsWhereNewLimitFails(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "capacity is 0") {
			t.Errorf("panicked with %v", err)
		}
	}()
	weir.MustLimit("n", weir.PerMinute(0))
}

func TestStateIsSharedByNameAndAlgorithm(t *testing.T) {
	a := weir.MustLimit("a", weir.PerMinute(5))
	for _, test := range []struct {
		other *weir.Limit
		want  bool
	}{
		{a, true},
		{weir.MustLimit("a", weir.PerHour(9)), true},
		{weir.MustLimit("b", weir.PerMinute(5)), false},
		{weir.MustLimit("a", weir.SlidingLog{Limit: 5, Window: time.Minute}), false},
	} {
		if got := a.SameState(test.other); got != test.want {
			t.Errorf("%v and %s %v: got %v", a, test.other.Name(), test.other, got)
		}
	}
}

func TestWordsOfUnknownNumbers(t *testing.T) {
	for got, want := range map[string]string{
		weir.AlgorithmSlidingLog.String():       "sliding_log",
		weir.Algorithm(0).String():              "none",
		weir.Algorithm(99).String():             "algorithm(99)",
		weir.Month.String():                     "month",
		weir.CalendarUnit(99).String():          "unit(99)",
		weir.Instant(1_000_000).Time().String(): "1970-01-01 00:00:01 +0000 UTC",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// saturated is where Times stops: more than any limit spans.
const saturated = math.MaxInt64 / 4

// FuzzRatio holds interval, span and Times against rationals of any size.
func FuzzRatio(f *testing.F) {
	f.Add(int64(100), int64(100), int64(60e6), int64(0), int64(1))
	f.Add(int64(1_000_003), int64(1_000_003), int64(86400e6), int64(7), int64(1_000_003))
	f.Add(int64(1), int64(weir.MaxUnits), int64(1), int64(0), int64(weir.MaxUnits))
	f.Add(int64(1), int64(3), int64(weir.MaxUnits), int64(0), int64(math.MaxInt64))
	f.Add(int64(1<<51+2), int64(1<<51+1), int64(weir.MaxUnits-1), int64(0), int64(1)) // spans 2^52 and a part
	f.Add(int64(weir.MaxUnits), int64(weir.MaxUnits-1), int64(weir.MaxUnits), int64(0), int64(2))
	f.Fuzz(func(t *testing.T, capacity, refill, period, overdraft, n int64) {
		if capacity < 1 || refill < 1 || period < 1 || overdraft < 0 || n < 0 ||
			max(capacity, refill, period, overdraft, capacity+overdraft) > weir.MaxUnits {
			return
		}
		each := big.NewRat(period, refill)
		whole := new(big.Rat).Mul(each, big.NewRat(capacity+overdraft, 1))
		spec := weir.Borrowing(capacity, refill, time.Duration(period)*time.Microsecond, overdraft)
		limit, err := weir.NewLimit("n", spec)
		if fits := whole.Cmp(big.NewRat(weir.MaxUnits, 1)) <= 0; fits != (err == nil) {
			t.Fatalf("%v spans %v us; NewLimit says %v", spec, whole, err)
		}
		if err != nil {
			return
		}
		checkRatio(t, "interval", *limit.Interval(), each)
		checkRatio(t, "span", *limit.Span(), whole)
		us, num := limit.Interval().Times(n)
		want := new(big.Rat).Mul(each, big.NewRat(n, 1))
		if us == saturated {
			if want.Cmp(big.NewRat(saturated, 1)) < 0 {
				t.Fatalf("%v × %d stopped at 2^61, is %v", each, n, want)
			}
			return
		}
		checkRatio(t, fmt.Sprint("interval × ", n), weir.Ratio{Whole: us, Num: num, Den: limit.Interval().Den}, want)
	})
}

func checkRatio(t *testing.T, what string, got weir.Ratio, want *big.Rat) {
	t.Helper()
	if got.Num < 0 || got.Num >= got.Den {
		t.Fatalf("%s: %+v is not in lowest form", what, got)
	}
	sum := new(big.Rat).Add(big.NewRat(got.Whole, 1), big.NewRat(got.Num, got.Den))
	if sum.Cmp(want) != 0 {
		t.Fatalf("%s: got %+v, want %v", what, got, want)
	}
}
