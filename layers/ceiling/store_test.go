package ceiling_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers/ceiling"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

var background = context.Background()

func inMemory(clock func() weir.Instant) weir.Store {
	if clock == nil {
		return memstore.New()
	}
	return memstore.New(memstore.WithClock(clock))
}

// elapsed is the clock of a process beside that of the suite, which is Redis': where that steps
// back, this one goes on.
func elapsed(clock func() weir.Instant) func() weir.Instant {
	if clock == nil {
		return nil
	}
	var mu sync.Mutex
	last := clock()
	own := last
	return func() weir.Instant {
		mu.Lock()
		defer mu.Unlock()
		now := clock()
		own += max(0, now-last)
		last = now
		return own
	}
}

// exactly leaves no room: all that the store may grant, and no more.
func exactly(*weir.Limit) (float64, bool) { return 1, true }

func newCeiling(t testing.TB, next, local weir.Store, factor func(*weir.Limit) (float64, bool)) *ceiling.Ceiling {
	t.Helper()
	c, err := ceiling.New(next, local, factor)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// amply leaves room for what the suite does in no time: it moves its clock by hundreds of
// milliseconds while calls are under way.
func amply(*weir.Limit) (float64, bool) { return 3, true }

// over makes a suite's subject.
func over(t testing.TB, clock func() weir.Instant, next weir.Store) storetest.Handle {
	factor := exactly
	if strings.HasPrefix(t.Name(), "TestStore") {
		factor = amply
	}
	return storetest.Handle{Store: newCeiling(t, next, inMemory(elapsed(clock)), factor).Store()}
}

func overMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	return over(t, clock, inMemory(clock))
}

func overRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		next, err := redisstore.Open(background, server.URL(), redisstore.WithPrefix(weir.NewLeaseID()+":"),
			redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock))
		if err != nil {
			t.Fatal(err)
		}
		return over(t, clock, next)
	}
}

func TestStore(t *testing.T)          { storetest.Run(t, overMemory) }
func TestVectors(t *testing.T)        { storetest.Vectors(t, overMemory) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, overRedis(t)) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, overRedis(t)) }
