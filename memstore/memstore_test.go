package memstore_test

import (
	"flag"
	"runtime"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/storetest"
)

func subject(t testing.TB, clock func() weir.Instant) storetest.Handle {
	store := memstore.New(memstore.WithClock(clock))
	t.Cleanup(func() { store.Close() })
	keys := func() (live, everlasting int) {
		store.Sweep()
		return int(store.Stats().Keys), 0
	}
	return storetest.Handle{Store: store, Keys: keys}
}

// heap is what lies there after a collection; a second one takes what a sync.Pool held.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestVectors(t *testing.T) { storetest.Vectors(t, subject) }

func TestStore(t *testing.T) { storetest.Run(t, subject) }

var rewrite = flag.Bool("rewrite", false, "write the answers of the store into the stories")

func TestStories(t *testing.T) {
	newStore := func(t testing.TB, clock func() weir.Instant) weir.Store { return subject(t, clock) }
	if *rewrite {
		stories.Rewrite(t, newStore)
		return
	}
	stories.Run(t, newStore)
}
