package recall_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

func openRedis(t testing.TB, url string, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url,
		append(opts, redisstore.WithTimeout(time.Minute), redisstore.WithWarn(nil))...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// onRedis returns a node over a Redis, with Updates.
func onRedis(t testing.TB, url string, opts ...recall.Option) *recall.Store {
	t.Helper()
	updates, err := redisstore.NewUpdates(url, redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { updates.Close() }) // after the layer, which is opened later
	layer := over(t, openRedis(t, url), append(opts, recall.WithUpdates(updates), recall.WithWarn(nil))...)
	redistest.Await(t, "the subscription", func() bool { return layer.Stats().Listening })
	return layer
}

func TestVectorsOnRedis(t *testing.T) {
	url := redistest.Start(t).URL()
	storetest.Vectors(t, func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		below := openRedis(t, url, redisstore.WithClock(clock), redisstore.WithPrefix(weir.NewLeaseID()+":"))
		return storetest.Handle{Store: over(t, below, driven(steady(clock))...), Recalls: true}
	})
}

// A refund on one node lets the next request on the other one pass.
func TestRefundFreesTheKeyOnOtherNodes(t *testing.T) {
	url := redistest.Start(t).URL()
	a, b := onRedis(t, url), onRedis(t, url)
	c := claim(weir.PerHour(1), 1)
	d := make([]weir.Decision, 1)
	for range 20 {
		if granted, err := a.Decide(t.Context(), []weir.Claim{c}, 1, d); granted != 1 || err != nil {
			t.Fatalf("granted %d (%v)", granted, err)
		}
		takes(t, b, 0, c)
		if b.Kept() == 0 {
			t.Fatal("nothing was learned")
		}
		if err := a.Refund(t.Context(), []weir.Claim{c}, d[0].At, nil); err != nil {
			t.Fatal(err)
		}
		redistest.Await(t, "the update", func() bool { return b.Kept() == 0 })
		takes(t, b, 1, c)
		if err := b.Reset(t.Context(), []weir.Claim{c}); err != nil {
			t.Fatal(err)
		}
		redistest.Await(t, "the update", func() bool { return a.Kept() == 0 })
	}
}

// A node that loses its subscription forgets, and subscribes again.
func TestLostSubscriptionForgetsEverything(t *testing.T) {
	server := redistest.Start(t)
	a, b := onRedis(t, server.URL()), onRedis(t, server.URL())
	c := claim(weir.PerHour(1), 1)
	takes(t, a, 1, c)
	takes(t, b, 0, c)
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	redistest.Await(t, "both to forget", func() bool { return a.Kept() == 0 && b.Kept() == 0 })
	redistest.Await(t, "both to listen", func() bool { return a.Stats().Listening && b.Stats().Listening })
	takes(t, b, 0, c)
	if err := a.Reset(t.Context(), []weir.Claim{c}); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the update", func() bool { return b.Kept() == 0 })
}

// A clock that is stepped, as by a failover, is believed again after WithLongest at most.
func TestRedisClockStep(t *testing.T) {
	var now, steady atomic.Int64
	now.Store(1_790_000_000_000_000)
	below := openRedis(t, redistest.Start(t).URL(),
		redisstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) }))
	layer := over(t, below, recall.WithClock(func() time.Duration { return time.Duration(steady.Load()) }),
		recall.WithLongest(time.Second))
	c := claim(weir.PerHour(1), 1)
	takes(t, layer, 1, c)
	now.Add(2 * time.Hour.Microseconds()) // forward: the store grants, and nobody was told
	takes(t, layer, 0, c)
	steady.Add(int64(time.Second))
	takes(t, layer, 1, c)
	now.Add(-time.Hour.Microseconds()) // back: nothing is granted twice
	takes(t, layer, 0, c)
	steady.Add(int64(time.Second))
	takes(t, layer, 0, c)
}

func TestRefusalsAreAnsweredDuringAnOutage(t *testing.T) {
	server := redistest.Start(t)
	layer := over(t, openRedis(t, server.URL()))
	c := claim(weir.PerHour(1), 1)
	takes(t, layer, 1, c)
	server.Kill()
	takes(t, layer, 0, c)
}
