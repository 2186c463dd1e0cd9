package engine

import (
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// A stack is the layers between the gate and Redis, with the local fallback store.
type stack struct {
	*layers.Stack
	local   *memstore.Store // below Stack.Local
	log     *slog.Logger
	metrics *servermetrics.Metrics
	terms   atomic.Pointer[map[string]layers.Terms]
}

// newStack wraps Redis in its layers, and times its calls. If it fails, the caller still owns redis.
func newStack(redis weir.Store, c *Config, m *servermetrics.Metrics) (*stack, error) {
	s := &stack{log: c.Log, metrics: m}
	s.terms.Store(new(map[string]layers.Terms))
	updates, err := redisstore.NewUpdates(c.Store, c.storeOptions()...)
	if err != nil {
		return nil, err
	}
	s.local = memstore.New(memstore.WithMaxKeys(c.FallbackKeys), memstore.WithMaxBytes(c.MaxBytes))
	bounds := memstore.New(memstore.WithMaxKeys(c.MaxKeys), memstore.WithMaxBytes(c.MaxBytes),
		memstore.WithoutOverflow())
	o := layers.Options{
		Local:          m.Watch(s.local),
		Nodes:          c.Nodes,
		Bounds:         m.Watch(bounds),
		Terms:          s.of,
		Updates:        updates,
		Without:        c.Without,
		Timeout:        c.StoreTimeout,
		Cluster:        c.cluster(),
		BreakerChanged: s.changed,
		Warn:           func(text string) { c.Log.Warn(text) },
	}
	if s.Stack, err = layers.New(m.Store(redis), o); err != nil {
		return nil, err
	}
	s.observe(c.Without)
	return s, nil
}

// of returns the terms of a limit, by its name.
func (s *stack) of(l *weir.Limit) layers.Terms { return (*s.terms.Load())[l.Name()] }

// follow configures the layers by the rules in force. Limits of overrides have the names of the rule's limits, so they
// need no separate terms.
func (s *stack) follow(set *rules.Set) {
	all := Terms(set)
	s.terms.Store(&all)
}

// Terms configure the layers for the limits of rules, by their names.
func Terms(set *rules.Set) map[string]layers.Terms {
	all := make(map[string]layers.Terms)
	for _, rule := range set.Rules() {
		local := rule.OnStoreError() == rules.Local
		t := LeaseTerms(rule)
		t.Ceiling, t.Local = rule.LocalCeiling(), local
		if t != (layers.Terms{}) {
			for _, limit := range rule.Limits() {
				all[limit.Name()] = t
			}
		}
		// The limits of a ban count refusals, which nodes do not share like traffic.
		if b := rule.Bans(); b != nil {
			for _, limit := range []*weir.Limit{b.Hold, b.Refusals, b.Turn, b.Past} {
				all[limit.Name()] = layers.Terms{Whole: true, Local: local}
			}
		}
	}
	return all
}

// LeaseTerms are the lease terms of a rule; for nil: no lease.
func LeaseTerms(rule *rules.Rule) layers.Terms {
	if rule == nil {
		return layers.Terms{}
	}
	return layers.Terms{LeaseShare: float64(rule.LeasePercent()) / 100}
}

// changed logs the state of the circuit breaker.
func (s *stack) changed(open bool, cause error) {
	if open {
		s.log.Warn("circuit breaker opened: Redis is not responding", "error", cause)
		return
	}
	s.log.Info("circuit breaker closed: Redis is responding again")
}

// layerMetrics are the metrics of the layers; layer is one of layers.Names, or "" for one that always runs.
var layerMetrics = []struct {
	layer, name, help string
	value             func(layers.Stats) int64
}{
	{"breaker", "weir_breaker_state", "Circuit breaker state: 0 closed, 1 half-open, 2 open.",
		func(s layers.Stats) int64 { return int64(s.BreakerState) }},
	{"breaker", "weir_breaker_opened_total", "How often the circuit breaker opened.",
		func(s layers.Stats) int64 { return s.Opened }},
	{"breaker", "weir_breaker_turned_away_total",
		"Decisions without a store call, because the circuit breaker was open.",
		func(s layers.Stats) int64 { return s.TurnedAway }},
	{"coalesce", "weir_coalesce_decisions_total",
		"Decisions that reached the coalescing layer, including those that the circuit breaker turned away.",
		func(s layers.Stats) int64 { return s.Decisions }},
	{"coalesce", "weir_coalesce_requests_total", "Store requests after merging equal concurrent decisions.",
		func(s layers.Stats) int64 { return s.Requests }},
	{"coalesce", "weir_coalesce_trips_total", "Store calls (round trips) of these requests.",
		func(s layers.Stats) int64 { return s.Calls }},
	{"recall", "weir_recalled_total", "Refusals answered from the refusal cache.",
		func(s layers.Stats) int64 { return s.Recalled }},
	{"recall", "weir_recall_evicted_total", "Unexpired refusals evicted from the full refusal cache.",
		func(s layers.Stats) int64 { return s.Evicted }},
	{"recall", "weir_recall_listening", "1 while the refusal cache receives refunds and resets of other nodes.",
		func(s layers.Stats) int64 {
			if s.Listening {
				return 1
			}
			return 0
		}},
	{"", "weir_leases", "Keys with prefetched units.",
		func(s layers.Stats) int64 { return s.Leases }},
	{"", "weir_lease_taken_total", "Prefetched units, in requests.",
		func(s layers.Stats) int64 { return s.LeaseTaken }},
	{"", "weir_lease_returned_total", "Prefetched units that were not used and were refunded, in requests.",
		func(s layers.Stats) int64 { return s.LeaseReturned }},
	{"", "weir_lease_lost_total", "Prefetched units that were not used and could not be refunded, in requests.",
		func(s layers.Stats) int64 { return s.LeaseLost }},
	{"", "weir_ceiling_refused_total", "Decisions refused by the local_ceiling of a rule.",
		func(s layers.Stats) int64 { return s.CeilingRefused }},
	{"", "weir_ceiling_uncounted_total", "Grants not counted by a local_ceiling, because its table was full.",
		func(s layers.Stats) int64 { return s.CeilingUncounted }},
	{"", "weir_releases_pending", "Leases of concurrency limits that are still to be released, after a call failed.",
		func(s layers.Stats) int64 { return s.ReleasesPending }},
	{"", "weir_releases_done_total", "Leases of concurrency limits released in the background, after a call failed.",
		func(s layers.Stats) int64 { return s.ReleasesDone }},
	{"", "weir_releases_lost_total",
		"Leases of concurrency limits that could not be released, and last until their time-to-live is over.",
		func(s layers.Stats) int64 { return s.ReleasesLost }},
	{"", "weir_store_clock_steps_total",
		"How often Redis' clock stepped by more than a second: limits count by it.",
		func(s layers.Stats) int64 { return s.ClockSteps }},
}

// observe registers the metrics of the enabled layers.
func (s *stack) observe(without []string) {
	for _, m := range layerMetrics {
		value := func() int64 { return m.value(s.Stats()) }
		switch {
		case slices.Contains(without, m.layer):
		case strings.HasSuffix(m.name, "_total"):
			s.metrics.Count(m.name, m.help, value)
		default:
			s.metrics.Gauge(m.name, m.help, value)
		}
	}
}

func (e *Engine) checkWithout() error {
	for _, word := range e.Without {
		if !slices.Contains(layers.Names, word) {
			return wrong("server.without is %.80q; allowed: %s", word, strings.Join(layers.Names, ", "))
		}
	}
	return nil
}
