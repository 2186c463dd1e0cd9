package otlp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/otlp"
	"github.com/weirproject/weir/server/internal/otlp/otlptest"
)

// An exporter is one with its failures and its environment.
type exporter struct {
	*otlp.Exporter
	mu       sync.Mutex
	failures []error
}

// open opens an exporter with variables, which are those of the process too: the SDK reads them itself.
func open(t *testing.T, url string, variables map[string]string) *exporter {
	t.Helper()
	for name, value := range variables {
		t.Setenv(name, value)
	}
	x := new(exporter)
	var err error
	x.Exporter, err = otlp.Open(t.Context(), otlp.Config{URL: url, Node: "n1", Version: "v9", Log: slog.Default(),
		Lookup: func(name string) string { return variables[name] }, Failed: x.failed})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *exporter) failed(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failures = append(x.failures, err)
}

// finish sends what is left.
func (x *exporter) finish(t *testing.T) {
	t.Helper()
	if err := x.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// request ends a span.
func (x *exporter) request() {
	r, end := x.Request("gateway", httptest.NewRequest("GET", "/", nil))
	_ = r
	end(200)
}

const limited = `
rules:
  - name: per-client
    key: client.ip
    limit: fixed_window 1/1h
`

// gateway forwards requests that a rule passes to a service, which answers with the traceparent that it got.
func gateway(t *testing.T, x *exporter) http.Handler {
	t.Helper()
	file, err := rules.Parse("test.yaml", []byte(limited))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()), gate.WithTrace(x.Verdict))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Traceparent"), " ", r.Header.Get("Tracestate"))
	}))
	t.Cleanup(service.Close)
	transport := x.Transport(http.DefaultTransport)
	forwarded := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), "GET", service.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header.Clone()
		answer, err := transport.RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		var body bytes.Buffer
		body.ReadFrom(answer.Body)
		w.Write(body.Bytes())
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, end := x.Request("gateway", r)
		answer := httptest.NewRecorder()
		forwarded.ServeHTTP(answer, r)
		end(answer.Code)
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	})
}

