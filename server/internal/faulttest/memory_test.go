//go:build unix

package faulttest_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

const (
	exhausted = 2000  // limiters with nothing left; every other is asked while memory fills
	flood     = 30000 // new keys, of which a third has room
	askers    = 64
)

// TestMemoryFull fills Redis with new keys, under each policy of eviction, and counts how
// many of the limiters that were exhausted grant again. Those policies that Open does not
// warn of let none of them through.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{
		"noeviction", "volatile-ttl", "volatile-lru", "volatile-lfu", "volatile-random",
		"allkeys-lru", "allkeys-lfu", "allkeys-random",
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			fillMemory(t, policy)
		})
	}
}

func fillMemory(t *testing.T, policy string) {
	server := redistest.Start(t, "--maxmemory-policy", policy)
	var warned atomic.Bool
	patient := redisstore.WithTimeout(10 * time.Second)
	store := open(t, server.URL(), patient)
	limit := weir.MustLimit("hourly", weir.PerHour(20))
	key := func(kind string, i int) weir.Claim {
		return weir.Claim{Key: kind + strconv.Itoa(i), Limit: limit, Cost: 1}
	}
	used := memory(t, server)
	many(exhausted, func(i int) { decide(t, store, key("spent", i), 20) })
	room := (memory(t, server) - used) * flood / exhausted / 3
	server.Do("CONFIG", "SET", "maxmemory", strconv.Itoa(memory(t, server)+room))
	open(t, server.URL(), patient, redisstore.WithWarn(func(string) { warned.Store(true) }))

	var refused atomic.Int64
	many(flood, func(i int) {
		if _, err := store.Decide(context.Background(), []weir.Claim{key("new", i)}, 1, nil); err != nil {
			refused.Add(1) // OOM
		}
		if i%8 == 0 {
			decide(t, store, key("spent", i/8*2%exhausted), 0)
		}
	})
	wrong := make(map[bool]int) // by whether they were asked meanwhile
	for i := range exhausted {
		var left [1]weir.Decision
		if _, err := store.Decide(t.Context(), []weir.Claim{key("spent", i)}, 0, left[:]); err != nil {
			t.Fatal(err)
		}
		if left[0].Remaining > 1 { // one may have come back
			wrong[i%2 == 0]++
		}
	}
	t.Logf("| %s | %d%% | %d%% | %d%% | %s |", policy, wrong[false]*200/exhausted, wrong[true]*200/exhausted,
		refused.Load()*100/flood, map[bool]string{true: "warns", false: "is silent"}[warned.Load()])
	if warned.Load() == (policy == "noeviction" || policy == "volatile-ttl") {
		t.Errorf("Open warns: %v", warned.Load())
	}
	if most := exhausted / 200; !warned.Load() && wrong[true]+wrong[false] > most {
		t.Errorf("%d of %d exhausted limiters grant again, and Open did not warn", wrong[true]+wrong[false], exhausted)
	}
	if warned.Load() && wrong[true]+wrong[false] == 0 {
		t.Error("memory was not filled: no limiter was forgotten")
	}
}

func memory(t *testing.T, server *redistest.Server) int {
	t.Helper()
	n, err := strconv.Atoi(server.Info("memory")["used_memory"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// many does something for each number below n, several at once.
func many(n int, do func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range askers {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wait.Wait()
}

func decide(t *testing.T, store weir.Store, claim weir.Claim, times int64) {
	if _, err := store.Decide(context.Background(), []weir.Claim{claim}, times, nil); err != nil {
		t.Error(err)
	}
}
