//go:build !small

package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/server/internal/rls"
	"github.com/weirproject/weir/server/internal/web"
)

// CallOptions are the options of Envoy's rate limit service.
type CallOptions = rls.Options

// ExplainRateLimit sends the call through Envoy's rate limit service, which does not charge. An error is one of the
// text.
func (x *Explainer) ExplainRateLimit(ctx context.Context, text string) (*Explanation, error) {
	call, err := rls.Explain(ctx, x.Gate, x.Set, x.File, x.RateLimits, []byte(text))
	var input *weir.InputError
	switch {
	case errors.As(err, &input):
		return nil, web.Refuse(invalid, "%s", strings.TrimPrefix(input.Error(), "weir: "))
	case err != nil:
		return nil, err
	}
	e := &Explanation{Now: time.Now().UTC(), What: "ratelimit_request", Exceptions: []Exception{},
		Samples: []telemetry.Sample{}, Code: call.Code, Explanation: *call.Descriptors[call.Lead].Explanation}
	for _, d := range call.Descriptors {
		e.Descriptors = append(e.Descriptors, ExplainedDescriptor{readable(d.Text), d.Code, *d.Explanation})
	}
	return e, nil
}
