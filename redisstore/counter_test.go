package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// TestRefundUnderFewerSlicesEnds: the units that are left after a refund are in none of the slices that the new numbers
// count. The script once read the state of 61 slices as one of 2, and never ended.
func TestRefundUnderFewerSlicesEnds(t *testing.T) {
	const slice = 1500
	now := weir.Instant(1_199_172_000_001 * slice)
	store := single(t).subject(t, func() weir.Instant { return now }).Store
	claimOf := func(limit, slices int64) []weir.Claim {
		window := time.Duration(slices) * slice * time.Microsecond
		spec := weir.SlidingCounter{Limit: limit, Window: window, Slices: slices}
		return []weir.Claim{{Key: "key", Limit: weir.MustLimit("changing", spec), Cost: 1}}
	}
	for range 2 {
		if granted, err := store.Decide(context.Background(), claimOf(2, 60), 1, nil); granted != 1 || err != nil {
			t.Fatal(granted, err)
		}
		now += 60 * slice
	}
	taken := now - 60*slice
	now = taken - slice
	var d [1]weir.Decision
	if err := store.Refund(context.Background(), claimOf(1, 1), taken, d[:]); err != nil || d[0].Remaining != 1 {
		t.Errorf("%d remain, %v; want 1", d[0].Remaining, err)
	}
}
