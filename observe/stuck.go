package observe

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/tally"
)

// stuckAfter is how many calls of LookForStuck, one a second, a call of an embedded store must outlast to be stuck.
const stuckAfter = 5

// Watch returns an embedded store; LookForStuck watches its calls. A call in memory takes microseconds: one that has
// not returned for seconds holds a lock that others wait for, and only a restart ends it. Stores on a network have
// timeouts instead.
func (m *Metrics) Watch(store weir.Store) weir.Store {
	w := watched{store, &m.health.calls}
	if batcher, ok := store.(weir.Batcher); ok {
		return &watchedBatcher{w, batcher}
	}
	return &w
}

// LookForStuck makes Live and Ready answer 503 while a call of a watched store has outlasted stuckAfter calls of this
// method. Call it once a second, on one goroutine. changed reports whether the answer is another than last time.
func (m *Metrics) LookForStuck() (stuck, changed bool) {
	stuck = m.health.calls.Tick() >= stuckAfter
	return stuck, m.health.stuck.Swap(stuck) != stuck
}

// Stuck is the last result of LookForStuck.
func (m *Metrics) Stuck() bool { return m.health.stuck.Load() }

// A watched store counts its calls in progress.
type watched struct {
	weir.Store
	calls *tally.InFlight
}

type watchedBatcher struct {
	watched
	batcher weir.Batcher
}

// Decide implements weir.Store.
func (w *watched) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (
	int64, error) {
	defer w.calls.Begin(stripeOf(claims)).Add(-1)
	return w.Store.Decide(ctx, claims, times, decisions)
}

// Charge implements weir.Store.
func (w *watched) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	defer w.calls.Begin(stripeOf(claims)).Add(-1)
	return w.Store.Charge(ctx, claims, decisions)
}

// Refund implements weir.Store.
func (w *watched) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision,
) error {
	defer w.calls.Begin(stripeOf(claims)).Add(-1)
	return w.Store.Refund(ctx, claims, takenAt, decisions)
}

// Reset implements weir.Store.
func (w *watched) Reset(ctx context.Context, claims []weir.Claim) error {
	defer w.calls.Begin(stripeOf(claims)).Add(-1)
	return w.Store.Reset(ctx, claims)
}

// DecideBatch implements weir.Batcher.
func (w *watchedBatcher) DecideBatch(ctx context.Context, requests []weir.Request) {
	defer w.calls.Begin(uintptr(unsafe.Pointer(unsafe.SliceData(requests)))).Add(-1)
	w.batcher.DecideBatch(ctx, requests)
}

// stripeOf is different for most concurrent requests.
func stripeOf(claims []weir.Claim) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(claims))) }

const (
	// probeEvery is the shortest interval of decisions for readiness: anybody may ask for it.
	probeEvery = time.Second
	// probeWait is how long an answer waits for its decision: less than the usual timeout of a health check, 1 s.
	probeWait = 500 * time.Millisecond
	// probeStuck is how long a decision of a store with a timeout may take.
	probeStuck = 5 * time.Second
)

// Probe makes readiness depend on a decision: decide, which must not charge, is called for health checks, at most
// once a second and never twice at a time. The server is not ready while decide fails, or does not return. Where the
// store is not embedded, an error is an outage, which on_store_error covers, and decide has seconds to return.
func (m *Metrics) Probe(decide func() error, embedded bool) {
	m.health.probe.Store(&probe{decide: decide, embedded: embedded})
}

// A probe makes decisions for health checks.
type probe struct {
	decide   func() error
	embedded bool

	mu   sync.Mutex
	last *decided // nil: none yet
}

// A decided is one decision.
type decided struct {
	began time.Time
	done  chan struct{}
	err   error // when done
}

// notReady is why the store does not decide; "": it does.
func (p *probe) notReady() string {
	d := p.current()
	late := time.NewTimer(probeWait)
	defer late.Stop()
	select {
	case <-d.done:
	case <-late.C:
		if p.embedded || time.Since(d.began) >= probeStuck {
			return "stuck: the store does not return a decision"
		}
		return ""
	}
	if p.embedded && d.err != nil {
		return "failing: the store in memory does not decide"
	}
	return ""
}

// current is the decision in progress, or one of the last second, or else a new one.
func (p *probe) current() *decided {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && (time.Since(p.last.began) < probeEvery || !p.last.isDone()) {
		return p.last
	}
	d := &decided{began: time.Now(), done: make(chan struct{})}
	p.last = d
	go func() {
		d.err = p.decide()
		close(d.done)
	}()
	return d
}

func (d *decided) isDone() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}
