package telemetry

import (
	"fmt"
	"net/netip"
	"slices"
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
	n.gate = gatetest.Of(t, n.metrics.Store(store), set, gate.WithObserver(observer), gate.WithLocal(store))
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

// BenchmarkCost compares decisions with and without a recorder, in turns of a few milliseconds, by their fastest
// turns: another process on the machine slows some turns down, and none up.
func BenchmarkCost(b *testing.B) {
	const turn = 5000
	for _, c := range []struct {
		keys  int
		limit string
	}{{1, "1000000000/1s"}, {250, "1000000000/1s"}, {100_000, "1000000000/1s"}, {1, "1/1s"}} {
		keys := c.keys
		b.Run(fmt.Sprint(keys, " keys, ", c.limit), func(b *testing.B) {
			requests := make([]rules.Request, keys)
			for i := range requests {
				requests[i].Client = netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			}
			var fastest [2][]time.Duration
			var nodes [2]*node
			for on := range nodes {
				nodes[on] = newNode(b, `rules: [{name: ip, key: [client.ip], limit: `+c.limit+`}]`, on == 1)
			}
			r := nodes[1].Recorder
			r.Now = time.Now
			go r.Run(b.Context())
			var v gate.Verdict
			for b.Loop() {
				for on, n := range nodes {
					began := time.Now()
					for i := range turn {
						if err := n.gate.Decide(b.Context(), &requests[i*7919%keys], gate.Once, &v); err != nil {
							b.Fatal(err)
						}
					}
					fastest[on] = append(fastest[on], time.Since(began))
				}
			}
			var took [2]float64
			for on, list := range fastest {
				slices.Sort(list)
				took[on] = float64(list[len(list)/10]) / turn
			}
			b.ReportMetric(took[0], "off-ns")
			b.ReportMetric(took[1], "on-ns")
			b.ReportMetric(100*(took[1]/took[0]-1), "%")
		})
	}
}
