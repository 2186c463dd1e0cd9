package layers_test

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A simulation runs rules on nodes with the real gate and layers before a simulated Redis, in the computed time of a
// bubble. Requests and faults are determined by its seed, and what came of them is recounted.
type simulation struct {
	rules    string        // YAML; each rule has its on_store_error
	running  int           // nodes that run
	nodes    int           // what they take for the number of nodes; 0: running
	lease    float64       // LeaseShare of all limits
	without  []string      // layers
	timeout  time.Duration // of a call
	duration time.Duration
	latency  latency
	faults   []fault
	loads    []load
	seed     uint64
}

// A load is a stream of requests that does not wait for answers.
type load struct {
	rate  float64 // requests a second on average, at random instants
	keys  int     // number of clients
	zipf  float64 // the nth client sends in proportion to 1/n^zipf
	burst float64 // the rate is so many times as high in the first quarter of every four seconds; 0: always the same
	path  string
	cost  int64 // 0 is 1
}

// An arrival is a request of a load.
type arrival struct {
	at      time.Duration
	request *rules.Request
	cost    int64
	node    int
}

const (
	burstEvery = 4 * time.Second
	burstFor   = time.Second
)

// arrivals draws the requests of a load.
func (s *simulation) arrivals(l *load, random *rand.Rand) (list []arrival) {
	var shares []float64 // running sums
	sum := 0.0
	for n := range l.keys {
		sum += math.Pow(float64(n+1), -l.zipf)
		shares = append(shares, sum)
	}
	for at := l.gap(0, random); at < s.duration; at = l.gap(at, random) {
		client := sort.SearchFloat64s(shares, random.Float64()*shares[l.keys-1])
		list = append(list, arrival{at: at, cost: max(1, l.cost), node: random.IntN(s.running), request: &rules.Request{
			Method: "GET", Path: cmp.Or(l.path, "/"), Client: netip.AddrFrom4([4]byte{10, 0, 0, byte(client + 1)})}})
	}
	return list
}

// gap draws the time of the request after a time, in whole microseconds.
func (l *load) gap(at time.Duration, random *rand.Rand) time.Duration {
	rate := l.rate
	if l.burst > 0 && at%burstEvery < burstFor {
		rate *= l.burst
	}
	return (at + time.Duration(random.ExpFloat64()/rate*float64(time.Second))).Truncate(time.Microsecond)
}

// A node is a process of weir.
type node struct {
	gate  *gate.Gate
	stack *layers.Stack
}

// run simulates.
func (s *simulation) run(t *testing.T) (r *result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { r = s.simulate(t) })
	if r.admitted+r.refused+r.failed != r.requests || r.requests == 0 {
		t.Fatalf("some requests have no outcome: %v", r)
	}
	return r
}

func (s *simulation) simulate(t *testing.T) *result {
	set, err := rules.Load("rules.yaml", []byte(s.rules))
	if err != nil {
		t.Fatal(err)
	}
	n := &network{simulation: s, began: time.Now(), random: rand.New(rand.NewPCG(s.seed, 0)), server: newServer(s.faults)}
	exact, err := gate.New(memstore.New(), set)
	if err != nil {
		t.Fatal(err)
	}
	nodes := n.open(t, set)
	for i := range s.faults {
		time.AfterFunc(s.faults[i].from, n.breakOff)
	}
	var list []arrival
	for i := range s.loads {
		list = append(list, s.arrivals(&s.loads[i], rand.New(rand.NewPCG(s.seed, uint64(i+1))))...)
	}
	slices.SortStableFunc(list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	count := newRecount(s, n.began)
	var under sync.WaitGroup
	for _, a := range list {
		time.Sleep(time.Until(n.began.Add(a.at)))
		ask := gate.Ask{Times: 1, Cost: &a.cost}
		count.offered(t, exact, a.request, ask)
		under.Go(func() { count.decide(t, nodes[a.node].gate, a.request, ask) })
	}
	under.Wait()
	count.finish()
	for _, one := range nodes {
		stats := one.stack.Stats()
		count.result.opened += stats.Opened
		count.result.recalled += stats.Recalled
		count.result.prefetched += stats.LeaseTaken
	}
	count.result.calls = n.calls.Load()
	for _, one := range nodes {
		one.stack.Store.Close()
	}
	return &count.result
}

// open makes the nodes, as package engine does.
func (n *network) open(t *testing.T, set *rules.Set) (nodes []*node) {
	terms := make(map[string]layers.Terms)
	for _, rule := range set.Rules() {
		for _, limit := range rule.Limits() {
			terms[limit.Name()] = layers.Terms{Local: rule.OnStoreError() == rules.Local, LeaseShare: n.lease}
		}
	}
	for i := range n.running {
		w := &wire{n, i + 1}
		u := &subscription{wire: w}
		n.members = append(n.members, u)
		stack, err := layers.New(w, layers.Options{
			Local: memstore.New(), Nodes: cmp.Or(n.nodes, n.running), Bounds: memstore.New(memstore.WithoutOverflow()),
			Terms: func(l *weir.Limit) layers.Terms { return terms[l.Name()] }, Updates: u, Without: n.without,
		})
		if err != nil {
			t.Fatal(err)
		}
		g, err := gate.New(stack.Store, set, gate.WithLocal(stack.Local), gate.WithBudget(n.timeout))
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, &node{g, stack})
	}
	return nodes
}

// offered counts a request, and has one exact limiter decide it that knows no latency and no fault.
func (c *recount) offered(t *testing.T, exact *gate.Gate, request *rules.Request, ask gate.Ask) {
	var v gate.Verdict
	if err := exact.Decide(context.Background(), request, ask, &v); err != nil {
		t.Error(err)
	}
	c.result.requests++
	c.second(time.Since(c.began)).offered++
	if v.Outcome == gate.Passed {
		c.result.exact++
	}
}

// decide has a node decide a request.
func (c *recount) decide(t *testing.T, g *gate.Gate, request *rules.Request, ask gate.Ask) {
	arrived := time.Now()
	var v gate.Verdict
	if err := g.Decide(context.Background(), request, ask, &v); err != nil {
		t.Error(err)
	}
	c.add(&v, arrived)
}
