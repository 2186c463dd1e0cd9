package fallback_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/fallback"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

func inMemory(clock func() weir.Instant) weir.Store {
	if clock == nil {
		return memstore.New()
	}
	return memstore.New(memstore.WithClock(clock))
}

// alone is the local store of one node, which is the plain limit.
func alone(t testing.TB, clock func() weir.Instant) storetest.Handle {
	local, err := fallback.NewLocal(inMemory(clock), fallback.Config{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Handle{Store: local}
}

// warms is a store that the local one follows.
func warms(t testing.TB, clock func() weir.Instant, shared weir.Store) storetest.Handle {
	local, err := fallback.NewLocal(inMemory(clock), fallback.Config{Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	return storetest.Handle{Store: local.Warm(shared)}
}

func overMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	return warms(t, clock, inMemory(clock))
}

func overRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		shared, err := redisstore.Open(background, server.URL(), redisstore.WithPrefix(weir.NewLeaseID()+":"),
			redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock))
		if err != nil {
			t.Fatal(err)
		}
		return warms(t, clock, shared)
	}
}

func TestStoreAlone(t *testing.T)     { storetest.Run(t, alone) }
func TestVectorsAlone(t *testing.T)   { storetest.Vectors(t, alone) }
func TestStore(t *testing.T)          { storetest.Run(t, overMemory) }
func TestVectors(t *testing.T)        { storetest.Vectors(t, overMemory) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, overRedis(t)) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, overRedis(t)) }
