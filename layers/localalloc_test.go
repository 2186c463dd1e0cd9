//go:build !race

package layers

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
)

var kinds = map[string][]weir.Spec{
	"bucket": {weir.PerHour(1000)},
	"window": {weir.FixedWindow{Limit: 1000, Window: time.Hour}},
	"log":    {weir.SlidingLog{Limit: 10, Window: time.Hour}},
	"four":   {weir.PerHour(1000), weir.PerDay(10_000), weir.PerMinute(10), weir.PerSecond(5)},
}

func of(specs []weir.Spec) (list []weir.Claim) {
	for i, spec := range specs {
		list = append(list, weir.Claim{Key: "key", Limit: weir.MustLimit(string(rune('a'+i)), spec), Cost: 1})
	}
	return list
}

func TestLocalDecisionsDoNotAllocate(t *testing.T) {
	for name, specs := range kinds {
		for what, store := range map[string]weir.Store{"warm": newLocal(t, 3).mirror(granting{}),
			"local": newLocal(t, 3)} {
			list, d := of(specs), make([]weir.Decision, len(specs))
			ask := func() { store.Decide(background, list, 1, d) }
			for range 10 {
				ask()
			}
			if n := testing.AllocsPerRun(1000, ask); n != 0 {
				t.Errorf("%s, %s: %v allocations a decision", name, what, n)
			}
		}
	}
}
