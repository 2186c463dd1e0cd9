package observe

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/tally"
)

// An observed store times the calls of another store and records whether they succeed. It does not
// forward its shortcut: the two clock readings cost more than the shortcut saves, and gates do not
// use it.
type observed struct {
	weir.Store
	metrics                       *Metrics
	start                         time.Time // of the clock of latencies: time.Since reads one, time.Now two
	decide, charge, refund, reset operation
}

// An observedBatcher is an observed store that decides batches. A batch is timed as one call.
type observedBatcher struct {
	observed
	batcher weir.Batcher
	batch   operation
}

// An operation has the metrics of one store method.
type operation struct {
	took   *tally.Latency
	errors prometheus.Counter
}

// storeOperations are the methods of a store in the metrics.
var storeOperations = [...]string{"decide", "charge", "refund", "reset", "batch"}

var storeTook = prometheus.NewDesc("weir_store_duration_seconds", "Latency of store calls, by operation.",
	[]string{"operation"}, nil)

// collectStore exports the latencies of a store's calls.
func (m *Metrics) collectStore(to chan<- prometheus.Metric) {
	for i, name := range storeOperations {
		if !m.stored[i].Load() {
			continue
		}
		counts, sum := m.storeTook[i].Read()
		to <- prometheus.MustNewConstHistogram(storeTook, counts.Total(), sum.Seconds(), counts.Cumulative(), name)
	}
}

// ReadStore returns the latencies of all store calls. It is for internal/telemetry, as Read.
func (m *Metrics) ReadStore() (took tally.Buckets) {
	for i := range m.storeTook {
		counts, _ := m.storeTook[i].Read()
		took = took.Add(counts)
	}
	return took
}

// ReadDecisions returns the latencies of all decisions, and their sum.
func (m *Metrics) ReadDecisions() (took tally.Buckets, sum time.Duration) { return m.took.Read() }

// StoreUp reports whether the last store call succeeded.
func (m *Metrics) StoreUp() bool { return !m.health.silent.Load() }

// Store returns a layer over store that times its calls.
func (m *Metrics) Store(store weir.Store) weir.Store {
	of := func(i int) operation {
		m.stored[i].Store(true)
		return operation{&m.storeTook[i], m.storeErrors.WithLabelValues(storeOperations[i])}
	}
	s := observed{store, m, time.Now(), of(0), of(1), of(2), of(3)}
	if batcher, ok := store.(weir.Batcher); ok {
		return &observedBatcher{s, batcher, of(4)}
	}
	return &s
}

// DecideBatch implements weir.Batcher. One failed request counts as a failure of the batch, which
// is one call.
func (s *observedBatcher) DecideBatch(ctx context.Context, requests []weir.Request) {
	began := time.Since(s.start)
	s.batcher.DecideBatch(ctx, requests)
	var failure error
	for i := range requests {
		err := requests[i].Err
		if errors.Is(err, weir.ErrNotAsked) {
			continue // as the store answered: refused
		}
		if err != nil && (failure == nil || isFailure(ctx, err)) {
			failure = err
		}
	}
	s.note(ctx, &s.batch, began, failure)
}

// Decide implements weir.Store.
func (s *observed) Decide(
	ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision,
) (int64, error) {
	began := time.Since(s.start)
	granted, err := s.Store.Decide(ctx, claims, times, decisions)
	s.note(ctx, &s.decide, began, err)
	return granted, err
}

// Charge implements weir.Store.
func (s *observed) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	began := time.Since(s.start)
	err := s.Store.Charge(ctx, claims, decisions)
	s.note(ctx, &s.charge, began, err)
	return err
}

// Refund implements weir.Store.
func (s *observed) Refund(
	ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision,
) error {
	began := time.Since(s.start)
	err := s.Store.Refund(ctx, claims, takenAt, decisions)
	s.note(ctx, &s.refund, began, err)
	return err
}

// Reset implements weir.Store.
func (s *observed) Reset(ctx context.Context, claims []weir.Claim) error {
	began := time.Since(s.start)
	err := s.Store.Reset(ctx, claims)
	s.note(ctx, &s.reset, began, err)
	return err
}

func (s *observed) note(ctx context.Context, op *operation, began time.Duration, err error) {
	took := time.Since(s.start) - began
	op.took.Observe(took, uintptr(took)) // as good as random
	if err != nil && !isFailure(ctx, err) {
		if errors.Is(err, weir.ErrLeaseGone) {
			s.metrics.answers(true)
		}
		return // invalid input never reached the store
	}
	if err != nil {
		op.errors.Inc()
	}
	s.metrics.answers(err == nil || errors.Is(err, weir.ErrForeignState))
}

// isFailure reports whether an error is the fault of the store rather than of its caller.
func isFailure(ctx context.Context, err error) bool {
	var input *weir.InputError
	return !errors.As(err, &input) && !errors.Is(err, weir.ErrLeaseGone) && ctx.Err() == nil
}

// answers records whether the store responds. It writes only on a change: a shared word that each
// call writes would move between processors.
func (m *Metrics) answers(yes bool) {
	if m.health.silent.Load() == yes {
		m.health.silent.Store(!yes)
	}
}
