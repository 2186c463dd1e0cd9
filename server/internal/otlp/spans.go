package otlp

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// Maximum lengths of what clients choose.
const (
	maxPath  = 256
	maxState = 512 // of tracestate, as W3C Trace Context says
)

// methods are the methods that name a span.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace}

// Request begins the span of a request to a listener, as a part of the trace of its traceparent. It returns the request
// with the span in its context, and the function that ends the span; status 0 means that no response was sent. Without
// traces it returns the request itself.
func (x *Exporter) Request(listener string, r *http.Request) (*http.Request, func(status int)) {
	if x.traces == nil {
		return r, func(int) {}
	}
	method := r.Method
	if !slices.Contains(methods, method) {
		method = "HTTP" // the name of a span has few values
	}
	path := r.URL.EscapedPath() // ASCII: protobuf refuses a batch with any other text than UTF-8
	ctx := propagation.TraceContext{}.Extract(r.Context(), carrier{propagation.HeaderCarrier(r.Header)})
	ctx, span := x.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", method),
		attribute.String("url.path", path[:min(len(path), maxPath)]),
		attribute.String("weir.listener", listener)))
	return r.WithContext(ctx), func(status int) { end(span, status, http.StatusInternalServerError) }
}

// Call begins the span of a call of a gRPC method, as a part of the trace of its traceparent, which header returns like
// other metadata of the call. It returns the context with the span, and the function that ends the span.
func (x *Exporter) Call(ctx context.Context, method string, header func(name string) string) (context.Context,
	func(error)) {
	if x.traces == nil {
		return ctx, func(error) {}
	}
	sent := http.Header{"Traceparent": {header("traceparent")}, "Tracestate": {header("tracestate")}}
	ctx = propagation.TraceContext{}.Extract(ctx, carrier{propagation.HeaderCarrier(sent)})
	ctx, span := x.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// end ends the span of a request with its status. Statuses from failed on are errors, and so is a missing status.
func end(span trace.Span, status, failed int) {
	if status > 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if status == 0 || status >= failed {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
	span.End()
}

// carrier leaves out a tracestate that is too long: each span in the queue would have a copy.
type carrier struct{ propagation.HeaderCarrier }

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	value := c.HeaderCarrier.Get(key)
	if len(value) > maxState {
		return ""
	}
	return value
}

// Verdict adds the span of a decision to the span of its request, as the function of gate.WithTrace. The span has no
// key: that may be personal data.
func (x *Exporter) Verdict(ctx context.Context, v *gate.Verdict) {
	if x.traces == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	about := append(make([]attribute.KeyValue, 0, 6), attribute.String("weir.outcome", v.Outcome.String()),
		attribute.String("weir.reason", v.Reason.String()))
	if v.Rule != nil {
		about = append(about, attribute.String("weir.rule", v.Rule.Name()))
	}
	if c, ok := v.Worst(); ok && v.Outcome == gate.Refused && c.Decision.RetryAfter != weir.Never {
		about = append(about, attribute.Float64("weir.retry_after", c.Decision.RetryAfter.Seconds()))
	}
	if v.Delay > 0 {
		about = append(about, attribute.Float64("weir.delay", v.Delay.Seconds()))
	}
	if v.Degraded() {
		about = append(about, attribute.Bool("weir.degraded", true))
	}
	now := time.Now()
	_, span := x.tracer.Start(ctx, "weir.decide", trace.WithTimestamp(now.Add(-v.Took)), trace.WithAttributes(about...))
	if v.Outcome == gate.Failed {
		span.SetStatus(codes.Error, v.Reason.String())
	}
	span.End(trace.WithTimestamp(now))
}

// Transport adds a span to each request that next sends, from the request to the response header, and passes the trace
// on as traceparent and tracestate.
func (x *Exporter) Transport(next http.RoundTripper) http.RoundTripper {
	if x.traces == nil {
		return next
	}
	return &transport{next, x.tracer}
}

type transport struct {
	next   http.RoundTripper
	tracer trace.Tracer
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.tracer.Start(r.Context(), "upstream", trace.WithSpanKind(trace.SpanKindClient))
	r = r.Clone(ctx) // a RoundTripper may not change the request
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	response, err := t.next.RoundTrip(r)
	status := 0
	if err == nil {
		status = response.StatusCode
	}
	end(span, status, http.StatusBadRequest)
	return response, err
}
