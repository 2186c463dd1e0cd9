package servermetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	sourceUp = prometheus.NewDesc("weir_source_up",
		"Whether the last read of a rule source succeeded: 1 yes, 0 no.", []string{"source"}, nil)
	sourceGood = prometheus.NewDesc("weir_source_good",
		"Whether the current content of a rule source is in force: 1 yes, 0 no.", []string{"source"}, nil)
	sourceRules = prometheus.NewDesc("weir_source_rules",
		"Rules of a source that are in force, including those that a later source overrides.", []string{"source"}, nil)
	sourceLeft = prometheus.NewDesc("weir_source_left_out",
		"Invalid rules of a source, which are not in force as written.", []string{"source"}, nil)
	sourceLoaded = prometheus.NewDesc("weir_source_loaded_timestamp_seconds",
		"Unix time at which the rules of a source came into force; 0 if none are.", []string{"source"}, nil)
)

// A Source is the state of one rule source.
type Source struct {
	Name     string // unique
	Up, Good bool   // the last read succeeded; the current content is in force
	Rules    int
	LeftOut  int       // invalid rules, not in force as written
	Loaded   time.Time // zero: none are in force
}

// Sources registers the metrics of the rule sources. list is called at each scrape. Call Sources
// once.
func (m *Metrics) Sources(list func() []Source) { m.Registry().MustRegister(sources(list)) }

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
		values := map[*prometheus.Desc]float64{
			sourceUp:     number(s.Up),
			sourceGood:   number(s.Good),
			sourceRules:  float64(s.Rules),
			sourceLeft:   float64(s.LeftOut),
			sourceLoaded: loaded,
		}
		for desc, value := range values {
			to <- gauge(desc, value, s.Name)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
