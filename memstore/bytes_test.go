package memstore_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// bounded is a store of a million keys and so many bytes.
func bounded(t *testing.T, bytes int64) *memstore.Store {
	var now weir.Instant = 1_790_000_000_000_000
	store := memstore.New(memstore.WithMaxBytes(bytes), memstore.WithClock(func() weir.Instant { now++; return now }))
	t.Cleanup(func() { store.Close() })
	return store
}

// Keys of 60 KB cost what short ones do: no text is kept.
func TestLongKeysCostNoMoreThanShortOnes(t *testing.T) {
	store, _ := driven(t, 10_000)
	l := limiter(t, store, weir.PerHour(5))
	padding := strings.Repeat("x", 60_000)
	before := heap()
	for i := range 2000 {
		allow(t, l, fmt.Sprint(padding, i))
	}
	if grown := (int64(heap()) - int64(before)) / 2000; grown > 200 {
		t.Errorf("a key of 60 KB costs %d bytes", grown)
	}
}

// Logs, counters and leases are counted, not only keys: no algorithm takes a store beyond its ceiling of bytes.
func TestStoreStaysBelowItsCeilingOfBytes(t *testing.T) {
	const ceiling = 4 << 20
	for _, spec := range []weir.Spec{
		weir.PerHour(1000),
		weir.SlidingLog{Limit: 1000, Window: time.Hour},
		weir.SlidingCounter{Limit: 1000, Window: time.Hour, Slices: 100},
		weir.Concurrency{Limit: 1000, TTL: time.Hour},
	} {
		store := bounded(t, ceiling)
		l := limiter(t, store, spec)
		before := heap()
		for i := range 100_000 {
			if _, err := l.Reserve(t.Context(), name(i%20_000), 1); err != nil && !errors.Is(err, memstore.ErrFull) && !errors.Is(err, weir.ErrRefused) {
				t.Fatal(err)
			}
		}
		if grown := int64(heap()) - int64(before); grown > 2*ceiling {
			t.Errorf("%v: the heap grew by %d bytes, Stats says %d, the ceiling is %d", spec, grown, store.Stats().Bytes, ceiling)
		}
		if stats := store.Stats(); stats.Bytes > ceiling+ceiling/8 {
			t.Errorf("%v: stats are %+v", spec, stats)
		}
	}
}

// Several limits in one decision stay below the ceiling as one does, whichever way decides them.
func TestSeveralLimitsStayBelowTheCeilingOfBytes(t *testing.T) {
	const ceiling = 1 << 20
	for _, limits := range []int{1, 2, 3, 4, 5, 8, weir.MaxClaims} {
		store := bounded(t, ceiling)
		specs := make([]weir.Spec, limits)
		for i := range specs {
			specs[i] = weir.SlidingLog{Limit: 10_000_000, Window: time.Hour}
		}
		l := limiter(t, store, specs...)
		var err error
		requests := int64(0)
		for ; err == nil && requests < 100_000; requests++ {
			_, err = l.Allow(t.Context(), "key")
		}
		stats := store.Stats()
		if !errors.Is(err, memstore.ErrFull) || stats.Bytes < ceiling/2 || stats.Bytes > ceiling {
			t.Errorf("%d limits: %v after %d requests; %+v", limits, err, requests, stats)
		}
	}
}

// Numbers with more slices take more memory: at the ceiling they wait for room.
func TestCountersOfMoreSlicesAskForRoom(t *testing.T) {
	const ceiling = 200_000
	store := bounded(t, ceiling)
	few := limiter(t, store, weir.SlidingCounter{Limit: 1000, Window: time.Hour, Slices: 1})
	many := limiter(t, store, weir.SlidingCounter{Limit: 1000, Window: time.Hour, Slices: 100})
	keys := 0
	for ; store.Stats().Overflow == 0; keys++ {
		allow(t, few, name(keys))
	}
	for i := range keys - 1 {
		if _, err := many.Allow(t.Context(), name(i)); !errors.Is(err, memstore.ErrFull) {
			t.Fatalf("key %d of %d: error %v, want ErrFull", i, keys, err)
		}
		allow(t, few, name(i))
	}
	if stats := store.Stats(); stats.Bytes > ceiling+ceiling/8 {
		t.Errorf("stats are %+v", stats)
	}
}

