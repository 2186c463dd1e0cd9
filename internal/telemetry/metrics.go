package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// useBounds are the buckets of weir_key_utilization.
var useBounds = [...]float64{0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.25, 2, 5, 10}

// useCounts are windows of keys by their use of the limit.
type useCounts struct {
	windows [len(useBounds) + 1]float64
	sum     float64
}

func (u *useCounts) add(use, weight float64) {
	bucket, _ := slices.BinarySearch(useBounds[:], use)
	u.windows[bucket] += weight
	u.sum += weight * use
}

var (
	keyUse = prometheus.NewDesc("weir_key_utilization",
		"Windows of keys by the units that were asked for, as a part of the rule's first limit: 1 is the limit. "+
			"Estimated from a sample of keys, for the 256 rules with most requests.", []string{"rule"}, nil)
	samplesTaken = prometheus.NewDesc("weir_telemetry_samples_total",
		"Decisions drawn for the statistics of keys and the console, by kind: passed, or refused, denied and failed.",
		[]string{"kind"}, nil)
	samplesLost = prometheus.NewDesc("weir_telemetry_lost_total",
		"Decisions drawn and lost, because more came than are taken in 100 ms. Counters of decisions are exact all "+
			"the same.", []string{"kind"}, nil)
	rulesWatched = prometheus.NewDesc("weir_telemetry_rules", "Rules whose keys are counted, at most 256.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{keyUse, samplesTaken, samplesLost, rulesWatched} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(to chan<- prometheus.Metric) {
	for kind, t := range map[string]*tap{"passed": r.passes, "refused": r.others} {
		to <- prometheus.MustNewConstMetric(samplesTaken, prometheus.CounterValue, float64(t.taken.Load()), kind)
		to <- prometheus.MustNewConstMetric(samplesLost, prometheus.CounterValue, float64(t.lost.Load()), kind)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	to <- prometheus.MustNewConstMetric(rulesWatched, prometheus.GaugeValue, float64(len(r.watched)))
	for _, w := range r.watched {
		if w.window.seconds == 0 {
			continue
		}
		buckets := make(map[float64]uint64, len(useBounds))
		sum := 0.0
		for i, bound := range useBounds {
			sum += w.use.windows[i]
			buckets[bound] = uint64(sum)
		}
		sum += w.use.windows[len(useBounds)]
		to <- prometheus.MustNewConstHistogram(keyUse, uint64(sum), w.use.sum, buckets, w.rule.Name())
	}
}
