package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// Failures after a grant, and at the upstream, have a metric and a log line.
func TestFailuresAfterAGrantAreReported(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Used-Tokens", "lots") }))
	dir := t.TempDir()
	config := write(t, dir, "weir.yaml", "rules: [{name: chat, cost: {default: 500, settle: header.X-Used-Tokens}, limit: 4000/1m}]\n")
	p := call{}.serve(t, "--config", config, "--gateway", "127.0.0.1:0", "--upstream", upstream.URL)
	for range 3 {
		if got := status(t, p.at("gateway")+"/"); got != 200 {
			t.Fatalf("%d", got)
		}
	}
	upstream.Close()
	for range 2 {
		if got := status(t, p.at("gateway")+"/"); got != 502 {
			t.Errorf("without an upstream: %d", got)
		}
	}
	for _, line := range []string{
		`weir_unsettled_total{operation="settle",server="gateway"} 5`,
		`weir_gateway_failures_total{status="502"} 2`,
		`weir_gateway_upstream_duration_seconds_count 3`,
		`weir_http_requests_total{server="gateway",status="2xx"} 3`,
		`weir_http_requests_total{server="gateway",status="5xx"} 2`,
	} {
		redistest.Await(t, line, func() bool {
			_, _, text := get(t, p.at("http")+"/metrics")
			return strings.Contains(text, line+"\n")
		})
	}
	logs := p.logs()
	if strings.Count(logs, "cost of a request not settled") != 1 || !strings.Contains(logs, "X-Used-Tokens is \\\"lots\\\"") || !strings.Contains(logs, "chat") {
		t.Errorf("the log has\n%s", logs)
	}
	p.end()
}
