package observe

import (
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/rules"
)

// Metrics are the metrics of one server, in their own registry. They are safe for concurrent
// use.
type Metrics struct {
	registry    *prometheus.Registry
	process     *prometheus.Registry // Go runtime and process
	ruleTallies atomic.Pointer[ruleTallies]
	loading     sync.Mutex // serializes Rules
	collecting  sync.Mutex // guards placement of tallies
	verdicts    [reasons][4]atomic.Uint64

	looks           prometheus.Counter
	degraded        atomic.Uint64
	tooMany         prometheus.Counter
	took            tally.Latency
	storeTook       [len(storeOperations)]tally.Latency
	stored          [len(storeOperations)]atomic.Bool // the operation can be called
	storeErrors     *prometheus.CounterVec
	ruleCount       prometheus.Gauge
	loadedAt, fresh prometheus.Gauge

	health health
}

const reasons = int(gate.OtherGranted) + 1

var verdictCounts = prometheus.NewDesc("weir_verdicts_total",
	"Requests decided, by outcome and reason.", []string{"outcome", "reason"}, nil)

var degradedCounts = prometheus.NewDesc("weir_degraded_total",
	"Requests decided by on_store_error, because the store did not respond.", nil, nil)

var decisionTook = prometheus.NewDesc("weir_decision_duration_seconds",
	"Latency of decisions, including the store.", nil, nil)

// New returns the metrics of a server of this version, with the metrics of the Go runtime and of the
// process.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), process: prometheus.NewRegistry()}
	m.ruleTallies.Store(newRuleTallies())
	m.looks = newCounter("weir_looks_total", "Peeks and dry runs, which charge nothing.")
	m.tooMany = newCounter("weir_too_many_claims_total",
		"Requests decided by on_store_error, because their rules exceed the maximum of claims per decision.")
	m.storeErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_store_errors_total",
		Help: "Failed store calls, by operation, without invalid input and canceled requests."}, []string{"operation"})
	m.ruleCount = gauge("weir_rules", "Number of rules in force.")
	m.loadedAt = gauge("weir_config_loaded_timestamp_seconds", "Unix time at which the rules in force were loaded.")
	m.fresh = gauge("weir_config_last_load_successful", "Whether the last load of rules succeeded: 1 yes, 0 no.")
	storeUp := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_store_up",
		Help: "Whether the last store call succeeded: 1 yes or no call yet, 0 no."},
		func() float64 {
			if m.health.silent.Load() {
				return 0
			}
			return 1
		})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_build_info",
		Help:        "Version of weir and of Go as labels; the value is 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	build.Set(1)
	m.registry.MustRegister(m, m.looks, m.tooMany, m.storeErrors, storeUp, m.ruleCount, m.loadedAt, m.fresh, build)
	m.process.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func newCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Handler answers /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Gatherer(), promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Gatherer returns all metrics, as Handler answers them.
func (m *Metrics) Gatherer() prometheus.Gatherer { return prometheus.Gatherers{m.registry, m.process} }

// Registry returns the metrics without the Go runtime's and the process's, which a program that serves them
// itself usually has. It is a prometheus.Collector.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Verdict counts a verdict, as an observer for gate.WithObserver. It does not allocate.
func (m *Metrics) Verdict(v *gate.Verdict) { m.observe(v) }

// VerdictTo returns an observer that counts each verdict and calls next, which also gets a number for drawing samples.
// It is for internal/telemetry: a second observer with its generator costs a twentieth of a decision in memory.
func (m *Metrics) VerdictTo(next func(v *gate.Verdict, noise uint64)) func(*gate.Verdict) {
	return func(v *gate.Verdict) { next(v, m.observe(v)) }
}

func (m *Metrics) observe(v *gate.Verdict) (noise uint64) {
	noise = m.took.Observe(v.Took, uintptr(unsafe.Pointer(v))) // concurrent requests have different verdicts
	if v.Times == 0 {
		m.looks.Inc()
		return noise
	}
	if v.Degraded() {
		m.degraded.Add(1)
	}
	if errors.Is(v.Err, gate.ErrTooManyClaims) {
		m.tooMany.Inc()
	}
	reason := v.Reason
	if v.Found {
		reason = gate.Repeated
	}
	m.verdicts[reason][v.Outcome].Add(1)
	m.ruleTallies.Load().count(v)
	return noise
}

// possible lists the outcomes of each reason. Only these have series.
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
	gate.OtherRefused:  {gate.Refused},
	gate.Repeated:      {gate.Passed, gate.Refused},
	gate.OtherGranted:  {gate.Passed},
}

func (m *Metrics) collectVerdicts(to chan<- prometheus.Metric) {
	for reason, outcomes := range possible {
		for _, outcome := range outcomes {
			n := m.verdicts[reason][outcome].Load()
			to <- counter(verdictCounts, n, outcome.String(), gate.Reason(reason).String())
		}
	}
	to <- counter(degradedCounts, m.degraded.Load())
	counts, sum := m.took.Read()
	to <- prometheus.MustNewConstHistogram(decisionTook, counts.Total(), sum.Seconds(), counts.Cumulative())
}

// Rules records that set is in force since a time; call it after the gate has it. Counts continue
// for rules of the same name and are dropped for removed rules.
func (m *Metrics) Rules(set *rules.Set, since time.Time) {
	m.loading.Lock()
	defer m.loading.Unlock()
	m.collecting.Lock()
	m.ruleTallies.Store(m.ruleTallies.Load().next(set))
	m.collecting.Unlock()
	m.ruleCount.Set(float64(len(set.Rules())))
	m.loadedAt.Set(float64(since.UnixMilli()) / 1e3)
	m.fresh.Set(1)
	m.health.loaded.Store(true)
	m.health.stale.Store(false)
}

// RulesFailed records that a load of rules failed and the previous rules stay in force.
func (m *Metrics) RulesFailed() {
	m.fresh.Set(0)
	m.health.stale.Store(true)
}
