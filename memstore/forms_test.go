package memstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// A bucket of any rate is held exactly, in whatever form, while its numbers change on a key in use: of whole
// microseconds, of fractions that fit a word, of others, with a step, and on clocks that no narrow word reaches.
func TestBucketsStayExactWhileTheirNumbersChange(t *testing.T) {
	limits := []*weir.Limit{
		weir.MustLimit("b", weir.PerSecond(1000)),
		weir.MustLimit("b", weir.GCRA(20, 3, time.Second)),
		weir.MustLimit("b", weir.GCRA(20, 7, 3*time.Second)),
		weir.MustLimit("b", weir.GCRA(5, 4093, time.Hour)),
		weir.MustLimit("b", weir.GCRA(5, 4099, time.Hour)), // too large a denominator for a word
		weir.MustLimit("b", weir.Borrowing(9, 7, time.Second, 4)),
		weir.MustLimit("b", weir.TokenBucket{Capacity: 9, Refill: 2, Period: time.Second, Mode: weir.Step}),
		weir.MustLimit("b", weir.GCRA(1<<32, 3, 2*time.Second)),
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := []int64{1_790_000_000_000_000, origin, 1_000_000_000, 1 << 51}[seed%4]
		store := New(WithClock(func() weir.Instant { return weir.Instant(now) }))
		limiters := make([]*weir.Limiter, len(limits))
		for i := range limits {
			limiters[i], _ = weir.NewLimiter(store, limits[i])
		}
		current := random.IntN(len(limits))
		from, want := limits[current], bucket.State{} // whose numbers wrote it
		for step := range 400 {
			now += random.Int64N(400_000) - 50_000
			if random.IntN(20) == 0 {
				current = random.IntN(len(limits))
			}
			l, cost := limits[current], random.Int64N(4)
			st := want
			if want != (bucket.State{}) {
				st = bucket.Adopt(from, l, want, now)
			}
			granted := algorithm.Fit(bucket.Available(l, st, now), cost, 1) > 0
			if granted && cost > 0 {
				st = bucket.Charge(l, st, cost, now)
				from, want = l, st
			}
			answer, err := limiters[current].AllowN(t.Context(), "key", cost)
			if expected := bucket.Decision(l, st, cost, now); err != nil || answer.Allowed != granted || answer.Decision != expected {
				t.Fatalf("seed %d, step %d, %v, cost %d: %v %+v, error %v; want %v %+v",
					seed, step, l, cost, answer.Allowed, answer.Decision, err, granted, expected)
			}
		}
	}
}

// A bucket of a fractional rate is one word: this is what its speed rests on.
func TestFractionalBucketIsOneWord(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerSecond(3), weir.GCRA(10, 7, 3*time.Second), weir.PerDay(4093), weir.LeakyQueue(3, time.Second, 9)} {
		limit := weir.MustLimit("b", spec)
		if form(limit, state{}) != -limit.Interval().Den {
			t.Errorf("%v is not held in one word", limit)
		}
	}
}

// A decision on known keys goes on while somebody holds every shard's mutex: of one limit of any algorithm, and of
// any number together.
func TestGrantsOnKnownKeysTakeNoShardMutex(t *testing.T) {
	for _, specs := range [][]weir.Spec{
		{weir.PerHour(100)},
		{weir.GCRA(100, 7, 3*time.Hour)},
		{weir.Borrowing(100, 7, time.Hour, 5)},
		{weir.TokenBucket{Capacity: 100, Refill: 1, Period: time.Hour, Mode: weir.Step}},
		{weir.FixedWindow{Limit: 100, Window: time.Hour}},
		{weir.Calendar{Limit: 100, Unit: weir.Year}},
		{weir.SlidingLog{Limit: 100, Window: time.Hour}},
		{weir.SlidingCounter{Limit: 100, Window: time.Hour, Slices: 10}},
		{weir.PerHour(100), weir.PerDay(700)},
		{weir.PerHour(100), weir.FixedWindow{Limit: 100, Window: time.Hour}, weir.SlidingLog{Limit: 100, Window: time.Hour}},
		slices.Repeat([]weir.Spec{weir.PerHour(100), weir.FixedWindow{Limit: 100, Window: time.Hour}}, weir.MaxClaims/2),
	} {
		store := New()
		l, err := weir.New(store, "test", specs...)
		if err != nil {
			t.Fatal(err)
		}
		l.Allow(t.Context(), "key")
		claims := make([]weir.Claim, len(specs)) // what the gate asks
		for i, limit := range l.Limits() {
			claims[i] = weir.Claim{Key: "key", Limit: limit, Cost: 1}
		}
		if !grantedUnderLock(t, store, l, claims) {
			t.Errorf("%v: the grant waited for a shard's mutex", specs)
		}
	}
}

func grantedUnderLock(t *testing.T, store *Store, l *weir.Limiter, claims []weir.Claim) bool {
	for i := range store.shards {
		store.shards[i].mu.Lock()
		defer store.shards[i].mu.Unlock()
	}
	done := make(chan bool, 1)
	go func() {
		answer, err := l.Allow(context.Background(), "key")
		granted, err2 := store.Decide(context.Background(), claims, 1, make([]weir.Decision, len(claims)))
		done <- err == nil && err2 == nil && answer.Allowed && granted == 1
	}()
	select {
	case granted := <-done:
		return granted
	case <-time.After(time.Minute):
		return false
	}
}

// Keys of any bytes and length are told apart.
func TestSimilarKeysAreDistinct(t *testing.T) {
	store := New()
	l, err := weir.New(store, "test", weir.PerDay(1))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for length := range 70 {
		for i := range length {
			keys[strings.Repeat("\x00", i)+"\x01"+strings.Repeat("\x00", length-i)] = true
		}
		keys[strings.Repeat("\x00", length+1)] = true
		keys[strings.Repeat("a", length+1)] = true
	}
	keys[strings.Repeat("a", weir.MaxKey)] = true
	keys[strings.Repeat("a", weir.MaxKey-1)+"b"] = true
	for key := range keys {
		if answer, err := l.Allow(t.Context(), key); err != nil || !answer.Allowed {
			t.Errorf("the key %.80q of %d bytes found another's counter; error %v", key, len(key), err)
		}
	}
	for key := range keys {
		if answer, err := l.Allow(t.Context(), key); err != nil || answer.Allowed {
			t.Errorf("the key %.80q of %d bytes was forgotten; error %v", key, len(key), err)
		}
	}
}
