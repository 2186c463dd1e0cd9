package rls_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/server/internal/rls"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestARefundEndsRefusalsOnAllNodes: a node that remembers a refusal hears of units that another one gave back.
func TestARefundEndsRefusalsOnAllNodes(t *testing.T) {
	const patience = 10 * time.Second // on a busy machine
	server := redistest.Start(t)
	node := func() ratelimit.RateLimitServiceClient {
		store, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithTimeout(patience))
		if err != nil {
			t.Fatal(err)
		}
		updates, err := redisstore.NewUpdates(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		stack, err := layers.New(store, layers.Options{Local: memstore.New(), Updates: updates})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stack.Store.Close() })
		return dial(t, stack.Store, kit, rls.Options{})
	}
	one, other := node(), node()
	ask(t, one, hits(of("weight", "x"), 10))
	redistest.Await(t, "the other node to hear of nothing more", func() bool {
		return said(ask(t, other, of("weight", "x")))[:len("OVER_LIMIT")] == "OVER_LIMIT"
	})
	if got := said(ask(t, one, negative(hits(of("weight", "x"), 4)))); got[:2] != "OK" {
		t.Error(got)
	}
	redistest.Await(t, "the other node to grant again", func() bool {
		return ask(t, other, of("weight", "x")).GetOverallCode() == ratelimit.RateLimitResponse_OK
	})
}
