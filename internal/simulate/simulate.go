// Package simulate runs rules on nodes that share a Redis, in computed time: it says what each on_store_error, number
// of nodes, prefetch and timeout does to the requests while Redis is slow, gone or forgetful.
//
// The gate and the layers are those of a server, unchanged; they take their time from a scheduler that runs one
// goroutine at a time. Simulated are the Redis, as weir's embedded store behind one thread, the network, and the
// requests. The outcomes are recounted by arithmetic of its own. A run is determined by its Config.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/clock"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// maxKeys is room for all keys of a run, so that the simulated stores never drop one.
const maxKeys = 1 << 23

// drain is the time after the last request in which nodes finish what is under way.
const drain = 5 * time.Second

// epoch is when a simulation begins: a midnight, which matters to calendars and schedules.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A run is a simulation under way.
type run struct {
	network
	config  *Config
	nodes   []*node
	exact   *gate.Gate // decides each request at once, in one place
	recount recount
	flights []*flight // under way, by arrival
	result  *Result
	failed  error // the first error that is the caller's
	tick    func()
}

// A node is a process of weir.
type node struct {
	gate  *gate.Gate
	stack *layers.Stack
}

// A flight is a request under way.
type flight struct {
	arrival time.Duration
	over    bool
}

// Run simulates. tick, if not nil, is called after each request. The error is of the Config or of its rules, such as a
// cost that no limit takes, or the context's.
func (c *Config) Run(ctx context.Context, tick func()) (*Result, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	set, err := c.set()
	if err != nil {
		return nil, err
	}
	r := &run{config: c, tick: tick, result: newResult(c, set)}
	r.recount = recount{result: r.result, states: make(map[stateKey]*state)}
	r.network = network{
		scheduler: newScheduler(epoch, c.Seed), server: newServer(c.losses()), faults: c.Faults, latency: c.Latency,
		timeout: c.Timeout, random: rand.New(rand.NewPCG(c.Seed, 2)),
	}
	defer r.stop()
	if err := r.build(set); err != nil {
		return nil, err
	}
	for i := range c.Faults {
		r.at(c.Faults[i].From, r.breakOff)
	}
	for i := range c.Loads {
		r.schedule(ctx, newSource(&c.Loads[i], c.Seed, uint64(i)))
	}
	r.at(c.Duration+drain, func() { r.Go(r.close) })
	r.scheduler.run()
	if r.failed != nil {
		return nil, r.failed
	}
	r.recount.flush(r.now + drain)
	r.finish()
	return r.result, ctx.Err()
}

func (r *run) wall() time.Time { return r.Now() }

func (r *run) instant() weir.Instant { return weir.Instant(r.Now().UnixMicro()) }

func (r *run) memory(options ...memstore.Option) *memstore.Store {
	return memstore.New(append(options, memstore.WithMaxKeys(maxKeys), memstore.WithClock(r.instant))...)
}

