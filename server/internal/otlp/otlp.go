// Package otlp sends traces and metrics to an OpenTelemetry collector, over HTTP. Only the command weir serve imports
// it: other programs do not compile the SDK.
//
// A collector that does not respond delays no request: spans wait in a bounded queue, and spans that do not fit are
// lost and counted.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/go-logr/logr"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirproject/weir/observe"
)

// Environment is the value of Config.URL that leaves the endpoint to OTEL_EXPORTER_OTLP_ENDPOINT.
const Environment = "env"

// A Config says where traces and metrics go. The variables OTEL_* of the environment apply to the rest.
type Config struct {
	URL     string // of the collector, without /v1/traces; or Environment
	Node    string // service.instance.id
	Version string // service.version
	Lookup  func(variable string) string
	Failed  func(error) // called with each failed export, concurrently
	Log     *slog.Logger
}

// An Exporter sends spans from Open on, and metrics from Metrics on, until Close. It is safe for concurrent use.
type Exporter struct {
	Config
	settings settings
	resource *resource.Resource
	queue    *queue
	metrics  *deliveries
	tracer   trace.Tracer
	traces   *sdktrace.TracerProvider // nil: no spans are sent
	meters   *sdkmetric.MeterProvider // nil: no metrics are sent
	stopped  context.Context          // ends exports
	stop     context.CancelFunc
}

// Open begins to send spans. It does not wait for the collector. A variable or a URL that cannot be used is an error;
// one that switches everything off results in nil.
func Open(ctx context.Context, c Config) (*Exporter, error) {
	s, err := read(c)
	if err != nil || s.off() {
		return nil, err
	}
	x := &Exporter{Config: c, settings: s, metrics: new(deliveries)}
	x.stopped, x.stop = context.WithCancel(context.Background())
	// The SDK has one log and one handler of errors for a process. By default both write to the standard error.
	otel.SetLogger(logr.FromSlogHandler(c.Log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(c.Failed))
	x.resource, err = resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "weir"), attribute.String("service.version", c.Version),
		attribute.String("service.instance.id", c.Node)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if s.traces {
		err = x.openTraces(ctx)
	}
	return x, err
}

func (x *Exporter) openTraces(ctx context.Context) error {
	opts := []otlptracehttp.Option{otlptracehttp.WithProxy(noRedirect)}
	if url := x.settings.url; url != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(url+"/v1/traces"))
	}
	exporter, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	x.queue = newQueue(exporter, x.stopped, x.settings.queue)
	x.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(x.queue), sdktrace.WithResource(x.resource))
	x.tracer = x.traces.Tracer("github.com/weirproject/weir", trace.WithInstrumentationVersion(x.Version))
	return nil
}

// noRedirect is the choice of a proxy, which is asked before each request: also before redirected requests, which must
// not be sent. A server that answers with one would get all traces, or answer with the next one without end.
func noRedirect(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, fmt.Errorf("the collector answered %s, to %s: redirects are not followed; give the URL of the "+
			"collector itself", r.Response.Status, r.URL.Redacted())
	}
	return http.ProxyFromEnvironment(r)
}

// Metrics begins to send the series of m, and adds the exporter's own series. Call it once.
func (x *Exporter) Metrics(ctx context.Context, m *observe.Metrics) error {
	if x.settings.traces {
		const help = "Spans for the OpenTelemetry collector, by result. lost: the queue was full, or the collector " +
			"did not accept their batch."
		m.Count("weir_otlp_spans_total", help, x.queue.sent.Load, "result", "sent")
		m.Count("weir_otlp_spans_total", help, x.queue.lost.Load, "result", "lost")
	}
	if !x.settings.metrics {
		return nil
	}
	const help = "Exports of all metrics to the OpenTelemetry collector, by result."
	m.Count("weir_otlp_metrics_total", help, x.metrics.sent.Load, "result", "sent")
	m.Count("weir_otlp_metrics_total", help, x.metrics.failed.Load, "result", "failed")
	opts := []otlpmetrichttp.Option{otlpmetrichttp.WithProxy(noRedirect)}
	if url := x.settings.url; url != "" {
		opts = append(opts, otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"))
	}
	exporter, err := otlpmetrichttp.New(ctx, opts...)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	x.metrics.Exporter, x.metrics.stopped = exporter, x.stopped
	reader := sdkmetric.NewPeriodicReader(x.metrics,
		sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(m.Gatherer()))))
	x.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(x.resource))
	return nil
}

// Close sends the remaining spans and metrics until ctx ends; the rest is lost. Call it after the last request.
func (x *Exporter) Close(ctx context.Context) error {
	defer context.AfterFunc(ctx, x.stop)()
	defer x.stop()
	// With ctx the SDK would return at its end, while its goroutines go on.
	var err error
	if x.meters != nil {
		err = x.meters.Shutdown(context.Background())
	}
	if x.traces != nil {
		err = errors.Join(err, x.traces.Shutdown(context.Background()))
	}
	return err
}
