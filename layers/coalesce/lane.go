package coalesce

import (
	"slices"
	"sync"

	"github.com/weirproject/weir"
)

const (
	// enoughTrips of one lane are under way before callers wait: with more, batches are
	// small and Redis is busy with calls instead of decisions; with fewer, those who come
	// one by one wait for each other.
	enoughTrips = 4

	// mostTrips is how many are under way if there are full batches, which gain nothing
	// by waiting: where the way to the store is long, enoughTrips would not carry them.
	mostTrips = 64
)

// A lane is where callers meet; callers with the same claims meet in the same one.
// While somebody waits, a trip is under way, whose end sends them.
type lane struct {
	mu    sync.Mutex
	trips []trip   // under way
	queue []*batch // waiting; the last is open to whoever comes, the others are full
	idle  chan struct{}
	stats Stats
	_     [64]byte // its own cache line
}

// A trip is a call of the store: of one caller with claims of this hash, or of a batch.
type trip struct {
	hash  uint64
	batch *batch
}

// free reports whether a caller may ask the store itself. Not if the same claims are under
// way: with two trips at a time the batches of a hot key are a third smaller.
func (l *lane) free(hash uint64) bool {
	return len(l.trips) < enoughTrips && !slices.ContainsFunc(l.trips, func(t trip) bool { return t.carries(hash) })
}

func (t trip) carries(hash uint64) bool {
	if t.batch == nil {
		return t.hash == hash
	}
	group, _ := t.batch.find(hash, nil)
	return group >= 0
}

// begin counts, as who holds the mutex anyway pays next to nothing for it.
func (l *lane) begin(t trip) {
	l.trips = append(l.trips, t)
	l.stats.Trips++
	if t.batch == nil {
		l.stats.Decisions++
		l.stats.Requests++
		return
	}
	l.stats.Decisions += int64(t.batch.waiting)
	l.stats.Requests += int64(len(t.batch.requests))
}

func (l *lane) remove(t trip) {
	i := slices.Index(l.trips, t)
	l.trips = slices.Delete(l.trips, i, i+1)
	if len(l.trips) == 0 && len(l.queue) == 0 && l.idle != nil {
		close(l.idle)
	}
}

// join gives a caller a seat in the last batch, or in a new one.
func (l *lane) join(hash uint64, claims []weir.Claim, wanted bool) seat {
	if n := len(l.queue); n > 0 {
		if group, ticket, ok := l.queue[n-1].join(hash, claims, wanted); ok {
			return seat{l, l.queue[n-1], group, ticket}
		}
	}
	b := newBatch()
	l.queue = append(l.queue, b)
	group, ticket, _ := b.join(hash, claims, wanted)
	return seat{l, b, group, ticket}
}

// take begins the trip of the batch that waits longest, unless too many are under way.
func (l *lane) take() *batch {
	most := enoughTrips
	if len(l.queue) > 1 {
		most = mostTrips
	}
	if len(l.queue) == 0 || len(l.trips) >= most {
		return nil
	}
	b := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	b.seal()
	l.begin(trip{batch: b})
	return b
}

// takeFull is take, but of a batch that gains nothing by waiting.
func (l *lane) takeFull() *batch {
	if len(l.queue) < 2 {
		return nil
	}
	return l.take()
}

// leave takes a caller out of a batch, unless that was sent.
func (l *lane) leave(at seat) (wasWaiting bool) {
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

func (l *lane) counted() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// drain waits until nothing is under way. Nobody may come any more.
func (l *lane) drain() {
	l.mu.Lock()
	idle := make(chan struct{})
	if l.idle = idle; len(l.trips) == 0 {
		close(idle)
	}
	l.mu.Unlock()
	<-idle
}
