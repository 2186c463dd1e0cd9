package cli

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/rules/source"
)

var (
	sourceUp     = prometheus.NewDesc("weir_source_up", "1 if a source of rules can be read.", []string{"source"}, nil)
	sourceGood   = prometheus.NewDesc("weir_source_good", "1 if what a source of rules says is in force.", []string{"source"}, nil)
	sourceRules  = prometheus.NewDesc("weir_source_rules", "Rules of a source that are in force, with those that a later source replaces.", []string{"source"}, nil)
	sourceLoaded = prometheus.NewDesc("weir_source_loaded_timestamp_seconds", "When a source's rules were put in force; 0: it has none in force.", []string{"source"}, nil)
)

// sourceMetrics tell how the sources of a keeper stand.
type sourceMetrics struct{ keeper *source.Keeper }

// Describe implements prometheus.Collector.
func (sourceMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- sourceUp
	to <- sourceGood
	to <- sourceRules
	to <- sourceLoaded
}

// Collect implements prometheus.Collector.
func (m sourceMetrics) Collect(to chan<- prometheus.Metric) {
	for _, y := range m.keeper.Status().Layers {
		tell := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, y.Name)
		}
		tell(sourceUp, yes(!y.Down))
		tell(sourceGood, yes(y.Err == nil))
		tell(sourceRules, float64(y.Rules))
		loaded := 0.0
		if !y.Loaded.IsZero() {
			loaded = float64(y.Loaded.UnixMilli()) / 1e3
		}
		tell(sourceLoaded, loaded)
	}
}

func yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
