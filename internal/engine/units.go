package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirproject/weir/internal/servermetrics"
)

// Bounds of the rules whose reserved units are exported, and described to other nodes: of these the largest.
const (
	maxExported  = 2000
	maxDescribed = 64
)

// reserved are the units of the rules in force that wait to be settled.
func (e *Engine) reserved() (list []servermetrics.Reserved) {
	units := e.Gate.Reserved()
	for _, rule := range e.Gate.Rules().Rules() {
		if rule.Settles() && len(list) < maxExported {
			list = append(list, servermetrics.Reserved{Rule: rule.Name(), Unit: rule.Unit().String(),
				Units: units[rule.Name()]})
		}
	}
	return list
}

// most keeps the n largest values of a map.
func most(units map[string]int64, n int) map[string]int64 {
	names := slices.SortedFunc(maps.Keys(units), func(a, b string) int { return cmp.Compare(units[b], units[a]) })
	for _, name := range names[min(len(names), n):] {
		delete(units, name)
	}
	return units
}
