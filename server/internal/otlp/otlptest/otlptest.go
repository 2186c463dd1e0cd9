// Package otlptest is an OpenTelemetry collector for tests. It decodes OTLP over HTTP with the official protobuf.
package otlptest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metricservice "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traceservice "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Collector has what it received. It is safe for concurrent use.
type Collector struct {
	URL string

	mu       sync.Mutex
	spans    []*traces.Span
	metrics  []*metrics.Metric // of the last export
	resource map[string]string // of the last export
	headers  http.Header       // of the last export
}

// Start starts a collector, until the end of the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := new(Collector)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", receive(t, c.addTraces))
	mux.HandleFunc("POST /v1/metrics", receive(t, c.addMetrics))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Hanging starts a collector that never responds, until the end of the test. It returns its URL.
func Hanging(t testing.TB) (url string) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // otherwise the end of the request is not seen
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(func() {
		close(ended)
		server.Close()
	})
	return server.URL
}

func receive[M any, P interface {
	*M
	proto.Message
}](t testing.TB, add func(http.Header, P)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		var err error
		if r.Header.Get("Content-Encoding") == "gzip" {
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		text, err := io.ReadAll(body)
		message := P(new(M))
		if err == nil {
			err = proto.Unmarshal(text, message)
		}
		if err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		add(r.Header, message)
	}
}

func (c *Collector) addTraces(h http.Header, m *traceservice.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = h
	for _, r := range m.GetResourceSpans() {
		c.resource = Attributes(r.GetResource().GetAttributes())
		for _, scope := range r.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

func (c *Collector) addMetrics(h http.Header, m *metricservice.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers, c.metrics = h, nil
	for _, r := range m.GetResourceMetrics() {
		c.resource = Attributes(r.GetResource().GetAttributes())
		for _, scope := range r.GetScopeMetrics() {
			c.metrics = append(c.metrics, scope.GetMetrics()...)
		}
	}
}

// Spans returns the spans so far, in the order of their ends in each process.
func (c *Collector) Spans() []*traces.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[:len(c.spans):len(c.spans)]
}

// Metrics returns the last metrics.
func (c *Collector) Metrics() []*metrics.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics
}

// Last returns the resource and the HTTP header of the last export.
func (c *Collector) Last() (resource map[string]string, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resource, c.headers
}

// Attributes are attributes as texts.
func Attributes(list []*common.KeyValue) map[string]string {
	texts := make(map[string]string, len(list))
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			texts[a.GetKey()] = v.StringValue
		default:
			texts[a.GetKey()] = a.GetValue().String()
		}
	}
	return texts
}
