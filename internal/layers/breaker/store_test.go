package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

func inMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	var options []memstore.Option
	if clock != nil {
		options = append(options, memstore.WithClock(clock))
	}
	return behind(t, memstore.New(options...))
}

// behind is patient: a busy machine stands still for seconds.
func behind(t testing.TB, next weir.Store) storetest.Handle {
	_, store := newBreaker(t, next, breaker.WithSlow(time.Minute))
	return storetest.Handle{Store: store}
}

func onRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		next, err := redisstore.Open(context.Background(), server.URL(), redisstore.WithPrefix(weir.NewLeaseID()+":"),
			redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock))
		if err != nil {
			t.Fatal(err)
		}
		return behind(t, next)
	}
}

func TestStore(t *testing.T)          { storetest.Run(t, inMemory) }
func TestVectors(t *testing.T)        { storetest.Vectors(t, inMemory) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, onRedis(t)) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, onRedis(t)) }
