//go:build !race

// The race detector makes sync.Pool forget at random, so these counts hold without it.

package api_test

import (
	"testing"

	"github.com/weirproject/weir/memstore"
)

func TestDecisionsDoNotAllocate(t *testing.T) {
	for name, body := range map[string]string{"rule": byRule, "claim": byClaim} {
		for _, path := range []string{"/v1/decide", "/v1/decide?answer=compact"} {
			once := asking(t, handler(t, memstore.New(), oneRule), path, body)
			if n := testing.AllocsPerRun(1000, once); n > 0 {
				t.Errorf("%s by a %s: %v allocations, want none", path, name, n)
			}
		}
	}
}
