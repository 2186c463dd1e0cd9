package simulate

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// service is what Redis needs for a call: docs/redis.md has 7 to 25 µs of the usual ones.
const service = 15 * time.Microsecond

// A server is the simulated Redis: weir's embedded store, which decides as Redis does to the microsecond, behind one
// thread. It has a store for each time that it loses writes: until a loss, the next store executes the calls too, as
// long as their effect is not lost.
type server struct {
	stores []*memstore.Store // the first one serves
	losses []loss            // the next one is between the first store and the second
	clock  weir.Instant
	free   time.Duration // when the thread has no more to do
	sent   int64         // calls executed
}

// A loss is a restart or a failover.
type loss struct {
	since, at time.Duration // writes in between are lost
}

func newServer(losses []loss) *server {
	s := &server{losses: losses}
	for range len(losses) + 1 {
		s.stores = append(s.stores, memstore.New(memstore.WithMaxKeys(maxKeys),
			memstore.WithClock(func() weir.Instant { return s.clock })))
	}
	return s
}

// execute executes an operation that arrives at a time, and returns when that is done.
func (s *server) execute(o *operation, now time.Duration, epoch time.Time) time.Duration {
	begun := max(now, s.free)
	s.free = begun + service
	for len(s.losses) > 0 && s.losses[0].at <= begun {
		s.losses, s.stores = s.losses[1:], s.stores[1:]
	}
	s.clock = weir.Instant(epoch.Add(begun).UnixMicro())
	for i, l := range s.losses {
		if begun >= l.since {
			break
		}
		o.copied().apply(s.stores[i+1])
	}
	o.apply(s.stores[0])
	s.sent++
	return s.free
}
