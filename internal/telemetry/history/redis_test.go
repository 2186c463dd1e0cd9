//go:build unix

package history

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/redisstore"
)

// A clock is set by a test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// A node is one of several on a Redis, without goroutines of its own: a test cuts and shares.
type node struct {
	*History
	recorder *script
	clock    *clock
}

var _ Register = gate.Register(nil)

// nodesOn makes nodes whose clock is the real one, in the middle of an interval.
func nodesOn(t testing.TB, url string, n int) (list []*node) {
	t.Helper()
	c := &clock{now: time.Now().Truncate(time.Minute).Add(5 * time.Second)}
	for i := range n {
		list = append(list, nodeOn(t, url, fmt.Sprint("node-", i), c))
	}
	return list
}

func nodeOn(t testing.TB, url, name string, c *clock) *node {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url, redisstore.WithTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	r := &script{at: c.now}
	config := configOf(t, name, r)
	config.Redis, config.Register = url, store
	h, err := open(config, c.read)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		store.Close()
	})
	return &node{h, r, c}
}

// pass lets time pass, in which each node cuts and shares every ten seconds.
func pass(t testing.TB, nodes []*node, lasts time.Duration) {
	t.Helper()
	for range lasts / interval {
		c := nodes[0].clock
		c.mu.Lock()
		c.now = c.now.Add(interval)
		c.mu.Unlock()
		for _, n := range nodes {
			n.cut(c.read())
			n.share(t.Context())
		}
	}
}

func names(nodes []telemetry.Node) (list []string) {
	for i := range nodes {
		list = append(list, nodes[i].Name)
	}
	return list
}

// sumsAgree lets nodes count for minutes, and compares what each reports of all and of each with what was counted.
func sumsAgree(t *testing.T, url string) []*node {
	nodes := nodesOn(t, url, 3)
	want := uint64(0)
	for minute := range 20 {
		for i, n := range nodes {
			passed := uint64(1 + minute*i)
			want += passed
			n.recorder.count("login", passed, 1, telemetry.KeyRate{Key: "203.0.113.7", Passed: passed, Refused: 1})
		}
		pass(t, nodes, time.Minute)
		if o := overview(t, nodes[minute%3].History, telemetry.Query{}); o.Total.Passed != want ||
			o.Total.Refused != uint64(3*(minute+1)) {
			t.Fatalf("minute %d: %+v, want %d passed", minute, o.Total, want)
		}
	}
	for _, n := range nodes {
		o := overview(t, n.History, telemetry.Query{})
		if got := fmt.Sprint(names(o.Nodes)); got != "[node-0 node-1 node-2]" || o.Rules[0].WorstKey.Refused != 60 {
			t.Errorf("%s, %+v", got, o.Rules[0].WorstKey)
		}
		one := overview(t, n.History, telemetry.Query{Node: "node-1"})
		if one.Total.Passed != 20+19*20/2 {
			t.Errorf("node-1 as %s sees it: %+v", n.Name, one.Total)
		}
		long := overview(t, n.History, telemetry.Query{From: n.now().Add(-20 * time.Hour)})
		if long.Total != o.Total || long.Rules[0].WorstKey.Refused != 60 || long.Step != ten {
			t.Errorf("%s in steps of ten minutes: %+v", n.Name, long.Total)
		}
		if report, err := n.Rule(t.Context(), "login", telemetry.Query{}); err != nil || report.Counts.Passed != want {
			t.Errorf("%+v, %v", report, err)
		}
	}
	return nodes
}

func TestSumsOverNodes(t *testing.T) {
	server := redistest.Start(t)
	nodes := sumsAgree(t, server.URL())
	fresh := nodeOn(t, server.URL(), "node-3", nodes[0].clock) // it has nothing in memory
	before := overview(t, nodes[0].History, telemetry.Query{From: fresh.now().Add(-20 * time.Hour)})
	if o := overview(t, fresh.History, telemetry.Query{From: fresh.now().Add(-20 * time.Hour)}); o.Total != before.Total {
		t.Errorf("a new node sees %+v of %+v", o.Total, before.Total)
	}
	if marks, err := fresh.Marks(t.Context(), telemetry.Query{}); err != nil || len(marks) != 4 {
		t.Errorf("starts of nodes: %+v, %v", marks, err)
	}
	key := keyPrefix + slotOf(minute, fresh.now().Add(-5*time.Minute)).String()
	if ttl, ok := server.Do("TTL", key).(int64); !ok || ttl < 3*3600 || ttl > 5*3600 {
		t.Errorf("a minute expires after %d s", ttl)
	}
	server.Do("HSET", key, nodes[0].id, "nonsense")
	clear(fresh.shared.slots)
	if o := overview(t, fresh.History, telemetry.Query{}); o.Total.Passed >= before.Total.Passed ||
		o.Total.Passed == 0 || fresh.Failures() == 0 {
		t.Errorf("a malformed minute: %+v, %d failures", o.Total, fresh.Failures())
	}
}

func TestSumsOverNodesOfACluster(t *testing.T) { sumsAgree(t, redistest.StartCluster(t, 3, 0).URL()) }

func TestSumsOverNodesBehindSentinel(t *testing.T) { sumsAgree(t, redistest.StartSentinel(t).URL()) }

