package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func TestParseLimit(t *testing.T) {
	for _, test := range []struct {
		text string
		want weir.Spec
		back string // how String writes it
	}{
		{"100/1m", weir.PerMinute(100), "100/1m"},
		{"100/m", weir.PerMinute(100), "100/1m"},
		{"100/min", weir.PerMinute(100), "100/1m"},
		{"100/minute", weir.PerMinute(100), "100/1m"},
		{"100/60s", weir.PerMinute(100), "100/1m"},
		{"10/s", weir.PerSecond(10), "10/1s"},
		{"10r/s", weir.PerSecond(10), "10/1s"},
		{"30r/m", weir.PerMinute(30), "30/1m"},
		{"0.5/s", weir.GCRA(1, 1, 2*time.Second), "1/2s"},
		{"2.50r/m burst 10", weir.GCRA(10, 5, 2*time.Minute), "5/2m burst 10"},
		{"1.000000/s", weir.PerSecond(1), "1/1s"},
		{"0.000001/s", weir.GCRA(1, 1, 1e6*time.Second), "1/1000000s"},
		{"sliding_log 0.1/1h", weir.SlidingLog{Limit: 1, Window: 10 * time.Hour}, "sliding_log 1/10h"},
		{"5/hour", weir.PerHour(5), "5/1h"},
		{"5/day", weir.PerDay(5), "5/1d"},
		{"5/d", weir.PerDay(5), "5/1d"},
		{"5/2w", weir.GCRA(5, 5, 14*24*time.Hour), "5/2w"},
		{"5/1m30s", weir.GCRA(5, 5, 90*time.Second), "5/90s"},
		{"5/500ms", weir.GCRA(5, 5, 500*time.Millisecond), "5/500ms"},
		{"1/1.9s", weir.GCRA(1, 1, 1900*time.Millisecond), "1/1900ms"},
		{"1/us", weir.GCRA(1, 1, time.Microsecond), "1/1us"},
		{"1/7µs", weir.GCRA(1, 1, 7*time.Microsecond), "1/7us"},
		{"100000/s", weir.PerSecond(100_000), "100000/1s"},
		{"10/s burst 20", weir.GCRA(20, 10, time.Second), "10/1s burst 20"},
		{"10/s, burst 20", weir.GCRA(20, 10, time.Second), "10/1s burst 20"},
		{"  10/S   BURST 20 ", weir.GCRA(20, 10, time.Second), "10/1s burst 20"},
		{"token_bucket 10/s burst 20", weir.GCRA(20, 10, time.Second), "10/1s burst 20"},
		{"gcra 10/s burst 20", weir.GCRA(20, 10, time.Second), "10/1s burst 20"},
		{"leaky_bucket 10/s burst 20", weir.LeakyMeter(20, 10, time.Second), "10/1s burst 20"},
		{"5/1m overdraft 3", weir.Borrowing(5, 5, time.Minute, 3), "5/1m overdraft 3"},
		{"5/1m overdraft 3 burst 8", weir.Borrowing(8, 5, time.Minute, 3), "5/1m burst 8 overdraft 3"},
		{"5/1m step burst 8", weir.TokenBucket{Capacity: 8, Refill: 5, Period: time.Minute, Mode: weir.Step},
			"5/1m burst 8 step"},
		{"leaky_queue 10/s queue 50", weir.LeakyQueue(10, time.Second, 50), "10/1s burst 1 overdraft 50"},
		{"leaky_queue 10/s", weir.LeakyQueue(10, time.Second, 0), "10/1s burst 1"},
		{"fixed_window 100/1h", weir.FixedWindow{Limit: 100, Window: time.Hour}, "fixed_window 100/1h"},
		{"fixed_window 100/1h first", weir.FixedWindow{Limit: 100, Window: time.Hour}, "fixed_window 100/1h"},
		{"fixed_window 100/1h epoch", weir.FixedWindow{Limit: 100, Window: time.Hour, Anchor: weir.Epoch},
			"fixed_window 100/1h epoch"},
		{"calendar 10000/day in Asia/Shanghai", weir.Calendar{Limit: 10000, Unit: weir.Day, Zone: "Asia/Shanghai"},
			"calendar 10000/day in Asia/Shanghai"},
		{"calendar 3/month", weir.Calendar{Limit: 3, Unit: weir.Month}, "calendar 3/month"},
		{"sliding_log 5/1m", weir.SlidingLog{Limit: 5, Window: time.Minute}, "sliding_log 5/1m"},
		{"sliding_counter 100/1m", weir.SlidingCounter{Limit: 100, Window: time.Minute, Slices: 10},
			"sliding_counter 100/1m slices 10"},
		{"sliding_counter 100/1m slices 60", weir.SlidingCounter{Limit: 100, Window: time.Minute, Slices: 60},
			"sliding_counter 100/1m slices 60"},
		{"concurrency 20 ttl 30s", weir.Concurrency{Limit: 20, TTL: 30 * time.Second}, "concurrency 20 ttl 30s"},
		{"concurrency 20 ttl 30s RETRY_AFTER 2s", weir.Concurrency{Limit: 20, TTL: 30 * time.Second, RetryAfter: 2 * time.Second},
			"concurrency 20 ttl 30s retry_after 2s"},
	} {
		got, err := weir.ParseLimit(test.text)
		if err != nil || got != test.want {
			t.Errorf("%q: got %#v, %v; want %#v", test.text, got, err, test.want)
			continue
		}
		if got.String() != test.back {
			t.Errorf("%q: written as %q, want %q", test.text, got, test.back)
		}
		if again, err := weir.ParseLimit(got.String()); again != got {
			t.Errorf("%q: %q reads as %#v, %v", test.text, got, again, err)
		}
	}
}

