package recall

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	ways     = 8
	oneEvent = 1 << 32 // in set.changes
)

// A table is a fixed number of small sets of refusals. Each state belongs to one set, so that looking up and
// evicting take constant time.
type table struct {
	sets    []set
	shift   uint8
	era     atomic.Uint64 // refusals of earlier eras are forgotten
	evicted atomic.Int64
}

// A set is read without a lock. Its refusals are forgotten together, so that a change needs no search; it
// seldom affects other keys.
type set struct {
	changes atomic.Uint64 // upper 32 bits: times forgotten; lower: calls under way that change a state
	tags    [ways]atomic.Uint32
	mu      sync.Mutex // for writing tags and refusals
	hand    uint32
	way     [ways]atomic.Pointer[refusal]
	_       [8]byte // two cache lines in all
}

func newTable(refusals int) *table {
	width := bits.Len(uint(max(1, refusals-1) / ways))
	t := &table{sets: make([]set, 1<<width), shift: uint8(64 - width)}
	return t
}

func (t *table) set(hash uint64) *set { return &t.sets[hash>>t.shift] }

// tag is a part of a hash that excludes nearly all other keys; 0 is an empty slot.
func tag(hash uint64) uint32 { return uint32(hash) | 1 }

// forget forgets everything.
func (t *table) forget() { t.era.Add(1) }

// find returns a refusal that currently answers for a cost.
func (s *set) find(key string, limit *weir.Limit, cost int64, hash, era uint64, now time.Duration) *refusal {
	for i := range s.tags {
		if s.tags[i].Load() != tag(hash) {
			continue
		}
		r := s.way[i].Load()
		if r == nil || !r.is(key, limit) || !r.holds(era, s.changes.Load(), now) {
			continue
		}
		if !sameNumbers(r.limit, limit) {
			s.forget() // grants under one limit's numbers may change refusals under the other's
			return nil
		}
		if !r.covers(cost) {
			return nil
		}
		if !r.asked.Load() { // avoids a write for each use, which would bounce the cache line
			r.asked.Store(true)
		}
		return r
	}
	return nil
}

// begin forgets, and disables the set until end.
func (s *set) begin() { s.changes.Add(oneEvent + 1) }

// end forgets the decisions of calls that began before it.
func (s *set) end() { s.changes.Add(oneEvent - 1) }

func (s *set) forget() { s.changes.Add(oneEvent) }

func underWay(changes uint64) bool { return changes%oneEvent != 0 }

// put remembers a refusal, and reports whether it did.
func (t *table) put(r *refusal) bool {
	s := t.set(r.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	era, changes := t.era.Load(), s.changes.Load()
	if !r.holds(era, changes, r.returned) {
		return false // forgotten during the call
	}
	i := s.own(r, era, changes)
	if i < 0 {
		i = s.free(era, changes, r.returned)
	}
	if i < 0 {
		i = s.victim()
		t.evicted.Add(1)
	}
	if i == ways {
		return false
	}
	s.way[i].Store(r)
	s.tags[i].Store(tag(r.hash))
	return true
}

// own is the slot with a refusal of the same state: −1 if none has, ways if that one should stay. A smaller
// cost covers more; among equals the later one is kept.
func (s *set) own(r *refusal, era, changes uint64) int {
	for i := range s.way {
		old := s.way[i].Load()
		if old == nil || !old.is(r.key, r.limit) {
			continue
		}
		if old.holds(era, changes, r.returned) && old.covers(r.cost) && sameNumbers(old.limit, r.limit) &&
			(old.cost < r.cost || old.sent >= r.sent) {
			return ways
		}
		return i
	}
	return -1
}

// free is an empty or expired slot, or −1.
func (s *set) free(era, changes uint64, now time.Duration) int {
	for i := range s.way {
		if old := s.way[i].Load(); old == nil || !old.holds(era, changes, now) {
			return i
		}
	}
	return -1
}

// victim is the first slot that was not used since the clock hand passed. So a flood of keys that come once
// each evicts its own, not a key that is being refused.
func (s *set) victim() int {
	i := s.hand % ways
	for range ways {
		s.hand++
		if !s.way[i].Load().asked.Swap(false) {
			break
		}
		i = s.hand % ways
	}
	return int(i)
}

// stripes are a counter without one cache line that all cores write.
type stripes [16]struct {
	n atomic.Int64
	_ [56]byte
}

func (s *stripes) add() { s[rand.Uint32()%uint32(len(s))].n.Add(1) }

func (s *stripes) sum() (n int64) {
	for i := range s {
		n += s[i].n.Load()
	}
	return n
}
