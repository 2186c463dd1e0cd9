package simulate

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/rules"
)

// A frozen Redis on a machine with other work to do decides by the clock on the wall, so that its figures are compared
// only where somebody asks for it.
var real = flag.Bool("real", false, "compare a simulation with three engines and a Redis that is frozen")

// A real run has the figures that a simulation is compared with.
type figures struct{ requests, admitted, refused, degraded int64 }

// TestRealRedis compares a simulation with three engines before a Redis that is stopped for four of twelve seconds.
//
//	go test ./internal/simulate -run TestRealRedis -v -args -real
func TestRealRedis(t *testing.T) {
	if !*real {
		return
	}
	// Each node takes half a limit for its share, and there are three: an outage admits half as much again.
	const text = "nodes: 2\nrules:\n  - {name: site, key: [client.ip], limit: fixed_window 30/1s epoch}\n"
	c := config(t, text, loads(t, "rate=600 keys=4"), faults(t, "hang 4s..8s"), func(c *Config) {
		c.Nodes, c.Duration, c.Timeout = 2, 12*time.Second, 200*time.Millisecond
	})
	s := simulate(t, c)
	want := figures{s.Requests, s.Admitted, s.Refused, s.Degraded}
	got := outage(t, text, c)
	t.Logf("simulated %+v, real %+v", want, got)
	near := func(what string, got, want int64, tolerance float64) {
		if off := float64(got-want) / float64(want); off < -tolerance || off > tolerance {
			t.Errorf("%s: real %d, simulated %d: %+.1f%%, and %.0f%% are allowed", what, got, want, 100*off, 100*tolerance)
		}
	}
	near("requests", got.requests, want.requests, 0.05)
	near("admitted", got.admitted, want.admitted, 0.1)
	near("refused", got.refused, want.refused, 0.1)
	near("degraded", got.degraded, want.degraded, 0.15)
	// The comparison tells the share of a wrong number of nodes.
	c.Nodes = 3
	if other := simulate(t, c); other.Admitted > want.admitted*90/100 {
		t.Errorf("three nodes admit %d, and two %d: the comparison shows little", other.Admitted, want.admitted)
	}
}

// outage runs three engines before a Redis, with the requests and the fault of a simulation.
func outage(t *testing.T, text string, c *Config) (f figures) {
	redis := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var gates []*gate.Gate
	for range c.Running {
		e, err := engine.Open(t.Context(), engine.Config{Rules: file, Store: redis.URL(), Timeout: c.Timeout,
			Ledger: "none", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		gates = append(gates, e.Gate())
	}
	var requests, admitted, refused, degraded atomic.Int64
	var all sync.WaitGroup
	chance := rand.New(rand.NewPCG(1, 1))
	begin := time.Now().Truncate(time.Second).Add(time.Second) // at the edge of a window
	time.Sleep(time.Until(begin))
	all.Go(func() {
		time.Sleep(time.Until(begin.Add(c.Faults[0].From)))
		redis.Stop()
		time.Sleep(time.Until(begin.Add(c.Faults[0].To)))
		redis.Cont()
	})
	gap := time.Duration(float64(time.Second) / c.Loads[0].Rate)
	for next := begin; next.Before(begin.Add(c.Duration)); next = next.Add(time.Duration(chance.ExpFloat64() * float64(gap))) {
		time.Sleep(time.Until(next))
		to := gates[chance.IntN(len(gates))]
		client := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + chance.IntN(c.Loads[0].Keys))})
		all.Go(func() {
			var v gate.Verdict
			if err := to.Decide(context.Background(), &rules.Request{Path: "/", Client: client}, gate.Once, &v); err != nil {
				t.Error(err)
			}
			requests.Add(1)
			if v.Degraded() {
				degraded.Add(1)
			}
			if v.Outcome == gate.Passed {
				admitted.Add(1)
			} else {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	return figures{requests.Load(), admitted.Load(), refused.Load(), degraded.Load()}
}
