//go:build !race

package audit

import (
	"testing"

	"github.com/weirproject/weir/gate"
)

// The race detector drops what a sync.Pool keeps, so allocations are not counted under it.

func TestVerdictsAllocateNothing(t *testing.T) {
	log := &Log{Config: Config{Keys: Shown}, shards: make([]shard, 1)}
	g := open(t, `rules: [{name: ip, key: [client.ip], limit: fixed_window 2000/1h}]`, log.Verdict)
	var v gate.Verdict
	r := from("192.0.2.1", "4bf92f3577b34da6a3ce929d0e0e4736")
	decide := func() {
		if err := g.Decide(t.Context(), r, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1000, decide); n != 0 || v.Outcome != gate.Passed {
		t.Errorf("%v: %v allocations", v.Outcome, n)
	}
	for range 2 * maxQueued { // until both sets of memory have grown
		if decide(); v.Outcome == gate.Refused && len(log.shards[0].entries) == maxQueued/2 {
			log.take()
		}
	}
	log.take()
	if n := testing.AllocsPerRun(1000, decide); n != 0 || v.Outcome != gate.Refused {
		t.Errorf("%v: %v allocations", v.Outcome, n)
	}
	if n := len(log.shards[0].entries); n != 1001 {
		t.Errorf("%d queued", n)
	}
}
