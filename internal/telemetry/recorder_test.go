package telemetry

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
)

// A node is a gate with metrics and, unless off, a recorder, which ticks when a test says so.
type node struct {
	*Recorder
	gate    *gate.Gate
	metrics *observe.Metrics
	clock   time.Time
	now     atomic.Int64 // clock, for the goroutines of requests
}

func newNode(t testing.TB, text string, on bool) *node {
	t.Helper()
	n := &node{metrics: observe.New("test"), clock: time.Unix(1_800_000_000, 0)}
	n.now.Store(n.clock.UnixNano())
	store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(n.now.Load() / 1000) }))
	return n.open(t, text, on, store)
}

func (n *node) open(t testing.TB, text string, on bool, store weir.Store) *node {
	t.Helper()
	now := func() time.Time { return time.Unix(0, n.now.Load()) }
	n.Recorder = New(Options{Node: "a", Metrics: n.metrics, Now: now})
	n.Recorder.hash = newHasher(1) // so that samples are the same in each run
	observer := n.metrics.Verdict
	if on {
		observer = n.Observer()
	}
	set := gatetest.Rules(t, text)
	n.gate = gatetest.Of(t, n.metrics.Store(store), set, gate.WithObserver(observer), gate.WithLocal(store),
		gate.WithCountObserver(n.Counting))
	n.Recorder.Reserved = n.gate.Reserved
	n.Rules(set)
	n.metrics.Rules(set, n.clock)
	return n
}

// pass lets time pass, in ticks.
func (n *node) pass(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range d / tick {
		n.clock = n.clock.Add(tick)
		n.now.Store(n.clock.UnixNano())
		n.tick(n.clock)
	}
}

// TestRefusalsOfClassesAreCounted: by interval, of the classes that a rule has now.
func TestRefusalsOfClassesAreCounted(t *testing.T) {
	const text = "rules: [{name: r, limit: fixed_window 4/1h, reserve: {by: user, classes: {a: 0%, b: 50%}}}]"
	n := newNode(t, text, true)
	ask := func(user string, times int) {
		for range times {
			if err := n.gate.Decide(t.Context(), &rules.Request{User: user}, gate.Once, new(gate.Verdict)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cut := func() string {
		n.clock = n.clock.Add(time.Second)
		return fmt.Sprint(n.Cut(n.clock).of(t, "r").Classes)
	}
	ask("b", 5)
	ask("a", 3)
	if got := cut(); got != "map[a:1 b:3]" {
		t.Errorf("refused: %s", got)
	}
	ask("b", 2)
	if got := cut(); got != "map[b:2]" {
		t.Errorf("refused then: %s", got)
	}
}
