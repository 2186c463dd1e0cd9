//go:build !race

package layers

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestCeilingDecisionsDoNotAllocate(t *testing.T) {
	for name, limits := range map[string]int64{"granted": 1 << 40, "refused": 1} {
		store := newCeiling(&generous{}, memstore.New(), every)
		all := append(ceilingClaim(weir.MustLimit("a", weir.SlidingLog{Limit: limits, Window: time.Hour}), 1),
			ceilingClaim(weir.MustLimit("b", weir.PerHour(1<<30)), 1)...)
		d := make([]weir.Decision, 2)
		batch := []weir.Request{{Claims: all, Times: 1, Decisions: d}}
		for range 10 {
			store.Decide(background, all, 1, d)
		}
		if n := testing.AllocsPerRun(1000, func() { store.Decide(background, all, 1, d) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if n := testing.AllocsPerRun(1000, func() { store.DecideBatch(background, batch) }); n != 0 &&
			name == "granted" {
			t.Errorf("%s in a batch: %v allocations", name, n)
		}
	}
}
