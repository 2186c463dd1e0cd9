package concurrency_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
	"github.com/weirproject/weir/internal/algorithm/stories/chance"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

func reference(t *rapid.T) {
	limit := weir.MustLimit("test", weir.Concurrency{
		Limit: rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, weir.MaxUnits)).Draw(t, "limit"),
		TTL:   time.Duration(rapid.Int64Range(1, 1000).Draw(t, "ttl µs")) * time.Microsecond,
	})
	twin, want := &concurrency.State{}, &model.Leases{}
	now := int64(chance.Begin)
	for i := range rapid.SampledFrom([]int{0, 15, 40}).Draw(t, "others") { // many are found in another way than few
		twin.Take(limit, fmt.Sprint(i), 1, now)
		want.Take(limit, fmt.Sprint(i), 1, now)
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, limit.Period()),
			rapid.Int64Range(-limit.Period(), 0)).Draw(t, "tick")
		id := rapid.SampledFrom([]string{"ann", "bob", "cid", "dan", "eve", "fay"}).Draw(t, "id")
		few, any := rapid.Int64Range(1, min(3, limit.Capacity())), rapid.Int64Range(1, weir.MaxUnits)
		n := rapid.OneOf(few, any).Draw(t, "units")
		step(t, limit, twin, want, id, n, now)
		if got, want := twin.Decision(limit, n, now), model.Describe(want, limit, n, 0, now); got != want {
			t.Fatalf("%s: for %d units at %d\n got %+v\nwant %+v", limit, n, now-chance.Begin, got, want)
		}
	}
}

func step(t *rapid.T, limit *weir.Limit, twin *concurrency.State, want *model.Leases, id string, n, now int64) {
	op := rapid.SampledFrom([]string{"acquire", "acquire", "acquire", "force", "release", "renew"}).Draw(t, "op")
	live := twin.Live(id, now)
	if live != (want.Find(id, now) != nil) {
		t.Fatalf("%s is live: %v", id, live)
	}
	fits := twin.Available(limit, now) >= n
	if fits != (want.Fits(limit, n, now)) {
		t.Fatalf("%d units at %d fit: %v", n, now-chance.Begin, fits)
	}
	switch {
	case op == "release":
		if got := twin.Release(id, now); got != want.Release(id, now) {
			t.Fatalf("%s was released: %v", id, got)
		}
	case op == "force" || live || op == "acquire" && fits:
		twin.Take(limit, id, n, now)
		want.Take(limit, id, n, now)
	}
}

func TestReference(t *testing.T) { rapid.Check(t, reference) }

// A wait counts the units of 32 leases and one unit of each further one, in the same order everywhere: also where many
// leases expire at one instant, and where a limit was lowered.
func TestWaitsForManyLeases(t *testing.T) { rapid.Check(t, manyLeases) }

func manyLeases(t *rapid.T) {
	twin, want := &concurrency.State{}, &model.Leases{}
	most, spread := rapid.Int64Range(1, 3).Draw(t, "most units"), rapid.SampledFrom([]int{4, 1000}).Draw(t, "ttls")
	now, held := int64(chance.Begin), int64(0)
	for i := range rapid.IntRange(20, 70).Draw(t, "leases") {
		n := rapid.Int64Range(1, most).Draw(t, "units")
		limit := weir.MustLimit("test", weir.Concurrency{
			Limit: weir.MaxUnits, TTL: time.Duration(rapid.IntRange(1, spread).Draw(t, "ttl")) * time.Microsecond,
		})
		id := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "id"), "-", i)
		twin.Take(limit, id, n, now)
		want.Take(limit, id, n, now)
		held += n
	}
	for range 10 {
		limit := weir.MustLimit("test", weir.Concurrency{
			Limit: rapid.Int64Range(1, held).Draw(t, "limit"), TTL: time.Microsecond,
		})
		n, at := rapid.Int64Range(1, limit.Capacity()).Draw(t, "cost"), now+rapid.Int64Range(-1, 5).Draw(t, "at")
		if got, want := twin.Decision(limit, n, at), model.Describe(want, limit, n, 0, at); got != want {
			t.Fatalf("%s: for %d units\n got %+v\nwant %+v", limit, n, got, want)
		}
	}
}

func FuzzReference(f *testing.F) {
	chance.Seed(f)
	f.Fuzz(rapid.MakeFuzz(reference))
}

func TestNoAllocations(t *testing.T) {
	limit := weir.MustLimit("test", weir.Concurrency{Limit: 3, TTL: time.Second})
	state, now := &concurrency.State{}, int64(chance.Begin)
	ids := []string{"ann", "bob", "cid", "dan"}
	round := func() {
		for _, id := range ids {
			now += 100_000
			if state.Available(limit, now) > 0 {
				state.Take(limit, id, 1, now)
			}
			state.Decision(limit, 1, now)
		}
		state.Release("bob", now)
	}
	for range 1000 {
		round()
	}
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Leases are saved and loaded as they are.
func TestNew(t *testing.T) {
	limit := weir.MustLimit("test", weir.Concurrency{Limit: 9, TTL: time.Second})
	state := &concurrency.State{}
	state.Take(limit, "ann", 2, chance.Begin)
	state.Take(limit, "bob", 3, chance.Begin+5)
	loaded := concurrency.New(state.Leases())
	if got, want := loaded.Decision(limit, 6, chance.Begin+6), state.Decision(limit, 6, chance.Begin+6); got != want {
		t.Errorf("loaded: %+v, want %+v", got, want)
	}
	if !loaded.Release("ann", chance.Begin+7) || loaded.Available(limit, chance.Begin+7) != 6 {
		t.Error("a loaded lease cannot be released")
	}
}