func TestParseLimitErrors(t *testing.T) {
	for text, says := range map[string]string{
		"":                                    "COUNT/PERIOD",
		" , ":                                 "COUNT/PERIOD",
		"100":                                 "COUNT/PERIOD",
		"100/":                                "a period with its unit",
		"/1m":                                 "COUNT/PERIOD",
		"fair_fixed_window 9/1h keys 0":       "keys from 1 to 10000",
		"r/s":                                 "COUNT/PERIOD",
		"+5/s":                                "COUNT/PERIOD",
		"5/s burst +5":                        "a whole number after burst",
		"1e3/s":                               "whole numbers",
		"99999999999999999999/s":              "whole numbers",
		"100/60":                              "a period with its unit",
		"100/0s":                              "a period with its unit",
		"100/-1s":                             "a period with its unit",
		"100/1month":                          "a period with its unit",
		"100/99999999999999d":                 "a period with its unit",
		"100/m/m":                             "a period with its unit",
		"0/1m":                                "capacity is 0",
		"-1/1m":                               "capacity is -1",
		"1/1ns":                               "period is 1ns",
		"1/300d burst 200":                    "refills within 2^52us",
		"10/s burst":                          "a whole number after burst",
		"10/s burst many":                     "a whole number after burst",
		"10/s burst 1 burst 2":                "is repeated",
		"10/s step step":                      "is repeated",
		"10/s queue 5":                        `"queue" is not an option of token_bucket`,
		"10/s epoch":                          `"epoch" is not an option of token_bucket`,
		"token_bucket":                        "COUNT/PERIOD",
		"bucket 10/s":                         "sliding_counter, concurrency",
		"fixed_window 10/s burst 5":           `"burst" is not an option of fixed_window`,
		"fixed_window 10/s epoch first":       `"first" is not an option of fixed_window`,
		"calendar 5/1d":                       "minute, hour, day, week, month or year",
		"calendar 5":                          "COUNT/UNIT",
		"calendar 5/day in":                   "a time zone after in",
		"calendar 5/day in Mars/Olympus":      `zone is "Mars/Olympus"`,
		"calendar 5/day in ../../etc/passwd":  "zone is",
		"calendar 5/day Europe/Berlin":        `"Europe/Berlin" is not an option of calendar`,
		"sliding_counter 100/1m slices 7":     "slices is 7",
		"concurrency 20":                      "ttl DURATION",
		"concurrency 20 ttl":                  "a period with its unit",
		"concurrency 20/s":                    "whole numbers",
		"concurrency 0.5 ttl 1s":              "whole numbers",
		"calendar 0.5/day":                    "whole numbers",
		".5/s":                                "COUNT/PERIOD",
		"5./s":                                "1 to 6 decimals",
		"0.0000001/s":                         "1 to 6 decimals",
		"0.-5/s":                              "1 to 6 decimals",
		"0.000/s":                             "limit",
		"0.000001/100000d":                    "a shorter period, or fewer decimals",
		"concurrency 2 ttl 1s retry_after 2s": "up to the ttl, 1s",
		"concurrency 2 ttl 1s retry_after":    "a period with its unit",
		"concurrency 20 ttl 1s burst 3":       `"burst" is not an option of concurrency`,
	} {
		spec, err := weir.ParseLimit(text)
		var input *weir.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, error %v; want an *InputError with %s", text, spec, err, says)
		}
		if spec != nil {
			t.Errorf("%q: a spec beside an error: %v", text, spec)
		}
	}
}

// FuzzParseLimit: nothing panics, and the String of a parsed limit parses to the same limit.
func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"100/1m", "10r/s burst 20 overdraft 3 step", "leaky_queue 10/s queue 5", "fixed_window 1/h epoch",
		"calendar 1/day in Europe/Berlin", "sliding_log 5/1m30s", "sliding_counter 9/10d slices 60",
		"concurrency 1 ttl 1w", "-1/s, burst",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := weir.ParseLimit(text)
		if err != nil {
			var input *weir.InputError
			if spec != nil || !errors.As(err, &input) {
				t.Fatalf("%q: got %v, error %v", text, spec, err)
			}
			return
		}
		again, err := weir.ParseLimit(spec.String())
		if err != nil || again != spec {
			t.Fatalf("%q: read as %#v, written %q, read as %#v, %v", text, spec, spec, again, err)
		}
		if _, err := weir.NewLimit("n", spec); err != nil {
			t.Fatalf("%q: parses, but %v", text, err)
		}
	})
}
