package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/rules"
)

// Bounds of a Config.
const (
	maxRunning  = 64
	maxNodes    = 1_000_000
	maxDuration = 24 * time.Hour
	maxRequests = 10_000_000
	maxRate     = 1_000_000
	maxClients  = 1_000_000
	maxLoads    = 16
	maxFaults   = 32
	maxLatency  = time.Minute
	maxZipf     = 5
)

// A Config is a simulation.
type Config struct {
	File    *rules.File
	Options []rules.Option // to compile it

	Running      int              // nodes that run
	Nodes        int              // what they take for the number of nodes, as of weir serve --nodes
	OnStoreError rules.StoreError // of all rules; "": their own
	Prefetch     int              // lease_percent of all rules; −1: their own
	Timeout      time.Duration    // of a call of Redis
	Without      []string         // layers, as of weir serve --without

	Duration time.Duration
	Latency  Latency
	Faults   []Fault
	Loads    []Load
	Sticky   bool // all requests of a client go to one node
	Seed     uint64
}

// A Fault is what goes wrong in [From, To).
type Fault struct {
	Kind     FaultKind
	From, To time.Duration
	Nodes    []int         // that meet it, from 1; nil: all
	By       time.Duration // Slow: added to each round trip
	Share    float64       // Failing: of the calls
	Lose     time.Duration // Down: writes of so long before From are lost at To
}

// FaultKind is the kind of a fault.
type FaultKind string

// The kinds of faults.
const (
	Down    FaultKind = "down"  // connections are refused
	Hang    FaultKind = "hang"  // Redis is frozen: it executes the calls when it goes on
	Cut     FaultKind = "cut"   // nothing passes the network, in either direction
	Slow    FaultKind = "slow"  // round trips take longer
	Failing FaultKind = "error" // calls are answered with an error, and not executed
)

var faultKinds = []FaultKind{Down, Hang, Cut, Slow, Failing}

func wrong(field string, given any, format string, args ...any) error {
	return &weir.InputError{Field: field, Given: given, Allowed: fmt.Sprintf(format, args...)}
}

// Check checks the Config, but for its rules.
func (c *Config) Check() error {
	switch {
	case c.Running > maxRunning && c.Running == c.Nodes:
		return wrong("nodes", c.Nodes, "1 to %d, or another --running", maxRunning)
	case c.Running < 1 || c.Running > maxRunning:
		return wrong("running", c.Running, "1 to %d nodes", maxRunning)
	case c.Nodes < 1 || c.Nodes > maxNodes:
		return wrong("nodes", c.Nodes, "1 to %d", maxNodes)
	case c.Prefetch < -1 || c.Prefetch > bounds.Lease:
		return wrong("prefetch", c.Prefetch, "0 to %d percent", bounds.Lease)
	case c.Timeout < time.Millisecond || c.Timeout > maxLatency:
		return wrong("store-timeout", c.Timeout, "1ms to %v", maxLatency)
	case c.Duration < time.Second || c.Duration > maxDuration:
		return wrong("duration", c.Duration, "1s to %v", maxDuration)
	case c.Latency.P50 < time.Microsecond || c.Latency.P99 < c.Latency.P50 || c.Latency.P99 > maxLatency:
		return wrong("latency", fmt.Sprintf("p50=%v p99=%v", c.Latency.P50, c.Latency.P99),
			"1µs to %v, and a p99 that is not below p50", maxLatency)
	}
	for _, name := range c.Without {
		if !slices.Contains(layers.Names, name) {
			return wrong("without", name, "%s", strings.Join(layers.Names, ", "))
		}
	}
	return cmp.Or(c.checkLoads(), c.checkFaults())
}

func (c *Config) checkLoads() error {
	if len(c.Loads) < 1 || len(c.Loads) > maxLoads {
		return wrong("load", len(c.Loads), "1 to %d loads", maxLoads)
	}
	requests, clients := 0.0, 0
	for i := range c.Loads {
		l := &c.Loads[i]
		requests += c.Duration.Seconds() * l.mean()
		clients += l.Keys
	}
	switch {
	case requests > maxRequests:
		return wrong("load", fmt.Sprintf("%.0f requests in %v", requests, c.Duration),
			"%d requests: a lower rate, or a shorter duration", maxRequests)
	case clients > maxClients:
		return wrong("load", fmt.Sprintf("%d keys", clients), "%d keys, over all loads", maxClients)
	}
	return nil
}

// mean is the rate over a long time.
func (l *Load) mean() float64 {
	if l.Burst == 0 {
		return l.Rate
	}
	return l.Rate * (1 + (l.Burst-1)*l.For.Seconds()/l.Every.Seconds())
}

func (c *Config) checkFaults() error {
	if len(c.Faults) > maxFaults {
		return wrong("fault", len(c.Faults), "up to %d", maxFaults)
	}
	down := time.Duration(0)
	slices.SortStableFunc(c.Faults, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	for _, f := range c.Faults {
		if f.From < 0 || f.To <= f.From || f.To > c.Duration {
			return wrong("fault", fmt.Sprintf("%s %v..%v", f.Kind, f.From, f.To),
				"a time within the duration of %v, whose end is after its beginning", c.Duration)
		}
		for _, n := range f.Nodes {
			if n < 1 || n > c.Running {
				return wrong("fault: nodes", n, "1 to %d, the nodes that run", c.Running)
			}
		}
		if f.Kind == Down {
			if f.From < down {
				return wrong("fault", fmt.Sprintf("%s %v..%v", f.Kind, f.From, f.To),
					"times down that do not overlap")
			}
			down = f.To
		}
	}
	return nil
}

// losses are the times at which Redis forgets.
func (c *Config) losses() (list []loss) {
	for _, f := range c.Faults {
		if f.Kind == Down && f.Lose > 0 {
			list = append(list, loss{since: f.From - f.Lose, at: f.To})
		}
	}
	return list
}
