package observe

import "github.com/prometheus/client_golang/prometheus"

// Count registers a counter that is read from value at each scrape. The name is unique and ends in
// _total.
func (m *Metrics) Count(name, help string, value func() int64) {
	options := prometheus.CounterOpts{Name: name, Help: help}
	m.registry.MustRegister(prometheus.NewCounterFunc(options, func() float64 { return float64(value()) }))
}

// Gauge registers a gauge that is read from value at each scrape. The name is unique.
func (m *Metrics) Gauge(name, help string, value func() int64) {
	options := prometheus.GaugeOpts{Name: name, Help: help}
	m.registry.MustRegister(prometheus.NewGaugeFunc(options, func() float64 { return float64(value()) }))
}
