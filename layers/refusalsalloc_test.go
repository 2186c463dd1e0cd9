//go:build !race

package layers

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func TestWarmDoesNotAllocate(t *testing.T) {
	c := []weir.Claim{under("a", "k", weir.PerHour(1)), under("b", "k", weir.PerHour(1)),
		under("c", "k", weir.PerHour(1))}
	d, limits := make([]weir.Decision, len(c)), []*weir.Limit{c[0].Limit, c[1].Limit, c[2].Limit}
	next := &answering{says: weir.Decision{RetryAfter: time.Hour}}
	layer := refusalOver(t, next)
	layer.Decide(t.Context(), c[1:2], 1, nil)
	layer.Decide(t.Context(), c[:1], 1, nil)
	layer.Decide(t.Context(), c[2:], 1, nil)
	for name, call := range map[string]func(){
		"one refused":            func() { layer.Decide(t.Context(), c[1:2], 1, d[:1]) },
		"several refused":        func() { layer.Decide(t.Context(), c, 1, d) },
		"refused, not described": func() { layer.Decide(t.Context(), c, 1, nil) },
		"by the shortcut":        func() { layer.DecideKey("k", limits[1:2], 1, 0) },
	} {
		calls := next.calls.Load()
		if allocs := testing.AllocsPerRun(100, call); allocs != 0 || next.calls.Load() != calls {
			t.Errorf("%s: %v allocations, %d calls", name, allocs, next.calls.Load()-calls)
		}
	}
	next.says = weir.Decision{Remaining: 1}
	c[2].Key = "another"
	for name, call := range map[string]func(){
		"granted":                func() { layer.Decide(t.Context(), c[2:], 1, d[2:]) },
		"granted, not described": func() { layer.Decide(t.Context(), c[2:], 1, nil) },
		"not known":              func() { layer.DecideKey("another", limits[2:3], 1, 0) },
	} {
		if allocs := testing.AllocsPerRun(100, call); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
