package ceiling_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/ceiling"
	"github.com/weirproject/weir/internal/redistest"
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

// A process has a clock beside the suite's, which stands for Redis: where that one steps back, this one goes
// on. All reads of the time must come through here, so that each step is noticed.
type process struct {
	clock func() weir.Instant // the suite's

	mu        sync.Mutex
	last, own weir.Instant
}

func (p *process) look() (suite, own weir.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	p.own += max(0, now-p.last)
	p.last = now
	return now, p.own
}

// clocks are the suite's, for the store below, and the process' own. Without one of the suite both are real.
func clocks(clock func() weir.Instant) (suite, own func() weir.Instant) {
	if clock == nil {
		return nil, nil
	}
	p := &process{clock: clock, last: clock()}
	p.own = p.last
	first := func() weir.Instant { now, _ := p.look(); return now }
	second := func() weir.Instant { _, now := p.look(); return now }
	return first, second
}

// exactly leaves no room: all that the store may grant, and no more.
func exactly(*weir.Limit) (float64, bool) { return 1, true }

func newCeiling(t testing.TB, next, local weir.Store, factor func(*weir.Limit) (float64, bool)) *ceiling.Ceiling {
	t.Helper()
	return ceiling.New(next, local, factor)
}

// amply leaves room for what the suite does in no time: it moves its clock by hundreds of
// milliseconds while calls are under way.
func amply(*weir.Limit) (float64, bool) { return 3, true }

// over makes a suite's subject.
func over(t testing.TB, own func() weir.Instant, next weir.Store) storetest.Handle {
	factor := exactly
	if strings.HasPrefix(t.Name(), "TestStore") {
		factor = amply
	}
	return storetest.Handle{Store: newCeiling(t, next, inMemory(own), factor)}
}

func overMemory(t testing.TB, clock func() weir.Instant) storetest.Handle {
	suite, own := clocks(clock)
	return over(t, own, inMemory(suite))
}

func overRedis(t testing.TB) storetest.Subject {
	server := redistest.Start(t)
	return func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		suite, own := clocks(clock)
		next, err := redisstore.Open(background, server.URL(), redisstore.WithPrefix(weir.NewLeaseID()+":"),
			redisstore.WithTimeout(time.Minute), redisstore.WithClock(suite))
		if err != nil {
			t.Fatal(err)
		}
		return over(t, own, next)
	}
}

func TestStore(t *testing.T)          { storetest.Run(t, overMemory) }
func TestVectors(t *testing.T)        { storetest.Vectors(t, overMemory) }
func TestStoreOnRedis(t *testing.T)   { storetest.Run(t, overRedis(t)) }
func TestVectorsOnRedis(t *testing.T) { storetest.Vectors(t, overRedis(t)) }
