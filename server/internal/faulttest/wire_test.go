//go:build unix

package faulttest_test

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/faulttest"
)

// A toxic is what toxiproxy does to a connection, once on the way to Redis and once on the
// way back: a call of which only the answer is lost was executed.
type toxic struct {
	name       string
	kind       string
	attributes string
	unnoticed  bool
}

var wireToxics = []toxic{
	{"LatencyWithinBudget", "latency", `{"latency": 15, "jitter": 10}`, true},
	{"LatencyBeyondBudget", "latency", `{"latency": 200, "jitter": 100}`, false},
	{"Bandwidth", "bandwidth", `{"rate": 1}`, false},
	{"Reset", "reset_peer", `{"timeout": 5}`, false},
	{"Blackhole", "timeout", `{"timeout": 0}`, false},
	{"BlackholeThenClosed", "timeout", `{"timeout": 300}`, false},
	{"SlowClose", "slow_close", `{"delay": 500}`, true},
	{"Sliced", "slicer", `{"average_size": 16, "size_variation": 8, "delay": 10}`, true},
	{"CutOff", "limit_data", `{"bytes": 1000}`, false},
}

func TestWire(t *testing.T) {
	t.Parallel()
	for _, x := range wireToxics {
		for _, direction := range []string{"upstream", "downstream"} {
			t.Run(x.name+"/"+direction, func(t *testing.T) {
				each(t, func(t *testing.T, s stack) { poison(t, s, x, direction) })
			})
		}
	}
}

func poison(t *testing.T, s stack, x toxic, direction string) {
	server := redistest.Start(t)
	proxy := startProxy(t, redistest.FreeAddr(t), server.Addr())
	try(t, s, "redis://"+proxy.Listen, server.URL(), faulttest.Trial{
		Rate: 2000, Unnoticed: x.unnoticed,
		Strike: func(load *faulttest.Load) {
			apart(func() { addToxic(t, proxy, x, direction) })
			if x.unnoticed {
				asked := load.Report().Asked
				redistest.Await(t, "load", func() bool { return load.Report().Asked > asked+500 })
			}
		},
		Mend: func() {
			apart(func() {
				proxy.Stop()
				proxy = startProxy(t, proxy.Listen, server.Addr())
			})
		},
	})
}

func addToxic(t *testing.T, proxy *toxiproxy.Proxy, x toxic, direction string) {
	text := fmt.Sprintf(`{"name": "x", "type": %q, "stream": %q, "attributes": %s}`, x.kind, direction, x.attributes)
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		t.Error(err)
	}
}

// apart runs what starts goroutines that are not the trial's: toxiproxy's do not all end.
func apart(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.SetGoroutineLabels(context.Background())
		do()
	}()
	<-done
}

// startProxy starts a proxy without toxics. A poisoned one is replaced by such: taking a
// toxic away waits for five seconds for each packet of a connection that is gone.
func startProxy(t *testing.T, address, upstream string) *toxiproxy.Proxy {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics write to a logger of their own
	metrics := toxiproxy.NewMetricsContainer(prometheus.NewRegistry())
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(metrics, zerolog.Nop()), "redis", address, upstream)
	// A process that is being started has a copy of the listener that was just closed, until
	// it runs a program of its own: the address is in use for that long.
	var err error
	for range 100 {
		if err = proxy.Start(); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy
}
