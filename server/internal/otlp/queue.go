package otlp

import (
	"context"
	"sync/atomic"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A queue passes spans to the batches of the SDK, which has a queue too but does not report dropped spans. Spans
// occupy room from their end until their batch was sent.
type queue struct {
	sdktrace.SpanProcessor
	exporter   sdktrace.SpanExporter
	stopped    context.Context
	room       atomic.Int64
	sent, lost atomic.Int64
}

func newQueue(exporter sdktrace.SpanExporter, stopped context.Context, size int) *queue {
	q := &queue{exporter: exporter, stopped: stopped}
	q.room.Store(int64(size))
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(batches{q}, sdktrace.WithMaxQueueSize(size))
	return q
}

// OnEnd implements sdktrace.SpanProcessor. It never waits.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if q.room.Add(-1) < 0 {
		q.room.Add(1)
		q.lost.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// batches sends the batches of a queue.
type batches struct{ *queue }

// ExportSpans implements sdktrace.SpanExporter.
func (b batches) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := until(ctx, b.stopped)
	defer cancel()
	err := b.exporter.ExportSpans(ctx, spans)
	if n := int64(len(spans)); err != nil {
		b.lost.Add(n)
	} else {
		b.sent.Add(n)
	}
	b.room.Add(int64(len(spans)))
	return err
}

// Shutdown implements sdktrace.SpanExporter.
func (b batches) Shutdown(ctx context.Context) error { return b.exporter.Shutdown(ctx) }

// deliveries counts exports of metrics.
type deliveries struct {
	sdkmetric.Exporter
	stopped      context.Context
	sent, failed atomic.Int64
}

// Export implements sdkmetric.Exporter.
func (d *deliveries) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	ctx, cancel := until(ctx, d.stopped)
	defer cancel()
	err := d.Exporter.Export(ctx, m)
	if err != nil {
		d.failed.Add(1)
	} else {
		d.sent.Add(1)
	}
	return err
}

// until is ctx, which ends with stopped too.
func until(ctx, stopped context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(stopped, cancel)
	return ctx, func() {
		detach()
		cancel()
	}
}