// get sends a request with a traceparent, and returns the answer.
func get(h http.Handler, traceparent string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/a?secret=b", nil)
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
		r.Header.Set("Tracestate", "a=b")
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// shown is a span in one line.
func shown(s *traces.Span) string {
	return fmt.Sprintf("%s %s %v %s", s.GetName(), s.GetKind(), otlptest.Attributes(s.GetAttributes()),
		s.GetStatus().GetCode())
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// TestTraceGoesThroughTheGateway as a part of the client's trace: the spans of the request, its decision and the
// upstream, which is told of its own.
func TestTraceGoesThroughTheGateway(t *testing.T) {
	c := otlptest.Start(t)
	x := open(t, c.URL+"/", nil)
	h := gateway(t, x)
	passed, refused := get(h, parent), get(h, parent)
	x.finish(t)
	spans := c.Spans()
	if len(spans) != 5 || passed.Code != 200 || refused.Code != 429 {
		t.Fatalf("%d and %d, %d spans: %v", passed.Code, refused.Code, len(spans), spans)
	}
	for i, want := range []string{
		"weir.decide SPAN_KIND_INTERNAL map[weir.outcome:passed weir.reason:within_limits weir.rule:per-client] " +
			"STATUS_CODE_UNSET",
		"upstream SPAN_KIND_CLIENT map[http.response.status_code:int_value:200] STATUS_CODE_UNSET",
		"GET SPAN_KIND_SERVER map[http.request.method:GET http.response.status_code:int_value:200 url.path:/a " +
			"weir.listener:gateway] STATUS_CODE_UNSET",
		"weir.decide SPAN_KIND_INTERNAL map[weir.outcome:refused weir.reason:limit_exceeded weir.retry_after:",
		"GET SPAN_KIND_SERVER map[http.request.method:GET http.response.status_code:int_value:429 url.path:/a " +
			"weir.listener:gateway] STATUS_CODE_UNSET",
	} {
		got := shown(spans[i])
		if !strings.HasPrefix(got, want) {
			t.Errorf("span %d is\n%s; want\n%s", i, got, want)
		}
		if fmt.Sprintf("%x", spans[i].GetTraceId()) != traceID {
			t.Errorf("span %d is of another trace: %x", i, spans[i].GetTraceId())
		}
	}
	server := spans[2]
	if got := fmt.Sprintf("%x", server.GetParentSpanId()); got != "00f067aa0ba902b7" {
		t.Errorf("the parent of the request is %s", got)
	}
	for _, child := range spans[:2] {
		if !bytes.Equal(child.GetParentSpanId(), server.GetSpanId()) {
			t.Errorf("%s is no child of the request", child.GetName())
		}
	}
	want := fmt.Sprintf("00-%s-%x-01 a=b", traceID, spans[1].GetSpanId())
	if got := passed.Body.String(); got != want {
		t.Errorf("the upstream was told %s; want %s", got, want)
	}
	decide := spans[0]
	if decide.GetStartTimeUnixNano() < server.GetStartTimeUnixNano() ||
		decide.GetEndTimeUnixNano() > server.GetEndTimeUnixNano() ||
		decide.GetStartTimeUnixNano() >= decide.GetEndTimeUnixNano() {
		t.Errorf("the decision was from %d to %d, the request from %d to %d", decide.GetStartTimeUnixNano(),
			decide.GetEndTimeUnixNano(), server.GetStartTimeUnixNano(), server.GetEndTimeUnixNano())
	}
}

// TestParentDecidesSampling: its flag is passed on, and without it nothing is recorded.
func TestParentDecidesSampling(t *testing.T) {
	c := otlptest.Start(t)
	x := open(t, c.URL, map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
	h := gateway(t, x)
	unsampled := get(h, strings.TrimSuffix(parent, "1")+"0").Body.String()
	if !strings.HasPrefix(unsampled, "00-"+traceID) || !strings.Contains(unsampled, "-00 ") {
		t.Errorf("the upstream was told %s", unsampled)
	}
	get(h, "")
	get(h, "00-garbage")
	x.finish(t)
	if spans := c.Spans(); len(spans) != 0 {
		t.Errorf("spans: %v", spans)
	}
	x = open(t, c.URL, nil) // of the sampler, the environment of the test has still that of above
	get(gateway(t, x), parent)
	x.finish(t)
	if spans := c.Spans(); len(spans) != 3 {
		t.Errorf("%d spans of a sampled parent", len(spans))
	}
}

// TestHostileRequestsLoseNoBatch: whatever a client sends, the spans of others arrive.
func TestHostileRequestsLoseNoBatch(t *testing.T) {
	c := otlptest.Start(t)
	x := open(t, c.URL, nil)
	hostile := func(change func(*http.Request)) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Traceparent", parent)
		change(r)
		_, end := x.Request("http", r)
		end(0)
	}
	hostile(func(r *http.Request) { r.Method = strings.Repeat("X\xff", 5000) })
	hostile(func(r *http.Request) { r.URL.Path = "/\xff\xfe" + strings.Repeat("ü", 5000) })
	hostile(func(r *http.Request) { r.Header.Set("Tracestate", "a="+strings.Repeat("b", 60_000)) })
	hostile(func(r *http.Request) { r.Header.Set("Traceparent", strings.Repeat("\xff", 60_000)) })
	x.finish(t)
	spans := c.Spans()
	if len(spans) != 4 || len(x.failures) != 0 {
		t.Fatalf("%d spans, %v", len(spans), x.failures)
	}
	if got := spans[0].GetName(); got != "HTTP" {
		t.Errorf("the name of a span is %q", got)
	}
	for _, s := range spans {
		size := len(s.GetName()) + len(s.GetTraceState())
		for _, value := range otlptest.Attributes(s.GetAttributes()) {
			size += len(value)
		}
		if size > 400 || s.GetStatus().GetCode() != traces.Status_STATUS_CODE_ERROR {
			t.Errorf("a span has %d bytes: %v", size, s)
		}
	}
}

// TestMetricsAreThoseOfPrometheus: the same names, labels and values, at the same time.
func TestMetricsAreThoseOfPrometheus(t *testing.T) {
	c := otlptest.Start(t)
	x := open(t, otlp.Environment, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL,
		"OTEL_EXPORTER_OTLP_HEADERS":  "authorization=token",
		"OTEL_SERVICE_NAME":           "edge",
		"OTEL_RESOURCE_ATTRIBUTES":    "deployment.environment.name=test,service.instance.id=own",
	})
	m := servermetrics.New("v9")
	m.Verdict(&gate.Verdict{Times: 1, Took: 1000})
	m.Verdict(&gate.Verdict{Times: 1, Took: 2000, Err: errors.New("down"), Reason: gate.StoreFailed})
	m.Server("gateway", nil, nil).Ended(200)
	if err := x.Metrics(t.Context(), m.Metrics); err != nil {
		t.Fatal(err)
	}
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	x.finish(t)
	sent := make(map[string]*metrics.Metric)
	for _, metric := range c.Metrics() {
		sent[metric.GetName()] = metric
	}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if got, want := valueIn(sent[family.GetName()], series), valueOf(family, series); got != want {
				t.Errorf("%s%v is %v, in /metrics %v", family.GetName(), series.GetLabel(), got, want)
			}
		}
	}
	if len(families) < 10 || sent["go_goroutines"] == nil || sent["process_cpu_seconds_total"] == nil {
		t.Errorf("%d families, sent %d", len(families), len(sent))
	}
	resource, header := c.Last()
	if resource["service.name"] != "edge" || resource["deployment.environment.name"] != "test" ||
		resource["service.version"] != "v9" || resource["service.instance.id"] != "own" {
		t.Errorf("the resource is %v", resource)
	}
	if header.Get("Authorization") != "token" {
		t.Errorf("the header is %v", header)
	}
}

