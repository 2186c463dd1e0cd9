// Package servermetrics adds to the metrics of decisions those of a server: its listeners, its sources of rules, and
// what its gateway forwards. Label values are names from the configuration and constants.
package servermetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/observe"
)

// Metrics are the metrics of one server.
type Metrics struct {
	*observe.Metrics
	servers   servers
	unsettled *prometheus.CounterVec
	untrusted *prometheus.CounterVec
}

// New returns the metrics of a server of this version.
func New(version string) *Metrics {
	m := &Metrics{
		Metrics: observe.New(version),
		unsettled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_unsettled_total",
			Help: "Granted requests whose follow-up failed: settle, the cost stays as charged; release, the lease " +
				"lasts to its time-to-live; renew, the lease was not extended."}, []string{"server", "operation"}),
		untrusted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_untrusted_total",
			Help: "Requests counted against their peer, because the peer is not in trusted_proxies and sent a client " +
				"or user header, or is on a Unix socket."}, []string{"server", "said"}),
	}
	m.Registry().MustRegister(&m.servers, m.unsettled, m.untrusted)
	return m
}
