package rls_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/server/internal/rls"
)

// TestAFrozenRedisDelaysNoAnswer: every caller has the answer of its policy before its deadline, which is shorter than
// the store's timeout, also where callers of one key share a call. A busy machine may miss it in one round.
func TestAFrozenRedisDelaysNoAnswer(t *testing.T) {
	const timeout, limit, callers, rounds = 10 * time.Second, 200 * time.Millisecond, 8, 40
	server := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithTimeout(timeout))
	if err != nil {
		t.Fatal(err)
	}
	stack, err := layers.New(store, layers.Options{Local: memstore.New(), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stack.Store.Close() })
	client := dial(t, stack.Store, kit, rls.Options{}, gate.WithBudget(timeout))
	ask(t, client, of("generic_key", "warm"))
	server.Stop()
	defer server.Cont()
	round := func() (late int64) {
		var missed atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				r, err := client.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "kit",
					Descriptors: []*common.RateLimitDescriptor{hits(of("plain", "x"), 0), of("weight", "shared"),
						of("strict", fmt.Sprint(i%2))}})
				if err != nil {
					missed.Add(1)
				} else if got := said(r); !strings.HasPrefix(got, "OVER_LIMIT, OK ") {
					t.Errorf("%s: the first is peeked by its policy local, and on_store_error: deny refuses the last", got)
				}
			})
		}
		all.Wait()
		return missed.Load()
	}
	late := round()
	for try := 1; late > 0 && try < rounds; try++ {
		late = round()
	}
	if late > 0 {
		t.Errorf("%d of %d answers were late, and some in each of %d rounds", late, callers, rounds)
	}
}
