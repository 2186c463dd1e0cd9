//go:build !race

// The race detector makes sync.Pool forget at random, so these counts hold without it.

package api_test

import (
	"testing"

	"github.com/weirproject/weir/memstore"
)

func TestDecisionsDoNotAllocate(t *testing.T) {
	for name, body := range map[string]string{"rule": byRule, "claim": byClaim} {
		once := asking(t, handler(t, memstore.New(), oneRule), "/v1/decide", body)
		if n := testing.AllocsPerRun(1000, once); n > 0 {
			t.Errorf("by a %s: %v allocations, want none", name, n)
		}
	}
}
