//go:build !race

package memstore_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// A batch of known keys allocates nothing, granted or refused, of one time or of many.
func TestABatchAllocatesNothing(t *testing.T) {
	store := memstore.New()
	many, one := weir.MustLimit("many", weir.PerHour(1_000_000)), weir.MustLimit("one", weir.SlidingLog{Limit: 1, Window: time.Hour})
	window := weir.MustLimit("window", weir.FixedWindow{Limit: 1_000_000, Window: time.Hour})
	requests := []weir.Request{
		{Claims: []weir.Claim{{Key: "a", Limit: many, Cost: 1}}, Times: 16, Decisions: make([]weir.Decision, 16)},
		{Claims: []weir.Claim{{Key: "a", Limit: many, Cost: 1}, {Key: "a", Limit: window, Cost: 1}}, Times: 3, Decisions: make([]weir.Decision, 6)},
		{Claims: []weir.Claim{{Key: "b", Limit: one, Cost: 1}}, Times: 4, Decisions: make([]weir.Decision, 4)},
		{Claims: []weir.Claim{{Key: "c", Limit: many, Cost: 1}}, Times: 1, Decisions: make([]weir.Decision, 1)},
		{Claims: []weir.Claim{{Key: "c", Limit: many, Cost: 0}}, Times: 0},
	}
	if n := testing.AllocsPerRun(100, func() { store.DecideBatch(t.Context(), requests) }); n != 0 {
		t.Errorf("a batch allocates %v times", n)
	}
	for i, want := range []int64{16, 3, 0, 1, 0} {
		if r := requests[i]; r.Err != nil || r.Granted != want {
			t.Errorf("request %d: granted %d of %d, want %d; error %v", i, r.Granted, r.Times, want, r.Err)
		}
	}
}
