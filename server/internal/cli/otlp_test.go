//go:build unix

package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/otlp/otlptest"
)

// TestTracesAndMetricsReachACollector: those of the gateway and of the API, and at the end what is left.
func TestTracesAndMetricsReachACollector(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Traceparent"))
	}))
	defer service.Close()
	p := call{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_SERVICE_NAME=edge"}}.serve(t,
		"--limit", "5/1h", "--set", "server.otlp=env", "--set", "server.node_name=n7", "--upstream", service.URL, "--gateway", "127.0.0.1:0")
	status, _, told := get(t, p.at("gateway")+"/a")
	if status != http.StatusOK || !strings.HasPrefix(told, "00-") {
		t.Errorf("the upstream was told %q, %d", told, status)
	}
	if status, _, text := post(t, p.at("http")+"/v1/decide", `{"request":{"client":"203.0.113.1"}}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	for _, path := range []string{"/livez", "/metrics", "/console/"} {
		get(t, p.at("http")+path)
	}
	p.end()
	var spans []string
	for _, s := range collector.Spans() {
		about := otlptest.Attributes(s.GetAttributes())
		spans = append(spans, fmt.Sprint(s.GetName(), " ", about["weir.listener"], about["url.path"], about["weir.rule"]))
	}
	if got, want := fmt.Sprint(spans), "[weir.decide limit upstream  GET gateway/a weir.decide limit POST "+
		"http/v1/decide]"; got != want {
		t.Errorf("the spans are\n%s; want\n%s", got, want)
	}
	passed := 0.0
	for _, m := range collector.Metrics() {
		for _, point := range m.GetSum().GetDataPoints() {
			if otlptest.Attributes(point.GetAttributes())["outcome"] == "passed" && m.GetName() == "weir_decisions_total" {
				passed = point.GetAsDouble()
			}
		}
	}
	if passed != 2 {
		t.Errorf("the metrics have %v decisions that passed", passed)
	}
	resource, _ := collector.Last()
	if resource["service.name"] != "edge" || resource["service.instance.id"] != "n7" {
		t.Errorf("the resource is %v", resource)
	}
}
