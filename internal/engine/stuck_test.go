package engine

import (
	"strconv"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestProbeChargesNothing: the decision of a health check leaves no state, whatever it is asked beside.
func TestProbeChargesNothing(t *testing.T) {
	store := memstore.New()
	e := &Engine{Config: Config{Server: rules.Server{Store: Memory}}, Counts: store}
	probe := e.probe(t.Context())
	for range 100 {
		if err := probe(); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.Stats().Keys; n != 0 {
		t.Errorf("the store has %d keys after health checks", n)
	}
	claims := []weir.Claim{{Key: strconv.Itoa(101), Limit: probeLimit, Cost: 1}}
	if granted, err := store.Decide(t.Context(), claims, 1, nil); granted != 1 || err != nil {
		t.Fatalf("%d, %v", granted, err)
	}
	before := store.Stats()
	if err := probe(); err != nil { // of the key that is used up
		t.Error(err)
	}
	if after := store.Stats(); after != before {
		t.Errorf("a health check changed the store from %+v to %+v", before, after)
	}
}
