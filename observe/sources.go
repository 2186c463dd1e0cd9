package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	sourceUp     = prometheus.NewDesc("weir_source_up", "1 if a source of rules can be read.", []string{"source"}, nil)
	sourceGood   = prometheus.NewDesc("weir_source_good", "1 if what a source of rules says is in force.", []string{"source"}, nil)
	sourceRules  = prometheus.NewDesc("weir_source_rules", "Rules of a source that are in force, with those that a later source replaces.", []string{"source"}, nil)
	sourceLeft   = prometheus.NewDesc("weir_source_left_out", "Rules of a source that are not in force as they are there, because something is wrong with them.", []string{"source"}, nil)
	sourceLoaded = prometheus.NewDesc("weir_source_loaded_timestamp_seconds", "When a source's rules were put in force; 0: it has none in force.", []string{"source"}, nil)
)

// A Source is how a source of rules stands.
type Source struct {
	Name     string // unique
	Up, Good bool   // it can be read; what it says is in force
	Rules    int
	LeftOut  int       // rules that are not in force as they are there
	Loaded   time.Time // zero: none are in force
}

// Sources has the metrics tell how sources of rules stand, by asking list each time. It is
// called once.
func (m *Metrics) Sources(list func() []Source) { m.registry.MustRegister(sources(list)) }

type sources func() []Source

// Describe implements prometheus.Collector.
func (sources) Describe(to chan<- *prometheus.Desc) {
	to <- sourceUp
	to <- sourceGood
	to <- sourceRules
	to <- sourceLeft
	to <- sourceLoaded
}

// Collect implements prometheus.Collector.
func (list sources) Collect(to chan<- prometheus.Metric) {
	for _, s := range list() {
		loaded := 0.0
		if !s.Loaded.IsZero() {
			loaded = float64(s.Loaded.UnixMilli()) / 1e3
		}
		for desc, value := range map[*prometheus.Desc]float64{sourceUp: number(s.Up), sourceGood: number(s.Good), sourceRules: float64(s.Rules), sourceLeft: float64(s.LeftOut), sourceLoaded: loaded} {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.Name)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
