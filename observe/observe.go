package observe

import (
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// Metrics are what one server counts, in a registry of its own. They are safe for
// concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	census     atomic.Pointer[census]
	loading    sync.Mutex // Rules calls, one after the other
	collecting sync.Mutex // held while a tally gets its place
	verdicts   [reasons][4]atomic.Uint64

	looks           prometheus.Counter
	degraded        prometheus.Counter
	crowded         prometheus.Counter
	took            prometheus.Histogram
	storeTook       *prometheus.HistogramVec
	storeErrors     *prometheus.CounterVec
	ruleCount       prometheus.Gauge
	loadedAt, fresh prometheus.Gauge

	health  health
	servers servers
}

const reasons = int(gate.Canceled) + 1

var verdictCounts = prometheus.NewDesc("weir_verdicts_total", "Requests by what became of them and why.", []string{"outcome", "reason"}, nil)

// Durations are from microseconds, the embedded store's, to what a store may take before
// callers give up.
var durations = []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1}

// New makes metrics of a server of this version. They also tell of the Go runtime and of
// the process.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.census.Store(newCensus())
	m.looks = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_looks_total", Help: "Decisions that were only looked at: peeks and dry runs."})
	m.degraded = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_degraded_total", Help: "Decisions that the rules' on_store_error made, because the store did not answer."})
	m.crowded = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_too_many_claims_total", Help: "Decisions that the rules' on_store_error made, because the rules need more claims than a decision holds."})
	m.took = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_decision_duration_seconds", Help: "How long decisions took, from the request to its verdict.", Buckets: durations})
	m.storeTook = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_store_duration_seconds", Help: "How long calls of the store took.", Buckets: durations}, []string{"operation"})
	m.storeErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_store_errors_total", Help: "Calls of the store that failed; wrong input and callers that left do not count."}, []string{"operation"})
	m.ruleCount = gauge("weir_rules", "Rules in force.")
	m.loadedAt = gauge("weir_config_loaded_timestamp_seconds", "When the rules in force were loaded.")
	m.fresh = gauge("weir_config_last_load_successful", "1 if the last attempt to load rules succeeded.")
	storeUp := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_store_up", Help: "1 if the store answered when it was last asked, or was not asked yet."}, m.health.up)
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_build_info", Help: "1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	m.registry.MustRegister(m, &m.servers, m.looks, m.degraded, m.crowded, m.took, m.storeTook, m.storeErrors, storeUp, m.ruleCount, m.loadedAt, m.fresh, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Handler answers /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Registry is where a program can register metrics of its own.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Verdict counts a verdict: it is for gate.WithObserver. It allocates nothing.
func (m *Metrics) Verdict(v *gate.Verdict) {
	m.took.Observe(v.Took.Seconds())
	if v.Times == 0 {
		m.looks.Inc()
		return
	}
	if v.Degraded() {
		m.degraded.Inc()
	}
	if errors.Is(v.Err, gate.ErrTooManyClaims) {
		m.crowded.Inc()
	}
	m.verdicts[v.Reason][v.Outcome].Add(1)
	m.census.Load().count(v)
}

// possible are the outcomes that each reason can have.
var possible = [reasons][]gate.Outcome{
	gate.NoRule:        {gate.Passed},
	gate.WithinLimits:  {gate.Passed},
	gate.AllowList:     {gate.Passed},
	gate.LimitExceeded: {gate.Refused},
	gate.Banned:        {gate.Refused},
	gate.DenyList:      {gate.Denied},
	gate.MissingKey:    {gate.Denied},
	gate.StoreFailed:   {gate.Passed, gate.Failed},
	gate.BadInput:      {gate.Failed},
	gate.Canceled:      {gate.Failed},
}

func (m *Metrics) collectVerdicts(to chan<- prometheus.Metric) {
	for reason, outcomes := range possible {
		for _, outcome := range outcomes {
			to <- prometheus.MustNewConstMetric(verdictCounts, prometheus.CounterValue, float64(m.verdicts[reason][outcome].Load()),
				outcome.String(), gate.Reason(reason).String())
		}
	}
}

// Rules tells that rules are in force since a time. Call it when the gate has them. What
// rules of the same name have counted goes on; those that are gone are forgotten.
func (m *Metrics) Rules(set *rules.Set, since time.Time) {
	m.loading.Lock()
	defer m.loading.Unlock()
	m.collecting.Lock()
	m.census.Store(m.census.Load().next(set))
	m.collecting.Unlock()
	m.ruleCount.Set(float64(len(set.Rules())))
	m.loadedAt.Set(float64(since.UnixMilli()) / 1e3)
	m.fresh.Set(1)
	m.health.loaded.Store(true)
	m.health.stale.Store(false)
}

// RulesFailed tells that other rules could not be loaded: those before stay in force.
func (m *Metrics) RulesFailed() {
	m.fresh.Set(0)
	m.health.stale.Store(true)
}
