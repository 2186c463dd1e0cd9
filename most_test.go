package weir_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
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
		{"10/1d", 0, 10}, {"sliding_log 10/1d", 0, 10}, {"10/1d", day, 19}, {"5/1h", time.Hour, 9}, {"1/1m", time.Minute, 1}, {"100/1m burst 300", time.Minute, 399}, {"5/1m overdraft 3", time.Minute, 12},
		{"10/1h step", time.Hour, 20}, {"sliding_log 10/1d", day, 10}, {"sliding_log 10/1h", day, 240},
		{"fixed_window 10/1d", day, 19}, {"fixed_window 10/1d epoch", day, 20}, {"fixed_window 10/1h", time.Microsecond, 10},
		{"calendar 10/day", day, 20}, {"calendar 10/day in Europe/Berlin", day, 30}, {"calendar 10/day in Asia/Shanghai", day, 20},
		{"calendar 10/hour in Europe/Berlin", time.Hour, 20}, {"calendar 10/hour in Australia/Lord_Howe", time.Hour, 30}, {"calendar 10/day in Pacific/Apia", day, 30}, {"sliding_counter 10/1h slices 1", time.Hour, 19},
		{"sliding_counter 10/1h slices 10", 54 * time.Minute, 10}, {"sliding_counter 10/1h slices 10", day, 249}, {"concurrency 5 ttl 1m", day, 0},
	} {
		if got := limitOf(t, tt.limit).MostIn(tt.in); got != tt.want {
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
			if most := limit.MostIn(in); best[in] > most || best[in]*3 < most {
				t.Errorf("%s in any %v: %d were granted, at most %d is said", text, in, best[in], most)
			}
		}
	}
}

// TestGreedyClientReachesTheBound lets a client take all that it is granted, as soon as it is granted, from the
// moments that suit it best: right before a boundary, or behind a unit that opens a window. The bound of each limit
// is reached and never exceeded, up to the slack that the test names.
func TestGreedyClientReachesTheBound(t *testing.T) {
	for form, slack := range map[string]func(limit, periods int64) int64{
		"%d/%v":             exact,
		"%d/%v burst 3":     exact,
		"%d/%v overdraft 2": exact,
		// A bucket whose steps have begun lacks a unit.
		"%d/%v step":               func(int64, int64) int64 { return 1 },
		"fixed_window %d/%v":       exact,
		"fixed_window %d/%v epoch": exact,
		"sliding_log %d/%v":        exact,
		// A unit of each window is granted only when its slice is over.
		"sliding_counter %d/%v slices 1": func(_, periods int64) int64 { return periods - 1 },
		// Over more than a window the bound assumes a full limit in every N slices, wherever they begin.
		"sliding_counter %d/%v slices 5": func(limit, periods int64) int64 { return min(limit, (periods-1)*limit) },
	} {
		for seed := range uint64(60) {
			random := rand.New(rand.NewPCG(seed, 7))
			n, window := random.Int64N(9)+1, time.Duration(random.Int64N(5)+1)*10*time.Second
			in := time.Duration(random.Int64N(4*window.Microseconds())+1) * time.Microsecond
			if seed%5 == 0 {
				in = window * time.Duration(seed%4+1)
			}
			limit := limitOf(t, fmt.Sprintf(form, n, window))
			got, most := greediest(t, limit, window, in), limit.MostIn(in)
			if got > most || got < most-slack(n, int64((in+window-1)/window)) {
				t.Errorf("%s in any %v: a greedy client got %d, at most %d is said", limit, in, got, most)
			}
		}
	}
	for text, in := range map[string]time.Duration{"calendar 6/minute": 3 * time.Minute, "calendar 6/day": time.Hour,
		"calendar 6/hour in Asia/Shanghai": 2 * time.Hour, "calendar 6/month": 24 * time.Hour,
		"calendar 6/day in Europe/Berlin": 24 * time.Hour} {
		limit := limitOf(t, text)
		if got, most := greediest(t, limit, time.Minute, in), limit.MostIn(in); got != most {
			t.Errorf("%s in any %v: a greedy client got %d, at most %d is said", limit, in, got, most)
		}
	}
}

func exact(int64, int64) int64 { return 0 }

// boundaries begin windows of whole tens of seconds and minutes; the first begins a month, the second a day of 23
// hours.
var boundaries = []time.Time{
	time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC), // midnight in Berlin
}

// greediest is the most that a greedy client gets within a time, from several starts.
func greediest(t *testing.T, limit *weir.Limit, window, in time.Duration) (most int64) {
	for _, boundary := range boundaries {
		for _, before := range []time.Duration{0, time.Microsecond} {
			start := weir.Instant(boundary.Add(-before).UnixMicro())
			for _, opened := range []bool{false, true} {
				most = max(most, greedy(t, limit, start, window, in, opened))
			}
		}
	}
	return most
}

// greedy is what a client gets from start on that takes all that is granted, as soon as it is granted. If opened, it
// took a unit a microsecond less than a window before.
func greedy(t *testing.T, limit *weir.Limit, start weir.Instant, window, in time.Duration, opened bool) (got int64) {
	now := start
	store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
	defer store.Close()
	take := func(times int64) (int64, weir.Decision) {
		decisions := make([]weir.Decision, 1)
		n, err := store.Decide(t.Context(), []weir.Claim{{Key: "k", Limit: limit, Cost: 1}}, times, decisions)
		if err != nil {
			t.Fatal(err)
		}
		return n, decisions[0]
	}
	if opened {
		now = start - weir.Instant(window.Microseconds()) + 1
		take(1)
		now = start
	}
	for now < start+weir.Instant(in.Microseconds()) {
		n, decision := take(1000)
		got += n
		now += weir.Instant(max(1, decision.RetryAfter.Microseconds()))
	}
	return got
}
