//go:build !small

package cli

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/server/internal/console"
	"github.com/weirproject/weir/server/internal/otlp"
)

// tracing sends traces and metrics.
type tracing struct {
	otlp *otlp.Exporter // nil: off
}

// openOTLP begins to send traces, before the engine is opened.
func (v *server) openOTLP(ctx context.Context) (err error) {
	if v.engine.OTLP == off {
		return nil
	}
	v.otlp, err = otlp.Open(ctx, otlp.Config{URL: v.engine.OTLP, Node: v.engine.NodeName, Version: number(),
		Lookup: v.system.lookup, Log: v.log, Failed: func(err error) {
			v.repeated.warn("OpenTelemetry reports an error", "error", err)
		}})
	switch {
	case err != nil:
		return program.Usagef("server.otlp: %v", err)
	case v.otlp == nil:
		v.log.Warn("server.otlp is given, but variables of OpenTelemetry (OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER, " +
			"OTEL_METRICS_EXPORTER) switch traces and metrics off")
	default:
		v.engine.Trace = v.otlp.Verdict
	}
	return nil
}

// sendMetrics begins to send metrics, after the engine was opened.
func (v *server) sendMetrics(ctx context.Context) error {
	if v.otlp == nil {
		return nil
	}
	if err := v.otlp.Metrics(ctx, v.engine.Metrics.Metrics); err != nil {
		return program.Usagef("server.otlp: %v", err)
	}
	return nil
}

// closeOTLP sends the traces and metrics that are left, within a time.
func (v *server) closeOTLP(within time.Duration) {
	if v.otlp == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := v.otlp.Close(ctx); err != nil {
		v.log.Warn("OpenTelemetry: the last traces and metrics were not sent", "error", err)
	}
}

// traced adds a span to each request of a listener, but for health checks, metrics and pages.
func (d *httpServer) traced(v *server, l *listener) *httpServer {
	if v.otlp == nil {
		return d
	}
	d.trace = func(r *http.Request) (*http.Request, func(status int)) {
		if l == v.http && (!strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == console.SessionPath) {
			return r, func(int) {}
		}
		return v.otlp.Request(l.name, r)
	}
	return d
}

// wrapper is what adds spans to the requests of the gateway's transport; nil: nothing does.
func (t *tracing) wrapper() func(http.RoundTripper) http.RoundTripper {
	if t.otlp == nil {
		return nil
	}
	return t.otlp.Transport
}