// valueOf is the value of a series of Prometheus; of a histogram the number and the sum.
func valueOf(family *dto.MetricFamily, m *dto.Metric) [2]float64 {
	switch family.GetType() {
	case dto.MetricType_COUNTER:
		return [2]float64{m.GetCounter().GetValue()}
	case dto.MetricType_HISTOGRAM:
		return [2]float64{float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()}
	}
	return [2]float64{m.GetGauge().GetValue()}
}

// valueIn is the value of the point with the labels of a series; −1 if there is none.
func valueIn(m *metrics.Metric, series *dto.Metric) [2]float64 {
	want := make(map[string]string)
	for _, label := range series.GetLabel() {
		want[label.GetName()] = label.GetValue()
	}
	for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
		if fmt.Sprint(otlptest.Attributes(p.GetAttributes())) == fmt.Sprint(want) {
			return [2]float64{p.GetAsDouble()}
		}
	}
	for _, p := range m.GetHistogram().GetDataPoints() {
		if fmt.Sprint(otlptest.Attributes(p.GetAttributes())) == fmt.Sprint(want) {
			return [2]float64{float64(p.GetCount()), p.GetSum()}
		}
	}
	return [2]float64{-1}
}

// spanCounts are the spans that were sent and lost.
func spanCounts(t *testing.T, m *observe.Metrics) (sent, lost float64) {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			switch {
			case family.GetName() != "weir_otlp_spans_total":
			case series.GetLabel()[0].GetValue() == "sent":
				sent = series.GetCounter().GetValue()
			default:
				lost = series.GetCounter().GetValue()
			}
		}
	}
	return sent, lost
}

// TestHangingCollectorDelaysNothing: requests end at once, all spans are lost and counted, and the end leaves no
// goroutine.
func TestHangingCollectorDelaysNothing(t *testing.T) {
	x := open(t, otlptest.Hanging(t), map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_SCHEDULE_DELAY": "1",
		"OTEL_BSP_EXPORT_TIMEOUT": "600000", "OTEL_EXPORTER_OTLP_TIMEOUT": "600000"})
	m := observe.New("")
	if err := x.Metrics(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	const spans = 1000
	for range spans {
		x.request()
	}
	if _, lost := spanCounts(t, m); lost != spans-8 {
		t.Errorf("%v of %d spans were lost, with a queue of 8", lost, spans)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := x.Close(ended); err == nil {
		t.Error("no error about what was not sent")
	}
	if sent, lost := spanCounts(t, m); sent != 0 || lost != spans {
		t.Errorf("at the end %v spans were sent and %v lost", sent, lost)
	}
	redistest.Await(t, "the end of the goroutines", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("opentelemetry.io/otel/"))
	})
}