// Counts that no longer fit in the smallest form take more memory: at the ceiling they wait for room.
func TestCountsThatGrowAskForRoom(t *testing.T) {
	const ceiling = 200_000
	store := bounded(t, ceiling)
	l := limiter(t, store, weir.SlidingCounter{Limit: 1_000_000, Window: time.Hour, Slices: 1})
	for i := 0; store.Stats().Overflow == 0; i++ {
		allow(t, l, name(i))
	}
	if _, err := l.AllowN(t.Context(), name(0), 65_534); err != nil {
		t.Errorf("counts of 65,535: %v", err)
	}
	if _, err := l.Allow(t.Context(), name(0)); !errors.Is(err, memstore.ErrFull) {
		t.Errorf("counts of 65,536: error %v, want ErrFull", err)
	}
	if _, err := l.AllowN(t.Context(), name(1), 100_000); !errors.Is(err, memstore.ErrFull) {
		t.Errorf("counts of 100,001: error %v, want ErrFull", err)
	}
	if answer, err := l.Peek(t.Context(), name(0)); err != nil || answer.Remaining != 1_000_000-65_535 {
		t.Errorf("%d remain; error %v", answer.Remaining, err)
	}
}

// Bytes are counted where they come and go: when all keys are gone, none is left, whichever way the states grew.
func TestBytesOfNoKeysAreNone(t *testing.T) {
	for _, specs := range [][2]weir.Spec{
		{weir.SlidingLog{Limit: 1000, Window: time.Minute}, weir.SlidingLog{Limit: 2000, Window: time.Hour}},
		{weir.SlidingCounter{Limit: 1_000_000, Window: time.Hour, Slices: 2},
			weir.SlidingCounter{Limit: 1_000_000, Window: time.Hour, Slices: 60}},
		{weir.Concurrency{Limit: 1_000_000, TTL: time.Hour}, weir.Concurrency{Limit: 2_000_000, TTL: time.Minute}},
	} {
		store, now := driven(t, 1000)
		for i := range 60 {
			l := limiter(t, store, specs[i/7%2], weir.PerHour(1000))
			now.Add(1_000_000)
			r, err := l.Reserve(t.Context(), name(i%3), []int64{1, 40_000}[i/30])
			if err == nil && i%5 > 0 {
				err = r.Settle(t.Context(), int64(i%5*10_000))
			}
			if err != nil && !errors.Is(err, weir.ErrRefused) {
				t.Fatal(err)
			}
		}
		file := filepath.Join(t.TempDir(), "state")
		if err := store.Save(file); err != nil {
			t.Fatal(err)
		}
		loaded, _ := driven(t, 1000)
		if err := loaded.Load(file); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*memstore.Store{store, loaded} {
			filled := s.Stats()
			l := limiter(t, s, specs[0], weir.PerHour(1000))
			for i := range 3 {
				if err := l.Reset(t.Context(), name(i)); err != nil {
					t.Fatal(err)
				}
			}
			if stats := s.Stats(); filled.Keys == 0 || stats.Keys != 0 || stats.Bytes != 0 {
				t.Errorf("%v: %+v, then %+v", specs, filled, stats)
			}
		}
	}
}

// A snapshot beyond the ceiling of bytes is not loaded.
func TestLoadKeepsTheCeilingOfBytes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	store := bounded(t, 1<<20)
	l := limiter(t, store, weir.SlidingLog{Limit: 1000, Window: time.Hour})
	for range 500 {
		allow(t, l, "key")
	}
	if err := store.Save(file); err != nil {
		t.Fatal(err)
	}
	small := bounded(t, 4000)
	if err := small.Load(file); err == nil || !strings.Contains(err.Error(), "WithMaxBytes") || small.Stats().Keys != 0 {
		t.Errorf("error %v; %+v", err, small.Stats())
	}
	if err := bounded(t, 1<<20).Load(file); err != nil {
		t.Error(err)
	}
}

// A log that would grow beyond the ceiling gets an error and is not charged; when its window has passed it is served.
func TestFullLogIsServedWithoutGrowing(t *testing.T) {
	var now weir.Instant = 1_790_000_000_000_000
	store := memstore.New(memstore.WithMaxBytes(10_000), memstore.WithClock(func() weir.Instant { return now }))
	l := limiter(t, store, weir.SlidingLog{Limit: 10_000, Window: time.Second})
	granted := 0
	var err error
	for range 2000 {
		now++
		if _, err = l.Allow(t.Context(), "key"); err != nil {
			break
		}
		granted++
	}
	if !errors.Is(err, memstore.ErrFull) || granted < 256 {
		t.Fatalf("after %d grants: %v", granted, err)
	}
	if answer, err := l.Peek(t.Context(), "key"); err != nil || answer.Remaining != int64(10_000-granted) {
		t.Errorf("%d remain after %d grants; error %v", answer.Remaining, granted, err)
	}
	now += 1_000_001
	if answer, err := l.Allow(t.Context(), "key"); err != nil || !answer.Allowed {
		t.Errorf("after the window: %+v, %v", answer, err)
	}
}
