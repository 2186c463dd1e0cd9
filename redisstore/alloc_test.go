//go:build !race

package redisstore_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

// A batch allocates the words that are sent, and the client's memory for a call and its
// reply, independently of the number of requests.
func TestABatchAllocatesForItsCallsOnly(t *testing.T) {
	store := single(t).open(t, redisstore.WithTimeout(time.Minute))
	bucket, window := weir.MustLimit("bucket", weir.PerHour(1_000_000)), weir.MustLimit("window", weir.FixedWindow{Limit: 1_000_000, Window: time.Hour})
	for name, test := range map[string]struct {
		requests []weir.Request
		most     float64
	}{
		"64 buckets":           {askFor(bucket, 1, names("key-", 64)...), 10},
		"64 of many times":     {askFor(bucket, 30, names("key-", 64)...), 10},
		"64 windows":           {askFor(window, 1, names("key-", 64)...), 10},
		"64 of two algorithms": {append(askFor(bucket, 1, names("key-", 32)...), askFor(window, 1, names("key-", 32)...)...), 21},
	} {
		ask := func() { store.DecideBatch(t.Context(), test.requests) }
		ask()
		if n := testing.AllocsPerRun(200, ask); n > test.most {
			t.Errorf("%s: %v allocations, want at most %v", name, n, test.most)
		}
	}
}
