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
	ways    = 8
	anEvent = 1 << 32 // of set.changes
)

// A table is a fixed number of sets of few refusals each. A state has one set, so that
// looking it up, and making room, is work of a fixed amount.
type table struct {
	sets    []set
	shift   uint8
	era     atomic.Uint64 // what was learned in another one is forgotten
	evicted atomic.Int64
}

// A set is read without a lock. The refusals of a set are forgotten together: then there is
// nothing to be found and taken out, and it is rare that somebody else's is among them.
type set struct {
	changes atomic.Uint64 // how often it was forgotten, above 32 bits of calls under way that will change a state of it
	tags    [ways]atomic.Uint32
	mu      sync.Mutex // of who writes tags and refusals
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

// tag is a part of a hash that says no to nearly all others; 0 is nobody's.
func tag(hash uint64) uint32 { return uint32(hash) | 1 }

// forget forgets everything.
func (t *table) forget() { t.era.Add(1) }

// find is a refusal that answers for a cost now.
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
			s.forget() // what is granted by the others may change what was refused by these
			return nil
		}
		if !r.covers(cost) {
			return nil
		}
		if !r.asked.Load() { // a write for each would cost the cores their caches
			r.asked.Store(true)
		}
		return r
	}
	return nil
}

// begin forgets, and lets nothing be believed until end.
func (s *set) begin() { s.changes.Add(anEvent + 1) }

// end forgets what was asked before it.
func (s *set) end() { s.changes.Add(anEvent - 1) }

func (s *set) forget() { s.changes.Add(anEvent) }

func underWay(changes uint64) bool { return changes%anEvent != 0 }

// put remembers a refusal, and reports whether it did.
func (t *table) put(r *refusal) bool {
	s := t.set(r.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	era, changes := t.era.Load(), s.changes.Load()
	if !r.holds(era, changes, r.returned) {
		return false // forgotten while it was under way
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

// own is the way that has a refusal of the same state: −1 if none has, ways if the one that
// is there is to stay. A smaller cost says more, then a later one.
func (s *set) own(r *refusal, era, changes uint64) int {
	for i := range s.way {
		old := s.way[i].Load()
		if old == nil || !old.is(r.key, r.limit) {
			continue
		}
		if old.holds(era, changes, r.returned) && old.covers(r.cost) && sameNumbers(old.limit, r.limit) && (old.cost < r.cost || old.sent >= r.sent) {
			return ways
		}
		return i
	}
	return -1
}

// free is a way that is empty or over, or −1.
func (s *set) free(era, changes uint64, now time.Duration) int {
	for i := range s.way {
		if old := s.way[i].Load(); old == nil || !old.holds(era, changes, now) {
			return i
		}
	}
	return -1
}

// victim is the first that was not asked for since the hand came by. So a flood of keys that
// come once each takes the room from one another, and not from a key that is being refused.
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

// stripes count without one cache line for which all cores would fight.
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