// TestRefusingCollectorIsCounted, and each failure is reported.
func TestRefusingCollectorIsCounted(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	x := open(t, server.URL, nil)
	m := observe.New("")
	if err := x.Metrics(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		x.request()
	}
	if err := x.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the error of the last metrics is %v", err)
	}
	if sent, lost := spanCounts(t, m); sent != 0 || lost != 10 {
		t.Errorf("%v spans were sent and %v lost", sent, lost)
	}
	if len(x.failures) != 1 || !strings.Contains(x.failures[0].Error(), "404") {
		t.Errorf("reported: %v", x.failures)
	}
}

// TestRedirectsAreNotFollowed: a collector that answers with one gets each export once, and nobody else gets it.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		var asked, elsewhere atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
		defer other.Close()
		collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, other.URL, status)
		}))
		defer collector.Close()
		x := open(t, collector.URL, nil)
		x.request()
		x.Close(t.Context())
		x.mu.Lock()
		text := fmt.Sprint(x.failures)
		x.mu.Unlock()
		if asked.Load() != 1 || elsewhere.Load() != 0 || !strings.Contains(text, "redirects are not followed; give the URL of the collector itself") {
			t.Errorf("%d: %d requests, %d elsewhere, %s", status, asked.Load(), elsewhere.Load(), text)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct{ url, variable, says string }{
		{"", "", `the value is ""; allowed: a URL such as http://127.0.0.1:4318`},
		{"collector:4318", "", "allowed: a URL such as"},
		{"http://", "", "allowed: a URL such as"},
		{"http://user:secret@host:4318", "", "without user"},
		{"http://host?a=b", "", "without user, query"},
		{"env", "OTEL_EXPORTER_OTLP_ENDPOINT=host:4318", "OTEL_EXPORTER_OTLP_ENDPOINT: the value is"},
		{"env", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "allowed: http/protobuf, http/json"},
		{"env", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=zstd", "allowed: gzip, none"},
		{"env", "OTEL_TRACES_EXPORTER=jaeger", "allowed: otlp, none"},
		{"env", "OTEL_TRACES_SAMPLER=all", "allowed: always_on"},
		{"env", "OTEL_BSP_MAX_QUEUE_SIZE=0", "allowed: 1 to 100000"},
		{"env", "OTEL_BSP_MAX_QUEUE_SIZE=many", "allowed: 1 to 100000"},
	} {
		_, err := otlp.Open(t.Context(), otlp.Config{URL: c.url, Log: slog.Default(), Lookup: only(c.variable)})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v; want %s", c.url, c.variable, err, c.says)
		}
	}
	x, err := otlp.Open(t.Context(), otlp.Config{URL: "env", Log: slog.Default(), Lookup: only("OTEL_SDK_DISABLED=true")})
	if x != nil || err != nil {
		t.Errorf("switched off: %v %v", x, err)
	}
}

func only(variable string) func(string) string {
	return func(name string) string {
		if value, ok := strings.CutPrefix(variable, name+"="); ok {
			return value
		}
		return ""
	}
}

// TestOneSignalAlone: without traces requests and the upstream's are as they were.
func TestOneSignalAlone(t *testing.T) {
	c := otlptest.Start(t)
	x := open(t, c.URL, map[string]string{"OTEL_TRACES_EXPORTER": "none"})
	r := httptest.NewRequest("GET", "/", nil)
	if same, end := x.Request("http", r); same != r {
		t.Error("the request was changed")
	} else {
		end(200)
	}
	if x.Transport(http.DefaultTransport) != http.DefaultTransport {
		t.Error("the transport was changed")
	}
	x.Verdict(t.Context(), new(gate.Verdict))
	if err := x.Metrics(t.Context(), observe.New("")); err != nil {
		t.Fatal(err)
	}
	x.finish(t)
	if len(c.Spans()) != 0 || len(c.Metrics()) == 0 {
		t.Errorf("%d spans, %d metrics", len(c.Spans()), len(c.Metrics()))
	}
}