// build makes the nodes, as package engine does.
func (r *run) build(set *rules.Set) (err error) {
	exact := r.memory()
	if r.exact, err = gate.New(exact, set, gate.WithLocal(exact), gate.WithClock(r.wall)); err != nil {
		return err
	}
	terms := r.config.terms(set)
	driven := clock.Clock{Driver: r.scheduler}
	for i := range r.config.Running {
		w := &wire{network: &r.network, node: i + 1}
		u := &updates{wire: w}
		r.members = append(r.members, u)
		n := new(node)
		n.stack, err = layers.New(w, layers.Options{
			Local: r.memory(), Nodes: r.config.Nodes, Bounds: r.memory(memstore.WithoutOverflow()),
			Terms:   func(l *weir.Limit) layers.Terms { return terms[l.Name()] },
			Updates: u, Without: r.config.Without, Clock: driven,
		})
		if err != nil {
			return err
		}
		n.gate, err = gate.New(n.stack.Store, set, gate.WithLocal(n.stack.Local), gate.WithBudget(r.config.Timeout),
			gate.WithClock(r.wall), gate.WithDriver(driven))
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	return nil
}

// terms are those of the rules, with the prefetch of the Config where it can apply.
func (c *Config) terms(set *rules.Set) map[string]layers.Terms {
	terms := engine.Terms(set)
	for _, rule := range set.Rules() {
		if c.Prefetch < 0 || rule.Bans() != nil || rule.HasCountIf() {
			continue
		}
		for _, limit := range rule.Limits() {
			t := terms[limit.Name()]
			t.LeaseShare = float64(c.Prefetch) / 100
			terms[limit.Name()] = t
		}
	}
	return terms
}

// schedule issues the next request of a source, and those after it.
func (r *run) schedule(ctx context.Context, s *source) {
	if s.next >= r.config.Duration || r.failed != nil || ctx.Err() != nil {
		return
	}
	r.at(s.next, func() {
		r.issue(s)
		s.advance()
		r.schedule(ctx, s)
	})
}

// issue sends a request to a node.
func (r *run) issue(s *source) {
	client := s.client()
	request, ask := s.request(client), gate.Ask{Times: 1, Cost: s.Cost}
	to := client % len(r.nodes)
	if !r.config.Sticky {
		to = s.random.IntN(len(r.nodes))
	}
	second := r.result.second(r.now)
	second.Offered++
	var v gate.Verdict
	if err := r.exact.Decide(context.Background(), request, ask, &v); err != nil {
		r.fail(err)
		return
	}
	if v.Outcome == gate.Passed {
		second.Exact++
	}
	f := &flight{arrival: r.now}
	r.flights = append(r.flights, f)
	r.Go(func() { r.decide(r.nodes[to], f, request, ask) })
	if r.tick != nil {
		r.tick()
	}
}

func (r *run) fail(err error) { r.failed = cmp.Or(r.failed, err) }

// decide has a node decide a request.
func (r *run) decide(n *node, f *flight, request *rules.Request, ask gate.Ask) {
	var v gate.Verdict
	if err := n.gate.Decide(context.Background(), request, ask, &v); err != nil {
		r.fail(err)
	}
	r.result.latencies[r.now-f.arrival]++
	r.recount.add(&v, r.instant(), weir.Instant(epoch.Add(f.arrival).UnixMicro()))
	f.over = true
	ended := 0
	for ended < len(r.flights) && r.flights[ended].over {
		ended++
	}
	if r.flights = r.flights[ended:]; len(r.flights) == 0 {
		r.recount.flush(r.now - leaseTime)
	} else {
		r.recount.flush(r.flights[0].arrival - leaseTime)
	}
}

// close ends the nodes.
func (r *run) close() {
	for _, n := range r.nodes {
		stats := n.stack.Stats()
		r.result.BreakerOpened += stats.Opened
		r.result.Recalled += stats.Recalled
		r.result.Prefetched += stats.LeaseTaken
		r.result.StoreCalls = r.calls
		n.stack.Store.Close()
	}
}

// set compiles the rules with the on_store_error of the Config.
func (c *Config) set() (*rules.Set, error) {
	file := *c.File
	file.Rules = slices.Clone(file.Rules)
	for i := range file.Rules {
		if c.OnStoreError != "" {
			file.Rules[i].OnStoreError = c.OnStoreError
		}
	}
	set, err := rules.Compile(&file, c.Options...)
	if err != nil {
		return nil, err
	}
	var enforced bool
	for _, rule := range set.Rules() {
		enforced = enforced || rule.Enabled() && rule.Mode() == rules.Enforce
		for _, limit := range rule.Limits() {
			if err := simulated(rule, limit); err != nil {
				return nil, err
			}
		}
	}
	if !enforced {
		return nil, errors.New("no rule is enforced, so there is nothing to simulate")
	}
	return set, nil
}

// simulated is an error for limits that are not.
func simulated(rule *rules.Rule, limit *weir.Limit) error {
	if limit.Algorithm() == weir.AlgorithmConcurrency {
		return fmt.Errorf("rule %q has the concurrency limit %s, and requests have no length here: leave it out, or "+
			"set enabled: false", rule.Name(), limit)
	}
	if spec, ok := limit.Spec().(weir.TokenBucket); ok && tooFine(spec) {
		return fmt.Errorf("rule %q has the limit %s, which is too large to recount; allowed: capacity × period of up "+
			"to 2^60 units × µs", rule.Name(), limit)
	}
	return nil
}
