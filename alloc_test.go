//go:build !race

// The race detector makes sync.Pool forget at random, so these counts hold without it.

package weir_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestADecisionAllocatesNothing(t *testing.T) {
	specs := map[string]weir.Spec{
		"bucket":    weir.PerHour(1_000_000),
		"odd":       weir.GCRA(1_000_000, 999_983, 24*time.Hour), // a unit is no whole number of µs
		"step":      weir.TokenBucket{Capacity: 1_000_000, Refill: 7, Period: time.Hour, Mode: weir.Step},
		"window":    weir.FixedWindow{Limit: 1_000_000, Window: time.Hour},
		"calendar":  weir.Calendar{Limit: 1_000_000, Unit: weir.Year, Zone: "Europe/Berlin"},
		"counter":   weir.SlidingCounter{Limit: 1_000_000, Window: time.Hour, Slices: 60},
		"exhausted": weir.SlidingLog{Limit: 1, Window: time.Hour},
	}
	for name, spec := range specs {
		l := limiterOn(t, memstore.New(), spec)
		checkAllocs(t, name, l)
	}
	several := limiterOn(t, memstore.New(), specs["bucket"], specs["window"], specs["calendar"], specs["counter"])
	checkAllocs(t, "several, granted", several)
	refused := limiterOn(t, memstore.New(), specs["bucket"], specs["window"], specs["exhausted"])
	checkAllocs(t, "several, refused", refused)
}

// checkAllocs asks thrice: granted (or refused by those that are exhausted), refused
// because the cost is too large, and peeked.
func checkAllocs(t *testing.T, name string, l *weir.Limiter) {
	t.Helper()
	ctx := context.Background()
	allow(t, l, 1)
	for what, call := range map[string]func() error{
		"Allow":  func() error { _, err := l.Allow(ctx, "key"); return err },
		"AllowN": func() error { _, err := l.AllowN(ctx, "key", 2_000_000); return err },
		"Peek":   func() error { _, err := l.Peek(ctx, "key"); return err },
	} {
		var failed error
		allocs := testing.AllocsPerRun(1000, func() {
			if err := call(); err != nil {
				failed = err
			}
		})
		if failed != nil || allocs != 0 {
			t.Errorf("%s: %s allocates %v times, error %v", name, what, allocs, failed)
		}
	}
}

