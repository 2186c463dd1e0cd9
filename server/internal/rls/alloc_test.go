//go:build !race

package rls_test

import (
	"context"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/weirproject/weir/server/internal/rls"
)

// TestAPassAllocatesItsAnswer: one piece of memory for its messages, and the text of RateLimit.
func TestAPassAllocatesItsAnswer(t *testing.T) {
	const text = `
rules: [{name: per-ip, match: {service: kit, descriptor: {remote_address: "*"}}, key: [client.ip], limit: 1000000/1s}]
`
	for name, tt := range map[string]struct {
		options    rls.Options
		descriptor *common.RateLimitDescriptor
		want       float64
	}{
		"with headers":    {rls.Options{}, of("remote_address", "203.0.113.7"), 2},
		"without headers": {rls.Options{NoHeaders: true}, of("remote_address", "203.0.113.7"), 1},
		"two entries":     {rls.Options{}, of("remote_address", "203.0.113.7", "more", "x"), 2},
		"hits":            {rls.Options{}, hits(of("remote_address", "203.0.113.7"), 3), 2},
		"a look":          {rls.Options{}, hits(of("remote_address", "203.0.113.7"), 0), 2},
		"no rule":         {rls.Options{}, of("nothing", "matches"), 1},
	} {
		service := serviceOf(t, text, tt.options)
		request := &ratelimit.RateLimitRequest{Domain: "kit", Descriptors: []*common.RateLimitDescriptor{tt.descriptor}}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := service.ShouldRateLimit(context.Background(), request); err != nil {
				t.Fatal(err)
			}
		}); n != tt.want {
			t.Errorf("%s: %v allocations, want %v", name, n, tt.want)
		}
	}
}

// TestAnswersLikeTheirsAllocateOnce: one piece of memory for a descriptor, and one more for each further one.
func TestAnswersLikeTheirsAllocateOnce(t *testing.T) {
	service := serviceOf(t, theirs, rls.Options{Ratelimit: &rls.Ratelimit{}})
	for name, tt := range map[string]struct {
		descriptors []*common.RateLimitDescriptor
		want        float64
	}{
		"one":        {[]*common.RateLimitDescriptor{of("user", "a")}, 1},
		"two":        {[]*common.RateLimitDescriptor{of("user", "b"), of("week", "x")}, 3},
		"no rule":    {[]*common.RateLimitDescriptor{of("nothing", "matches")}, 1},
		"unlimited":  {[]*common.RateLimitDescriptor{of("free", "x")}, 1},
		"0 hits":     {[]*common.RateLimitDescriptor{hits(of("tokens", "x"), 0)}, 1},
		"over limit": {[]*common.RateLimitDescriptor{of("user", "a")}, 1},
	} {
		request := &ratelimit.RateLimitRequest{Domain: "kit", Descriptors: tt.descriptors}
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := service.ShouldRateLimit(context.Background(), request); err != nil {
				t.Fatal(err)
			}
		}); n != tt.want {
			t.Errorf("%s: %v allocations, want %v", name, n, tt.want)
		}
	}
}
