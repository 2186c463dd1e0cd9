package memstore

import (
	"container/heap"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/weirproject/weir"
)

// unknown is the earliest expiry of a shard that was never asked for room.
const unknown = math.MinInt64

// room claims a place for one more key, dropping one that expired if the store is full.
func (s *Store) room(now moment) bool {
	for s.keys.Add(1) > s.maxKeys || s.bytes() > s.maxBytes {
		s.keys.Add(-1)
		if !s.dropExpired(now) {
			return false
		}
	}
	return true
}

// dropExpired drops one key with a state equal to an unused key's. If no key has expired, it
// costs one check per shard: a flood of new keys stays cheap.
func (s *Store) dropExpired(now moment) bool {
	for i := range s.shards {
		if s.shards[i].earliest.Load() <= now.at && s.dropFrom(&s.shards[i], now) {
			return true
		}
	}
	return false
}

func (s *Store) dropFrom(sh *shard, now moment) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.earliest.Load() == unknown {
		s.examined.Add(int64(sh.look(now)))
	}
	defer sh.settle()
	for len(sh.soonest) > 0 && sh.soonest[0].at <= now.at {
		next := &sh.soonest[0]
		s.examined.Add(1)
		e := next.entry
		if e.word.Load() == dead {
			heap.Pop(&sh.soonest)
			continue
		}
		e.lock()
		if expires := e.expires(now); expires > now.at { // used since
			e.unlock()
			next.at = expires
			heap.Fix(&sh.soonest, 0)
			continue
		}
		s.drop(sh, e)
		heap.Pop(&sh.soonest)
		s.dropped.Add(1)
		return true
	}
	return false
}

// look records when each key of the shard expires, and returns the number of keys.
func (sh *shard) look(now moment) int {
	sh.soonest = sh.soonest[:0]
	for e := range sh.table.Load().all {
		if !e.shared() {
			e.lock()
			sh.soonest = append(sh.soonest, expiry{e.expires(now), e})
			e.unlock()
		}
	}
	heap.Init(&sh.soonest)
	return len(sh.soonest)
}

// settle publishes when the shard's next key may expire.
func (sh *shard) settle() {
	if len(sh.soonest) == 0 {
		sh.earliest.Store(math.MaxInt64)
		return
	}
	sh.earliest.Store(sh.soonest[0].at)
}

// entered adds a key that may expire from now on, a new or refunded one, to the heap of a shard that tracks expiries.
// The exact expiry is computed when the key reaches the top. Stale items stay in the heap; once there are more of them
// than keys, the heap is rebuilt.
func (sh *shard) entered(e *entry, now int64) {
	if sh.earliest.Load() == unknown || e.shared() {
		return
	}
	heap.Push(&sh.soonest, expiry{now, e})
	if len(sh.soonest) > 2*sh.table.Load().live+16 {
		sh.forget()
		return
	}
	sh.settle()
}

// forget discards the heap of expiries until the next search for room.
func (sh *shard) forget() {
	sh.soonest = nil
	sh.earliest.Store(unknown)
}

// full reports whether a new key would find no room. It drops a key that has expired, because only a look at the keys
// tells which have.
func (s *Store) full(now moment) bool {
	if s.keys.Load() < s.maxKeys && s.bytes() < s.maxBytes {
		return false
	}
	return !s.dropExpired(now)
}

// Sweep drops every key with a state equal to an unused key's, and returns their number. It is
// optional: a full store makes room without it. Call it to release memory after a flood.
func (s *Store) Sweep() int {
	now, swept := s.now(), 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for e := range sh.table.Load().all {
			e.lock()
			if e.expires(now) <= now.at {
				s.drop(sh, e)
				swept++
				continue
			}
			e.unlock()
		}
		if swept > 0 {
			s.resize(sh, roomy(sh.table.Load().live))
		}
		sh.forget()
		sh.mu.Unlock()
	}
	return swept
}

// expires is the time at which the state of a locked entry is the initial state again. Numbers that change later may
// move that; it is looked up again before the entry is dropped.
func (e *entry) expires(now moment) int64 {
	limit := e.owner.Load().limit
	return now.at + kindOf(limit).decision(limit, e.read(), 0, 0, now).ResetAfter.Microseconds()
}

// expiry is when a key may be dropped; it may be used again before.
type expiry struct {
	at    int64
	entry *entry
}

// soonest is a heap of expiries.
type soonest []expiry

func (h soonest) Len() int           { return len(h) }
func (h soonest) Less(i, j int) bool { return h[i].at < h[j].at }
func (h soonest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *soonest) Push(x any) { *h = append(*h, x.(expiry)) }

// Pop implements heap.Interface.
func (h *soonest) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = expiry{}
	*h = old[:len(old)-1]
	return last
}

// ErrFull is returned (wrapped) if a request needs memory beyond the ceilings: a new key of a concurrency limit (a
// lease on a shared overflow key could not be found again), any new key of a store made WithoutOverflow, or a log that
// would grow. No claim was charged. It is a [weir.ErrUnavailable], so a rule's on_store_error applies.
var ErrFull = fmt.Errorf("%w: memstore is full of keys in use and nothing was charged; "+
	"raise WithMaxKeys or WithMaxBytes (weir serve: server.max_keys, server.max_bytes)", weir.ErrUnavailable)

// keyBytes is the size of an entry with its share of empty slots.
const keyBytes = int64(unsafe.Sizeof(entry{})) * 25 / 16

// bytes is the approximate memory of the keys and their states.
func (s *Store) bytes() int64 { return s.keys.Load()*keyBytes + s.large.Load() }

// tight reports whether a charge may find no memory. Below half of the ceiling each finds some: a log that grows
// doubles.
func (s *Store) tight() bool { return s.bytes() > s.maxBytes/2 }

// spare reports whether so much memory is left.
func (s *Store) spare(bytes int64) bool { return bytes <= 0 || s.bytes()+bytes <= s.maxBytes }

// maxLoans bounds the grants on overflow keys that are remembered.
const maxLoans = 4096

// loans are the latest grants on overflow keys, so that a refund finds the key it was taken from. The refund of an
// older grant goes to the key itself: such misplaced refunds are at most the grants of the overflow key.
type loans struct {
	mu     sync.Mutex
	units  map[loan]int64
	recent []loan // a ring
	next   int
}

type loan struct {
	hash uint64 // of the key and its limit
	at   int64
}

func (l *loans) add(hash uint64, at, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.units == nil {
		l.units, l.recent = make(map[loan]int64), make([]loan, maxLoans)
	}
	one := loan{hash, at}
	if _, known := l.units[one]; !known {
		delete(l.units, l.recent[l.next])
		l.recent[l.next] = one
		l.next = (l.next + 1) % maxLoans
	}
	l.units[one] += units
}

// settle reports whether units were taken from the overflow key, and counts them as given back.
func (l *loans) settle(hash uint64, at, units int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, known := l.units[loan{hash, at}]
	if !known || left < units {
		return false
	}
	l.units[loan{hash, at}] = left - units
	return true
}
