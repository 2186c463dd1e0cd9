package servermetrics

import "github.com/prometheus/client_golang/prometheus"

var unitsReserved = prometheus.NewDesc("weir_units_reserved",
	"Units of a rule that are charged as estimates now, for requests of which the cost is settled by the response.",
	[]string{"rule", "unit"}, nil)

// Reserved are units of one rule.
type Reserved struct {
	Rule, Unit string
	Units      int64
}

// Reserved registers the metric of reserved units. list is called at each scrape. Call Reserved once.
func (m *Metrics) Reserved(list func() []Reserved) { m.Registry().MustRegister(reserved(list)) }

type reserved func() []Reserved

// Describe implements prometheus.Collector.
func (reserved) Describe(to chan<- *prometheus.Desc) { to <- unitsReserved }

// Collect implements prometheus.Collector.
func (list reserved) Collect(to chan<- prometheus.Metric) {
	for _, one := range list() {
		to <- gauge(unitsReserved, float64(one.Units), one.Rule, one.Unit)
	}
}
