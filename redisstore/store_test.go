package redisstore_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// on is the subject of a server: each store it opens has a prefix of its own.
func on(url string) storetest.Subject {
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		prefix := weir.NewLeaseID() + ":"
		open := func() weir.Store {
			options := []redisstore.Option{redisstore.WithPrefix(prefix), redisstore.WithTimeout(10 * time.Second)}
			if clock != nil {
				options = append(options, redisstore.WithClock(clock))
			}
			store, err := redisstore.Open(t.Context(), url, options...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		}
		return storetest.Handle{Store: open(), Peer: open}
	}
}

func TestVectors(t *testing.T) { storetest.Vectors(t, on(redistest.Start(t).URL())) }

func TestStore(t *testing.T) { storetest.Run(t, on(redistest.Start(t).URL())) }
