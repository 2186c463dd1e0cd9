package ceiling_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// forgetting grants everything, as a store does that forgets at once.
type forgetting struct{ weir.Store }

func (forgetting) Decide(_ context.Context, _ []weir.Claim, times int64, _ []weir.Decision) (int64, error) {
	return times, nil
}

func user(limit *weir.Limit, i int) weir.Claim {
	return weir.Claim{Key: fmt.Sprint("user-", i), Limit: limit, Cost: 1}
}

// TestFullCeilingFailsOpen: where the local store has no room for more keys, newcomers pass, and the keys that it
// holds keep their ceiling.
func TestFullCeilingFailsOpen(t *testing.T) {
	const room = 1000
	local := memstore.New(memstore.WithMaxKeys(room), memstore.WithoutOverflow())
	c := newCeiling(t, forgetting{memstore.New()}, local, every)
	store, limit := c, weir.MustLimit("user", weir.PerHour(10))
	for i := range 3 * room {
		if granted, err := store.Decide(t.Context(), []weir.Claim{user(limit, i)}, 1, nil); granted != 1 || err != nil {
			t.Fatalf("user %d of %d, a first request: granted %d (%v)", i, 3*room, granted, err)
		}
	}
	if c.Refused() != 0 || c.Uncounted() != 2*room {
		t.Errorf("%d refused and %d not counted, want 0 and %d", c.Refused(), c.Uncounted(), 2*room)
	}
	if granted, _ := store.Decide(t.Context(), []weir.Claim{user(limit, 0)}, 100, nil); granted != 11 {
		t.Errorf("a user whom the ceiling knows is granted %d more after 1, want 11 of 12 in all", granted)
	}
	for range 100 {
		if granted, _ := store.Decide(t.Context(), []weir.Claim{user(limit, 2*room)}, 1, nil); granted != 1 {
			t.Fatal("a user for whom there was no room is refused what the store grants")
		}
	}
}

// TestFullCeilingKeepsTheOthers: a decision about a newcomer counts, and is refused by, the other keys of it.
func TestFullCeilingKeepsTheOthers(t *testing.T) {
	local := memstore.New(memstore.WithMaxKeys(1), memstore.WithoutOverflow())
	c := newCeiling(t, forgetting{memstore.New()}, local, every)
	store, site := c, weir.Claim{Key: "all", Limit: weir.MustLimit("site", weir.PerHour(100)), Cost: 1}
	store.Decide(t.Context(), []weir.Claim{site}, 1, nil)
	limit, granted := weir.MustLimit("user", weir.PerHour(10)), int64(1)
	for i := range 200 {
		one, err := store.Decide(t.Context(), []weir.Claim{user(limit, i), site}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		granted += one
	}
	if granted != 120 {
		t.Errorf("the site was granted %d, its ceiling is 120", granted)
	}
}
