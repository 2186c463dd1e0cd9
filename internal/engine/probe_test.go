package engine

import (
	"errors"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/telemetry"
)

// TestStoreThatIsBackIsNoticedWithoutRequests: the description of the node looks for itself.
func TestStoreThatIsBackIsNoticedWithoutRequests(t *testing.T) {
	redis := redistest.Start(t)
	c := openClient(t, redis, "n1")
	defer c.Close()
	c.watcher.stop() // the test alone describes the node
	c.watcher.ended.Wait()
	limit := weir.MustLimit("a", weir.PerSecond(1))
	describes := func(up bool) func() bool {
		return func() bool {
			var n telemetry.Node
			c.watcher.changed()
			c.describe(&n)
			return n.StoreUp == up
		}
	}
	redis.Kill()
	decisions := make([]weir.Decision, 1)
	if _, err := c.Counts.Decide(t.Context(), []weir.Claim{{Key: "key", Limit: limit, Cost: 1}}, 1, decisions); !errors.Is(err, weir.ErrUnavailable) {
		t.Fatalf("a dead Redis answers: %v", err)
	}
	if !describes(false)() {
		t.Error("a dead Redis is up")
	}
	c.outage.fail(weir.ErrUnavailable)
	redis.Restart()
	redistest.Await(t, "the store to be up, and the outage to be over", func() bool {
		return describes(true)() && !c.outage.down.Load()
	})
}
