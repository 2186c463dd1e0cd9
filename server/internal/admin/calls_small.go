//go:build small

package admin

import (
	"context"

	"github.com/weirproject/weir/server/internal/web"
)

// CallOptions are the options of Envoy's rate limit service, which a small program has not.
type CallOptions struct{}

// ExplainRateLimit refuses.
func (x *Explainer) ExplainRateLimit(context.Context, string) (*Explanation, error) {
	return nil, web.Refuse(invalid, "ratelimit_request: this program was built with -tags small, which leaves out "+
		"Envoy's rate limit service: build it without the tag")
}
