package breaker_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// load asks 5,000 times a second, each in a goroutine of its own, until it is stopped.
type load struct {
	granted, away, failed, other atomic.Int64
	waiting, most                atomic.Int64
	stop                         func()
}

func startLoad(store weir.Store, claims []weir.Claim) *load {
	l := &load{}
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	calls.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			for range 5 {
				calls.Go(func() { l.ask(store, claims) })
			}
		}
	})
	l.stop = func() { cancel(); calls.Wait() }
	return l
}

func (l *load) ask(store weir.Store, claims []weir.Claim) {
	if n := l.waiting.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	granted, err := store.Decide(context.Background(), claims, 1, nil)
	l.waiting.Add(-1)
	var away *breaker.OpenError
	switch {
	case err == nil:
		l.granted.Add(granted)
	case errors.As(err, &away):
		l.away.Add(1)
	case errors.Is(err, weir.ErrUnavailable):
		l.failed.Add(1)
	default:
		l.other.Add(1)
	}
}

func onServer(t *testing.T, server *redistest.Server) (*breaker.Breaker, weir.Store) {
	t.Helper()
	next, err := redisstore.Open(context.Background(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	b, store := newBreaker(t, next)
	t.Cleanup(func() { store.Close() })
	return b, store
}

func TestRedisFrozenAndResumed(t *testing.T) {
	server := redistest.Start(t)
	b, store := onServer(t, server)
	claims := []weir.Claim{{Key: "key", Limit: weir.MustLimit("hot", weir.FixedWindow{Limit: 700, Window: time.Hour}),
		Cost: 1}}
	l := startLoad(store, claims)
	redistest.Await(t, "a few grants", func() bool { return l.granted.Load() > 100 })
	l.stop()
	before := runtime.NumGoroutine() // what the client keeps for many callers is there
	first, late := l.granted.Load(), l.failed.Load()

	l = startLoad(store, claims)

	server.Stop()
	redistest.Await(t, "an open breaker", func() bool { return b.State() == breaker.Open })
	redistest.Await(t, "the end of those that waited", func() bool { return l.waiting.Load() < 5 })
	failed, away, probes := l.failed.Load(), l.away.Load(), b.Stats().ProbesLost
	redistest.Await(t, "5,000 that are turned away", func() bool { return l.away.Load() > away+5000 })
	more := l.failed.Load() - failed - int64(b.Stats().ProbesLost-probes)
	if more > 10 { // of which some were on their way when we looked
		t.Errorf("%d waited for Redis while the breaker was open", more)
	}
	if b.State() != breaker.Open {
		t.Errorf("it is %v while Redis is frozen", b.State())
	}

	server.Cont()
	redistest.Await(t, "a closed breaker", func() bool { return b.State() == breaker.Closed })
	redistest.Await(t, "the last unit", func() bool { // those that failed, also before the freeze, may be charged
		return first+late+l.granted.Load()+l.failed.Load() >= 700
	})
	l.stop()
	if granted := first + l.granted.Load(); granted > 700 || l.other.Load() > 0 {
		t.Errorf("%d granted of 700, %d errors of other kinds", granted, l.other.Load())
	}
	redistest.Await(t, "the end of its goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// A server that takes no writes answers peeks and refusals.
func TestRedisReadOnly(t *testing.T) {
	server := redistest.Start(t)
	b, store := onServer(t, server)
	claims := []weir.Claim{{Key: "key", Limit: limit, Cost: 1}}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	l := startLoad(store, claims)
	defer l.stop()
	redistest.Await(t, "an open breaker", func() bool { return b.State() == breaker.Open })
	redistest.Await(t, "lost probes", func() bool { return b.Stats().ProbesLost > 2 })
	if b.State() != breaker.Open {
		t.Errorf("it is %v before a server that is read-only", b.State())
	}
	server.Do("REPLICAOF", "NO", "ONE")
	redistest.Await(t, "a closed breaker", func() bool { return b.State() == breaker.Closed })
}

func TestRedisKilledAndReplaced(t *testing.T) {
	server := redistest.Start(t)
	b, store := onServer(t, server)
	l := startLoad(store, []weir.Claim{claim})
	defer l.stop()
	server.Kill()
	redistest.Await(t, "an open breaker", func() bool { return b.State() == breaker.Open })
	server.Restart()
	redistest.Await(t, "a closed breaker", func() bool { return b.State() == breaker.Closed })
	granted := l.granted.Load()
	redistest.Await(t, "a grant", func() bool { return l.granted.Load() > granted })
}
