package api_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// Reservations and leases of several nodes on Redis, and on a Cluster, where the reservation
// lies in another slot than what it reserves.
func TestNodesShareLimitsOnRedis(t *testing.T) {
	for name, open := range map[string]func() string{
		"one server": func() string { return redistest.Start(t).URL() },
		"a cluster":  func() string { return redistest.StartCluster(t, 3, 0).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			url := open()
			var nodes [3]*server
			for i := range nodes {
				store, err := redisstore.Open(context.Background(), url,
					redisstore.WithTimeout(10*time.Second)) // tests share a busy machine
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				nodes[i] = serve(t, handler(t, store, tokenRules))
			}
			onNodes(t, nodes)
		})
	}
}

func onNodes(t *testing.T, nodes [3]*server) {
	const estimate = `{"claims":[{"name":"tokens","limit":"fixed_window 1000/1h","key":"user=1:u","cost":500},` +
		`{"name":"all","limit":"10000/1h","key":"all","cost":500}]}`
	a := nodes[0].post("/v1/reserve", estimate)
	a.has(t, 200, "allowed", true, "name", "tokens", "checks.2", nil)
	var settled atomic.Int64
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			if nodes[i%3].post("/v1/settle", settle(a.at("reservation.token"), 100)).status == 200 {
				settled.Add(1)
			}
		})
	}
	group.Wait()
	if settled.Load() != 1 || nodes[1].tokens("u") != 900 {
		t.Errorf("settled %d times, %d are left of 1000", settled.Load(), nodes[1].tokens("u"))
	}
	held := nodes[0].post("/v1/acquire", `{"request":{"path":"/chat","user":"v"}}`)
	nodes[1].post("/v1/renew", tokenOf(held.at("lease.token"))).has(t, 200)
	nodes[2].post("/v1/release", tokenOf(held.at("lease.token"))).has(t, 200)
	nodes[0].post("/v1/renew", tokenOf(held.at("lease.token"))).has(t, 409)
	nodes[1].post("/v1/reset", `{"request":{"path":"/chat","user":"v"}}`).has(t, 200)
	nodes[2].post("/v1/peek", `{"request":{"path":"/chat","user":"v"}}`).has(t, 200, "checks.0.remaining", 1000)
}

// TestBatchUsesFewRedisCalls: the requests of a batch go to the store together, and those of one key are
// decided in their order.
func TestBatchUsesFewRedisCalls(t *testing.T) {
	redis := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), redis.URL(), redisstore.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := serve(t, handler(t, store, "rules: [{name: user, key: [user], limit: 3/1h}, {name: tried, key: [user], "+
		"mode: shadow, limit: 9/1h}]"))
	body := func(users int) string {
		var list []string
		for i := range 100 {
			list = append(list, fmt.Sprintf(`{"request":{"user":"u%d"}}`, i%users))
		}
		return `{"requests":[` + strings.Join(list, ",") + `]}`
	}
	calls := func() int {
		_, rest, _ := strings.Cut(redis.Info("commandstats")["cmdstat_evalsha"], "calls=")
		number, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(number)
		return n
	}
	s.post("/v1/decide", body(100)).has(t, 200) // loads the scripts
	before := calls()
	s.post("/v1/decide", body(100)).has(t, 200, "answers.9.allowed", true, "answers.0.remaining", 1)
	if got := calls() - before; got > 4 { // 64 keys each, for the rule and for the shadow rule
		t.Errorf("a batch of 100 takes %d calls of Redis, want at most 4", got)
	}
	s.post("/v1/decide", body(2)).has(t, 200, "answers.0.remaining", 0, "answers.1.allowed", true,
		"answers.2.allowed", false, "answers.9.allowed", false)
	one := s.post("/v1/decide", `{"requests":[{"request":{"user":"o"}},{"request":{"user":"o"}},`+
		`{"request":{"user":"o"}},{"request":{"user":"o"}}]}`)
	one.has(t, 200, "answers.0.remaining", 2, "answers.1.remaining", 1, "answers.2.remaining", 0, "answers.3.allowed",
		false)
}
