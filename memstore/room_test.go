package memstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// driven is a store of at most maxKeys keys, on a clock that the test moves.
func driven(t testing.TB, maxKeys int) (*memstore.Store, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(1_790_000_000_000_000)
	store := memstore.New(memstore.WithMaxKeys(maxKeys), memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) }))
	t.Cleanup(func() { store.Close() })
	return store, now
}

func limiter(t testing.TB, store weir.Store, specs ...weir.Spec) *weir.Limiter {
	t.Helper()
	l, err := weir.New(store, "test", specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func allow(t testing.TB, l *weir.Limiter, key string) weir.Answer {
	t.Helper()
	answer, err := l.Allow(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func name(i int) string { return fmt.Sprintf("key-%d", i) }

// A flood of new keys cannot make a refused key pass: peers that evict do that.
func TestFloodForgetsNobody(t *testing.T) {
	const ceiling = 1000
	store, _ := driven(t, ceiling)
	l := limiter(t, store, weir.SlidingLog{Limit: 1, Window: time.Hour})
	for i := range ceiling {
		if !allow(t, l, name(i)).Allowed {
			t.Fatalf("%s: refused at first", name(i))
		}
	}
	passed := 0
	for i := range 10 * ceiling {
		if allow(t, l, fmt.Sprintf("flood-%d", i)).Allowed {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d newcomers passed; the overflow key that they share has one unit", passed)
	}
	for i := range ceiling {
		if allow(t, l, name(i)).Allowed {
			t.Fatalf("%s: its exhausted limit was forgotten", name(i))
		}
	}
	stats := store.Stats()
	if stats.Keys != ceiling || stats.Overflow != 10*ceiling || stats.Dropped != 0 {
		t.Errorf("stats are %+v", stats)
	}
}

// Expired keys make room, one for each new key, and only expired ones.
func TestRoomIsMadeOfWhatExpired(t *testing.T) {
	const ceiling = 600
	store, now := driven(t, ceiling)
	short := limiter(t, store, weir.FixedWindow{Limit: 1, Window: time.Second})
	long, err := weir.New(store, "long", weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range ceiling / 2 {
		allow(t, short, name(i))
		allow(t, long, name(i))
	}
	if !allow(t, long, "too-early").Allowed || allow(t, long, "too-early-too").Allowed {
		t.Error("the first newcomer of a full store takes the one unit of the overflow key")
	}
	now.Add(1_000_000) // the windows are over, the buckets are not full
	for i := range ceiling / 2 {
		if !allow(t, long, fmt.Sprintf("new-%d", i)).Allowed {
			t.Fatalf("new-%d found no room, though %d windows are over", i, ceiling/2-i)
		}
	}
	if allow(t, long, "too-late").Allowed {
		t.Error("a newcomer found room where nothing had expired")
	}
	for i := range ceiling / 2 {
		if allow(t, long, name(i)).Allowed || allow(t, long, fmt.Sprintf("new-%d", i)).Allowed {
			t.Fatalf("%d: a key that was being limited was dropped", i)
		}
	}
	if stats := store.Stats(); stats.Keys != ceiling || stats.Dropped != ceiling/2 {
		t.Errorf("stats are %+v", stats)
	}
}

// A refund may free a key before its time: the next newcomer gets the room.
func TestRefundMakesRoom(t *testing.T) {
	store, _ := driven(t, 1)
	l := limiter(t, store, weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Hour})
	reservation, err := l.Reserve(t.Context(), "first", 1)
	if err != nil {
		t.Fatal(err)
	}
	allow(t, l, "second") // full: this one shares
	if err := reservation.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !allow(t, l, "third").Allowed || allow(t, l, "third").Allowed {
		t.Error("the place that the refund freed was not given to the next")
	}
	if stats := store.Stats(); stats.Keys != 1 || stats.Dropped != 1 {
		t.Errorf("stats are %+v", stats)
	}
}

// Two newcomers of one decision share the overflow key: together they get what it has.
func TestNewcomersTogether(t *testing.T) {
	store, _ := driven(t, 1)
	allow(t, limiter(t, store, weir.PerHour(1)), "first")
	for _, spec := range []weir.Spec{weir.PerHour(3), weir.SlidingLog{Limit: 3, Window: time.Hour}} {
		limit := weir.MustLimit("together", spec)
		claims := []weir.Claim{{Key: "a", Limit: limit, Cost: 1}, {Key: "b", Limit: limit, Cost: 1}}
		decisions := make([]weir.Decision, 2)
		for _, want := range []int64{1, 0} {
			granted, err := store.Decide(t.Context(), claims, 1, decisions)
			if err != nil || granted != want {
				t.Fatalf("%s: granted %d, error %v; want %d", spec, granted, err, want)
			}
			if decisions[1].Remaining != 1 {
				t.Errorf("%s: %d remain of 3 after both were charged one", spec, decisions[1].Remaining)
			}
		}
	}
}

func TestResetOfAllKeysOfNames(t *testing.T) {
	store, _ := driven(t, 10_000)
	count := func(name string, spec weir.Spec, keys int) *weir.Limiter {
		l, err := weir.New(store, name, spec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range keys {
			if answer, err := l.Allow(t.Context(), fmt.Sprint(i)); !answer.Allowed || err != nil {
				t.Fatal(answer, err)
			}
		}
		return l
	}
	login := count("login", weir.FixedWindow{Limit: 1, Window: time.Hour}, 500)
	count("login", weir.PerSecond(1), 7)
	count("login.2", weir.SlidingLog{Limit: 1, Window: time.Hour}, 300)
	other := count("login.20", weir.FixedWindow{Limit: 1, Window: time.Hour}, 100)
	bytes := store.Stats().Bytes
	if n := store.ResetNames("login", "login.2"); n != 807 || store.Stats().Keys != 100 || store.Stats().Bytes >= bytes {
		t.Errorf("%d keys are reset, %+v are left", n, store.Stats())
	}
	for l, want := range map[*weir.Limiter]bool{login: true, other: false} {
		if answer, err := l.Allow(t.Context(), "7"); answer.Allowed != want || err != nil {
			t.Errorf("%v: %+v, %v", want, answer, err)
		}
	}
}

func TestSweepAndReset(t *testing.T) {
	store, now := driven(t, 10_000)
	l := limiter(t, store, weir.SlidingCounter{Limit: 3, Window: time.Second, Slices: 10})
	for i := range 5000 {
		allow(t, l, name(i))
	}
	if swept := store.Sweep(); swept != 0 {
		t.Errorf("swept %d keys that count", swept)
	}
	if err := l.Reset(t.Context(), name(7)); err != nil {
		t.Fatal(err)
	}
	if keys := store.Stats().Keys; keys != 4999 {
		t.Errorf("%d keys after one reset", keys)
	}
	now.Add(1_100_000)
	if swept := store.Sweep(); swept != 4999 || store.Stats().Keys != 0 {
		t.Errorf("swept %d, %d left", swept, store.Stats().Keys)
	}
}

// Many goroutines come with new and old keys to a full store: the ceiling holds, and no key gets more than its limit.
func TestCeilingUnderConcurrency(t *testing.T) {
	const ceiling = 200
	store, now := driven(t, ceiling)
	l := limiter(t, store, weir.FixedWindow{Limit: 2, Window: time.Millisecond, Anchor: weir.Epoch})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 5000 {
				allow(t, l, name((i*7+g)%(3*ceiling)))
				if i%50 == 0 {
					now.Add(100)
				}
				if keys := store.Stats().Keys; keys > ceiling+8 {
					t.Errorf("%d keys, with a ceiling of %d", keys, ceiling)
					return
				}
			}
		})
	}
	group.Wait()
}

// A decision about a known key allocates nothing, granted or refused, single or several.
func TestAllocations(t *testing.T) {
	for _, specs := range [][]weir.Spec{
		{weir.TokenBucket{Capacity: 1000, Refill: 1, Period: time.Hour}},
		{weir.TokenBucket{Capacity: 1000, Refill: 7, Period: time.Hour}},
		{weir.TokenBucket{Capacity: 1000, Refill: 7, Period: time.Hour, Mode: weir.Step, Overdraft: 5}},
		{weir.FixedWindow{Limit: 1000, Window: time.Hour}},
		{weir.FixedWindow{Limit: 1000, Window: time.Hour, Anchor: weir.Epoch}},
		{weir.Calendar{Limit: 1000, Unit: weir.Day, Zone: "Europe/Berlin"}},
		{weir.SlidingLog{Limit: 1000, Window: time.Hour}},
		{weir.SlidingCounter{Limit: 1000, Window: time.Hour, Slices: 60}},
		{weir.PerMinute(1000), weir.PerHour(1000), weir.SlidingLog{Limit: 1000, Window: time.Hour}, weir.FixedWindow{Limit: 1000, Window: time.Hour}},
		slices.Repeat([]weir.Spec{weir.PerHour(1000)}, 5),
		slices.Repeat([]weir.Spec{weir.PerHour(1000), weir.SlidingLog{Limit: 1000, Window: time.Hour}}, weir.MaxClaims/2),
	} {
		store, _ := driven(t, 100)
		l := limiter(t, store, specs...)
		allow(t, l, "key")
		if n := testing.AllocsPerRun(400, func() { allow(t, l, "key") }); n != 0 {
			t.Errorf("%v: %v allocations a grant", specs, n)
		}
		for allow(t, l, "key").Allowed {
		}
		if n := testing.AllocsPerRun(400, func() { allow(t, l, "key") }); n != 0 {
			t.Errorf("%v: %v allocations a refusal", specs, n)
		}
	}
}
