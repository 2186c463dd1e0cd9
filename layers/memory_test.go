package layers_test

import (
	"fmt"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
)

// TestOnlyLimitsWithLocalTermsTakeMemoryHere: what no rule falls back to locally is counted by the shared store alone,
// and the rest within the room of the local one.
func TestOnlyLimitsWithLocalTermsTakeMemoryHere(t *testing.T) {
	const room = 100
	local, bounds := memstore.New(memstore.WithMaxKeys(room)), memstore.New(memstore.WithMaxKeys(room),
		memstore.WithoutOverflow())
	terms := map[string]layers.Terms{"local": {Local: true}, "bounded": {Ceiling: 1.2}}
	stack, err := layers.New(memstore.New(), layers.Options{Local: local, Bounds: bounds, Without: []string{"breaker"},
		Terms: func(l *weir.Limit) layers.Terms { return terms[l.Name()] }})
	if err != nil {
		t.Fatal(err)
	}
	defer stack.Store.Close()
	ask := func(name string, keys int) {
		t.Helper()
		for i := range keys {
			claims := []weir.Claim{{Key: fmt.Sprint("key-", i), Limit: weir.MustLimit(name, weir.PerHour(10)), Cost: 1}}
			if granted, err := stack.Store.Decide(t.Context(), claims, 1, nil); granted != 1 || err != nil {
				t.Fatalf("%s: granted %d (%v)", name, granted, err)
			}
		}
	}
	ask("other", 10*room)
	if here, there := local.Stats().Keys, bounds.Stats().Keys; here != 0 || there != 0 {
		t.Errorf("%d and %d keys are counted here of a limit without terms", here, there)
	}
	ask("local", 10*room)
	ask("bounded", 10*room)
	if here, there := local.Stats().Keys, bounds.Stats().Keys; here != room || there != room {
		t.Errorf("%d and %d keys are counted here, want the room for %d", here, there, room)
	}
}
