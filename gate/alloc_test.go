//go:build !race

package gate_test

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// The race detector drops what a sync.Pool keeps, so allocations are not counted under it.

func TestACandidateAllocatesNothing(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: ip, key: [client.ip], limit: 5/1m, candidate: {limit: sliding_counter 9/1m, key: [client.ip v4/24]}}
  - {name: site, limit: 1000000/1s, candidate: {limit: 900000/1s}}
`, gate.WithObserver(func(*gate.Verdict) {}))
	var v gate.Verdict
	request := from("192.0.2.1")
	if n := testing.AllocsPerRun(1000, func() {
		if err := g.Decide(t.Context(), request, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAPercentageAllocatesNothing(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: ip, key: [client.ip], limit: 5/1m, enforce_percent: 50}]`)
	var v gate.Verdict
	requests := make([]*rules.Request, 10)
	for i := range requests {
		requests[i] = from(fmt.Sprint("192.0.2.", i))
	}
	if n := testing.AllocsPerRun(1000, func() {
		for _, r := range requests {
			if err := g.Decide(t.Context(), r, gate.Once, &v); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLocatingAClientAllocatesNothing(t *testing.T) {
	g := open(t, memstore.New(), located, gate.WithGeo(new(fakeGeo)))
	var v gate.Verdict
	request := from("198.51.100.7")
	if n := testing.AllocsPerRun(1000, func() {
		if err := g.Decide(t.Context(), request, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
