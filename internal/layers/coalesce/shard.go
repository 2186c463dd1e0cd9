package coalesce

import (
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

const (
	// enoughCalls is the number of calls under way from which callers wait. With more, batches are small and
	// Redis is busy with calls instead of decisions; with fewer, isolated callers wait for each other.
	enoughCalls = 4

	// mostCalls bounds the calls under way while there are full batches, which gain nothing by waiting: over a
	// long round call, enoughCalls would not carry the load.
	mostCalls = 64

	// mostShared is the most claims of a request that waits for others: with more it shares no script of Redis, and
	// would pay for waiting alone. Callers with equal claims share its call all the same.
	mostShared = 8
)

// A shard is a queue of callers; callers with equal claims are in the same one. While callers wait, a call is
// under way, whose end sends them.
type shard struct {
	mu    sync.Mutex
	calls []call   // under way
	wide  int      // of the calls
	queue []*batch // waiting; the last is open, the others are full
	idle  chan struct{}
	stats Stats
	_     [64]byte // its own cache line
}

// A call is a call of the store under way: for one caller with claims of this hash, or for a batch.
type call struct {
	hash  uint64
	wide  bool // more than mostShared claims: callers of other claims do not wait for it
	batch *batch
}

// free reports whether a caller may call the store itself: not while its claims are under way, because two
// calls at a time make the batches of a hot key a third smaller.
func (l *shard) free(own call) bool {
	if !own.wide && l.shared() >= enoughCalls {
		return false
	}
	return !slices.ContainsFunc(l.calls, func(t call) bool { return t.carries(own.hash) })
}

// shared is how many calls are under way for whose end callers of other claims wait.
func (l *shard) shared() int { return len(l.calls) - l.wide }

func (t call) carries(hash uint64) bool {
	if t.batch == nil {
		return t.hash == hash
	}
	group, _ := t.batch.find(hash, nil)
	return group >= 0
}

// begin also counts, which is nearly free under the mutex.
func (l *shard) begin(t call) {
	l.calls = append(l.calls, t)
	if t.wide {
		l.wide++
	}
	l.stats.Trips++
	if t.batch == nil {
		l.stats.Decisions++
		l.stats.Requests++
		return
	}
	l.stats.Decisions += int64(t.batch.waiting)
	l.stats.Requests += int64(len(t.batch.requests))
}

func (l *shard) remove(t call) {
	i := slices.Index(l.calls, t)
	l.calls = slices.Delete(l.calls, i, i+1)
	if t.wide {
		l.wide--
	}
	if len(l.calls) == 0 && len(l.queue) == 0 && l.idle != nil {
		close(l.idle)
	}
}

// join adds a caller to the last batch, or to a new one.
func (l *shard) join(hash uint64, claims []weir.Claim, wanted bool) waiter {
	if n := len(l.queue); n > 0 {
		if group, ticket, ok := l.queue[n-1].join(hash, claims, wanted); ok {
			return waiter{l, l.queue[n-1], group, ticket}
		}
	}
	b := newBatch(time.Now())
	l.queue = append(l.queue, b)
	group, ticket, _ := b.join(hash, claims, wanted)
	return waiter{l, b, group, ticket}
}

// take begins the call of the oldest batch, unless too many calls are under way.
func (l *shard) take() *batch {
	most := enoughCalls
	if len(l.queue) > 1 {
		most = mostCalls
	}
	if len(l.queue) == 0 || l.shared() >= most {
		return nil
	}
	b := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	b.seal()
	l.begin(call{batch: b})
	return b
}

// takeFull is take for a batch that gains nothing by waiting.
func (l *shard) takeFull() *batch {
	if len(l.queue) < 2 {
		return nil
	}
	return l.take()
}

// leave takes a caller out of a batch, unless it was sent.
func (l *shard) leave(at waiter) (wasWaiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := at.batch
	if b.sealed {
		return false
	}
	if b.remove(at.group, at.ticket); b.waiting == 0 {
		i := slices.Index(l.queue, b)
		l.queue = slices.Delete(l.queue, i, i+1)
		b.recycle()
	}
	return true
}

func (l *shard) counted() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// drain waits until nothing is under way. No callers may join any more.
func (l *shard) drain() {
	l.mu.Lock()
	idle := make(chan struct{})
	if l.idle = idle; len(l.calls) == 0 {
		close(idle)
	}
	l.mu.Unlock()
	<-idle
}