// TestMemberDecisionDoesNotAllocate, granted or refused, alone or with another limit. (A peek has a Standing.)
func TestMemberDecisionDoesNotAllocate(t *testing.T) {
	fair := weir.Fair{Of: weir.FixedWindow{Limit: 1_000_000, Window: time.Hour}}
	for name, specs := range map[string][]weir.Spec{
		"alone": {fair}, "calendar": {weir.Fair{Of: weir.Calendar{Limit: 1_000_000, Unit: weir.Year}}},
		"with a bucket": {fair, weir.PerHour(1_000_000)},
	} {
		l, err := limiterOn(t, memstore.New(), specs...).WithMember("tenant", 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, cost := range []int64{1, 2_000_000} {
			ask := func() {
				if _, err := l.AllowN(context.Background(), "key", cost); err != nil {
					t.Fatal(err)
				}
			}
			ask()
			if allocs := testing.AllocsPerRun(1000, ask); allocs != 0 {
				t.Errorf("%s: a request of %d units allocates %v times", name, cost, allocs)
			}
		}
	}
}

// TestNextWindowReusesMemberTable: members of the next window allocate nothing.
func TestNextWindowReusesMemberTable(t *testing.T) {
	now := weir.Instant(0)
	store := memstore.New(memstore.WithClock(func() weir.Instant { return now }))
	limit := weir.MustLimit("fair", weir.Fair{Of: weir.FixedWindow{Limit: 1000, Window: time.Second}})
	claims, members, decisions := []weir.Claim{{Key: "key", Limit: limit, Cost: 1}}, names(50), make([]weir.Decision, 1)
	allocs := testing.AllocsPerRun(20, func() {
		now += 1e6
		for _, claims[0].Member = range members {
			if granted, err := store.Decide(context.Background(), claims, 1, decisions); granted != 1 || err != nil {
				t.Fatal(granted, err)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("a window of 50 members allocates %v times", allocs)
	}
}

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint("member-", i))
	}
	return list
}

// When a day ends, each key's state is still of the old one: both are asked for in turn.
func TestBoundsOfTwoPeriodsInTurnAllocateNothing(t *testing.T) {
	limit, _ := calendar(t, weir.Day, "Europe/Berlin")
	start, end := limit.Bounds(1_790_000_000_000_000)
	allocs := testing.AllocsPerRun(100, func() {
		limit.Bounds(start)
		limit.Bounds(end)
	})
	if allocs != 0 {
		t.Errorf("Bounds allocates %v times", allocs)
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	a, b := weir.MustLimit("a", weir.PerHour(1)), weir.MustLimit("b", weir.PerHour(1))
	claims := []weir.Claim{{Key: "x", Limit: a, Cost: 1}, {Key: "x", Limit: b, Cost: 1}, {Key: "y", Limit: a, Cost: 1}}
	if allocs := testing.AllocsPerRun(100, func() { _ = weir.Check(claims, 1, nil) }); allocs != 0 {
		t.Errorf("Check allocates %v times", allocs)
	}
}

var key = []string{"key"}

func oneKey(context.Context, int) ([]string, error) { return key, nil }

// TestGuardAllocatesItsReservation: a guarded call reserves, so that it can give back; a lease adds its renewal. The
// numbers are bounds, so that nothing else comes along.
func TestGuardAllocatesItsReservation(t *testing.T) {
	for name, test := range map[string]struct {
		specs []weir.Spec
		most  float64
	}{
		"one limit":    {[]weir.Spec{weir.PerHour(1_000_000)}, 9},
		"three limits": {[]weir.Spec{weir.PerHour(1_000_000), weir.PerMinute(1_000_000), weir.PerDay(1_000_000)}, 9},
		"a lease":      {[]weir.Spec{weir.Concurrency{Limit: 5, TTL: time.Hour}}, 25},
	} {
		called := 0
		guarded := weir.Guard(limiterOn(t, memstore.New(), test.specs...), oneKey,
			func(context.Context, int) (int, error) { called++; return 0, nil }, nil)
		ctx := context.Background()
		allocs := testing.AllocsPerRun(1000, func() {
			if _, err := guarded(ctx, 1); err != nil {
				t.Error(name, err)
			}
		})
		if allocs > test.most || called != 1001 {
			t.Errorf("%s: a guarded call allocates %v times, want at most %v; it was called %d times", name, allocs,
				test.most, called)
		}
	}
}

// A reservation is one piece of memory, and so is a lease beside its id; giving back allocates nothing.
func TestReservationsAndLeasesAllocateLittle(t *testing.T) {
	ctx := context.Background()
	bucket := limiterOn(t, memstore.New(), weir.PerHour(1_000_000))
	slots := limiterOn(t, memstore.New(), weir.Concurrency{Limit: 100, TTL: time.Hour})
	slots.Limits()[0].Advice(time.Hour) // as after a refusal: releases are timed
	for _, c := range []struct {
		name string
		most float64
		call func() error
	}{
		{"Reserve and Cancel", 1, func() error {
			r, err := bucket.Reserve(ctx, "key", 2)
			if err != nil {
				return err
			}
			return r.Cancel(ctx)
		}},
		{"Reserve and Settle above", 1, func() error {
			r, err := bucket.Reserve(ctx, "key", 1)
			if err != nil {
				return err
			}
			return r.Settle(ctx, 2)
		}},
		{"Acquire and Release", 2, func() error {
			lease, err := slots.Acquire(ctx, "key")
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}},
	} {
		var failed error
		allocs := testing.AllocsPerRun(1000, func() {
			if err := c.call(); err != nil {
				failed = err
			}
		})
		if failed != nil || allocs > c.most {
			t.Errorf("%s allocates %v times, at most %v are wanted; error %v", c.name, allocs, c.most, failed)
		}
	}
}
