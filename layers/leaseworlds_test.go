//go:build !race

package layers

import "testing"

// worlds is how many schedules are played.
const worlds = 10_000

// A node that is broken is found out.
func TestSimulationDetectsBrokenNodes(t *testing.T) {
	for name, b := range map[string]broken{
		"a lease that outlives its window": {outlives: true},
		"a refund that is credited twice":  {twice: true},
		"a share that is ignored":          {share: true, log: true},
		"a holding time that is ignored":   {hold: true, log: true},
		"a bound that is too low":          {free: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				if err := simulate(t, seed, b, new(worldTally)); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("2000 worlds noticed nothing")
		})
	}
}