// TestADeadNodeLeavesTheList within 30 seconds, and its history stays. One that stops says so at once.
func TestADeadNodeLeavesTheList(t *testing.T) {
	server := redistest.Start(t)
	nodes := nodesOn(t, server.URL(), 3)
	nodes[0].recorder.count("login", 7, 0)
	pass(t, nodes, time.Minute)
	if err := nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(names(overview(t, nodes[2].History, telemetry.Query{}).Nodes)); got != "[node-0 node-2]" {
		t.Errorf("after a stop: %s", got)
	}
	if ttl, ok := server.Do("PTTL", "weir:register:{nodes}").(int64); !ok || ttl > 30_000 {
		t.Errorf("a dead node is listed for %d ms", ttl)
	}
	server.Do("DEL", "weir:register:{nodes}") // as if that time were over
	pass(t, nodes[2:], time.Minute)
	o := overview(t, nodes[2].History, telemetry.Query{})
	if got := fmt.Sprint(names(o.Nodes)); got != "[node-2]" || o.Total.Passed != 7 {
		t.Errorf("%s, %+v", got, o.Total)
	}
}

// TestRedisThatIsDown: this node's history still answers, and says what is missing; when Redis is back, what was
// counted meanwhile is written.
func TestRedisThatIsDown(t *testing.T) {
	server := redistest.Start(t)
	nodes := nodesOn(t, server.URL(), 2)
	for i := range 3 {
		nodes[i%2].recorder.count("login", 1, 0)
		pass(t, nodes, time.Minute)
	}
	long := telemetry.Query{From: nodes[1].now().Add(-20 * time.Hour)}
	if o := overview(t, nodes[1].History, long); o.Total.Passed != 3 {
		t.Errorf("%+v", o.Total)
	}
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for range 3 {
		nodes[0].recorder.count("login", 10, 0)
		for range 6 {
			nodes[0].clock.now = nodes[0].clock.now.Add(interval)
			nodes[0].cut(nodes[0].now())
		}
	}
	nodes[0].share(ctx)
	o := overview(t, nodes[0].History, telemetry.Query{})
	if o.Total.Passed != 32 || len(o.Nodes) != 1 || len(o.Nodes[0].Problems) != 1 || nodes[0].Failures() == 0 {
		t.Errorf("without Redis: %+v, %+v", o.Total, o.Nodes)
	}
	server.Restart() // it has lost everything
	redistest.Await(t, "the connections to be back", func() bool {
		pass(t, nodes, time.Minute)
		return len(overview(t, nodes[1].History, telemetry.Query{}).Nodes) == 2
	})
	pass(t, nodes, rereadAfter+time.Minute) // until then it may have read them before they were written again
	if o := overview(t, nodes[1].History, telemetry.Query{}); o.Total.Passed != 33 {
		t.Errorf("the other node sees %+v", o.Total)
	}
	nodes[0].recorder.count("login", 5, 0)
	pass(t, nodes, time.Minute)
	for _, ago := range []time.Duration{time.Hour, 20 * time.Hour} {
		o := overview(t, nodes[1].History, telemetry.Query{From: nodes[1].now().Add(-ago)})
		if o.Total.Passed != 38 {
			t.Errorf("after the outage the other node sees %+v in %v", o.Total, ago)
		}
	}
}

// TestSeed is the same for all nodes.
func TestSeed(t *testing.T) {
	server := redistest.Start(t)
	first, err := Seed(t.Context(), server.URL())
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	if second, err := Seed(t.Context(), server.URL()); second != first || err != nil {
		t.Errorf("%d and %d, %v", first, second, err)
	}
	server.Kill()
	if seed, err := Seed(t.Context(), server.URL()); err == nil {
		t.Errorf("without Redis: %d", seed)
	}
}

// TestMinuteThatGrows is read again, until its node has a later one.
func TestMinuteThatGrows(t *testing.T) {
	server := redistest.Start(t)
	nodes := nodesOn(t, server.URL(), 2)
	for want := uint64(1); want <= 8; want++ {
		nodes[0].recorder.count("login", 1, 0)
		pass(t, nodes, interval)
		if o := overview(t, nodes[1].History, telemetry.Query{}); o.Total.Passed != want {
			t.Fatalf("%+v; want %d", o.Total, want)
		}
	}
}

// TestDocumentsThatAreLate, because their node had no Redis, are in the reports of the others after a while.
func TestDocumentsThatAreLate(t *testing.T) {
	server := redistest.Start(t)
	nodes := nodesOn(t, server.URL(), 2)
	pass(t, nodes, time.Minute)
	for range 20 { // of which the first node shares nothing
		nodes[0].recorder.count("login", 1, 0)
		pass(t, nodes[1:], time.Minute)
		nodes[0].cut(nodes[0].now())
	}
	long := telemetry.Query{From: nodes[1].now().Add(-20 * time.Hour)}
	if o := overview(t, nodes[1].History, long); o.Total.Passed != 0 {
		t.Errorf("%+v", o.Total)
	}
	pass(t, nodes, rereadAfter)
	if o := overview(t, nodes[1].History, long); o.Total.Passed != 20 {
		t.Errorf("%+v", o.Total)
	}
}
