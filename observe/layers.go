package observe

import "github.com/prometheus/client_golang/prometheus"

// Count has the metrics tell a number that only grows, by asking for it each time. The name
// is unique and ends in _total.
func (m *Metrics) Count(name, help string, value func() int64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
}

// Gauge has them tell a number that goes up and down.
func (m *Metrics) Gauge(name, help string, value func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
}
