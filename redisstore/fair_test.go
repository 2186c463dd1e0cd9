package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// TestMembersOfABatchAreToldApart asks for two members of two keys in one call: arguments that are the same for all
// requests are sent once.
func TestMembersOfABatchAreToldApart(t *testing.T) {
	limit := weir.MustLimit("shared", weir.Fair{Of: weir.FixedWindow{Limit: 10, Window: time.Hour}})
	handle := single(t).subject(t, func() weir.Instant { return 1_790_000_000_000_000 })
	batcher := handle.Store.(weir.Batcher)
	ask := func(key, member string, d []weir.Decision) weir.Request {
		claims := []weir.Claim{{Key: key, Limit: limit, Cost: 3, Member: member}}
		return weir.Request{Claims: claims, Times: 1, Decisions: d}
	}
	var d [4][1]weir.Decision
	requests := []weir.Request{ask("a", "x", d[0][:]), ask("b", "y", d[1][:])}
	batcher.DecideBatch(context.Background(), requests)
	requests = []weir.Request{ask("a", "y", d[2][:]), ask("b", "y", d[3][:])}
	batcher.DecideBatch(context.Background(), requests)
	// On a two members share 10 units: y may have 2 more. On b there is y alone.
	for i, want := range []int64{7, 7, 2, 4} {
		if d[i][0].Remaining != want {
			t.Errorf("request %d: %d remain, want %d", i, d[i][0].Remaining, want)
		}
	}
}
