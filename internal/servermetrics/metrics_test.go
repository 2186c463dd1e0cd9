package servermetrics_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/servermetrics"
)

// TestServersAreMeasured: what was counted is at /metrics, and what never occurred has no series.
func TestServersAreMeasured(t *testing.T) {
	m := servermetrics.New("v1")
	m.Sources(func() []servermetrics.Source {
		return []servermetrics.Source{
			{Name: "config", Up: true, Rules: 2, Loaded: time.Unix(1_790_000_000, 0)}, {Name: "redis", Good: true},
		}
	})
	m.Reserved(func() []servermetrics.Reserved {
		return []servermetrics.Reserved{{Rule: "tokens", Unit: "tokens", Units: 7}}
	})
	s := m.Server("gateway", func() int64 { return 3 }, nil)
	s.Began()
	s.Ended(429)
	s.Unsettled("renew")
	s.Untrusted("client_header")
	down := servermetrics.Address{URL: "http://10.0.0.1", Ejections: 1, Attempts: [servermetrics.Attempts]uint64{0, 0, 5, 0, 0, 0, 2}}
	m.Upstreams(func() []servermetrics.Service {
		return []servermetrics.Service{{Name: "order", Addresses: []servermetrics.Address{down}}}
	},
		func() []servermetrics.Route {
			return []servermetrics.Route{{Name: "pay", Service: "order", Requests: 9, Forwarded: 3, Refused: 1, Invalid: 2}}
		})
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text := answer.Body.String()
	for _, line := range []string{
		`weir_source_up{source="config"} 1`, `weir_source_good{source="config"} 0`, `weir_source_rules{source="config"} 2`,
		`weir_source_loaded_timestamp_seconds{source="config"} 1.79e+09`,
		`weir_units_reserved{rule="tokens",unit="tokens"} 7`,
		`weir_source_up{source="redis"} 0`, `weir_source_loaded_timestamp_seconds{source="redis"} 0`,
		`weir_http_requests_total{server="gateway",status="4xx"} 1`, `weir_http_requests_in_flight{server="gateway"} 0`,
		`weir_connections{server="gateway"} 3`, `weir_unsettled_total{operation="renew",server="gateway"} 1`,
		`weir_untrusted_total{said="client_header",server="gateway"} 1`,
		`weir_gateway_attempts_total{address="http://10.0.0.1",outcome="2xx",service="order"} 5`,
		`weir_gateway_attempts_total{address="http://10.0.0.1",outcome="not_connected",service="order"} 2`,
		`weir_gateway_requests_total{outcome="refused",route="pay",service="order"} 1`,
		`weir_gateway_requests_total{outcome="invalid",route="pay",service="order"} 2`,
		`weir_gateway_requests_total{outcome="gone",route="pay",service="order"} 0`,
		`weir_gateway_address_healthy{address="http://10.0.0.1",service="order"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics has no %s:\n%s", line, text)
		}
	}
	for _, series := range []string{`status="2xx"`, `outcome="5xx"`, "weir_connections_refused_total{"} {
		if strings.Contains(text, series) {
			t.Errorf("/metrics has %s", series)
		}
	}
}
