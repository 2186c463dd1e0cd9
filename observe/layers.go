package observe

import "github.com/prometheus/client_golang/prometheus"

// Count registers a counter that is read from value at each scrape. The name, which ends in _total, is unique with the
// labels: names and values in turn.
func (m *Metrics) Count(name, help string, value func() int64, labels ...string) {
	options := prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{}}
	for i := 1; i < len(labels); i += 2 {
		options.ConstLabels[labels[i-1]] = labels[i]
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(options, func() float64 { return float64(value()) }))
}

// Gauge registers a gauge that is read from value at each scrape. The name is unique.
func (m *Metrics) Gauge(name, help string, value func() int64) {
	options := prometheus.GaugeOpts{Name: name, Help: help}
	m.registry.MustRegister(prometheus.NewGaugeFunc(options, func() float64 { return float64(value()) }))
}
