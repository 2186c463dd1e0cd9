package quota_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/quota"
	"github.com/weirproject/weir/memstore"
)

func limitOf(t testing.TB, text string) *weir.Limit {
	t.Helper()
	spec, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return weir.MustLimit("l", spec)
}

func TestTheMostThatALimitGrantsInATime(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		limit string
		in    time.Duration
		want  int64
	}{
		{"10/1d", day, 19}, {"5/1h", time.Hour, 9}, {"1/1m", time.Minute, 1}, {"100/1m burst 300", time.Minute, 399}, {"5/1m overdraft 3", time.Minute, 12},
		{"10/1h step", time.Hour, 20}, {"sliding_log 10/1d", day, 10}, {"sliding_log 10/1h", day, 240},
		{"fixed_window 10/1d", day, 19}, {"fixed_window 10/1d epoch", day, 20}, {"fixed_window 10/1h", time.Microsecond, 10},
		{"calendar 10/day", day, 20}, {"calendar 10/day in Europe/Berlin", day, 30}, {"sliding_counter 10/1h slices 1", time.Hour, 19},
		{"sliding_counter 10/1h slices 10", 54 * time.Minute, 10}, {"sliding_counter 10/1h slices 10", day, 250}, {"concurrency 5 ttl 1m", day, 0},
	} {
		if got := quota.Most(limitOf(t, tt.limit), tt.in); got != tt.want {
			t.Errorf("%s in any %v: %d, want %d", tt.limit, tt.in, got, tt.want)
		}
	}
}

// However requests fall, no limit grants more than is said, and where they are greedy nearly as many.
func TestNoLimitGrantsMoreThanItsBound(t *testing.T) {
	for _, text := range []string{"7/10s", "7/10s burst 3", "5/10s overdraft 2", "3/10s step", "fixed_window 6/10s", "fixed_window 6/10s epoch",
		"sliding_log 6/10s", "sliding_counter 20/10s slices 1", "sliding_counter 20/10s slices 5", "calendar 6/minute"} {
		limit, best := limitOf(t, text), make(map[time.Duration]int64)
		times := []time.Duration{2 * time.Second, 10 * time.Second, 25 * time.Second, time.Minute}
		for seed := range uint64(60) {
			random, now := rand.New(rand.NewPCG(seed, 1)), weir.Instant(1_000_000_000_000_000)
			store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
			var granted []weir.Instant
			for range 400 {
				now += weir.Instant([]int64{0, 1, 100_000, 999_999, 1_000_000, 4_000_000}[random.IntN(6)])
				n, err := store.Decide(t.Context(), []weir.Claim{{Key: "k", Limit: limit, Cost: 1}}, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				if n == 1 {
					granted = append(granted, now)
				}
			}
			for _, in := range times {
				for i, from := 0, 0; i < len(granted); i++ {
					for granted[i]-granted[from] >= weir.Instant(in.Microseconds()) {
						from++
					}
					best[in] = max(best[in], int64(i-from+1))
				}
			}
			store.Close()
		}
		for _, in := range times {
			if most := quota.Most(limit, in); best[in] > most || best[in]*3 < most {
				t.Errorf("%s in any %v: %d were granted, at most %d is said", text, in, best[in], most)
			}
		}
	}
}

func TestPeriods(t *testing.T) {
	for text, want := range map[string]string{"10/1d": "24h0m0s", "calendar 5/week": "0s", "concurrency 5 ttl 1m": "0s", "sliding_counter 5/1m": "1m0s"} {
		if got := fmt.Sprint(quota.Period(limitOf(t, text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
