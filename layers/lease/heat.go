package lease

import (
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// earns is how many requests in half a holding time earn a key its lease: taking it and
// giving it back are two calls, which must save some.
const earns = 4

// heat counts requests by hash, roughly and in a fixed room: strangers' keys must not fill
// memory. Keys that share a place may earn a lease together; then the colder one's is soon
// given up.
type heat [4096]atomic.Uint64 // the interval in the upper half, the count in the lower

// add counts one request in the interval and returns how many there were.
func (h *heat) add(hash, interval uint64) int64 {
	place := &h[hash%uint64(len(h))]
	for {
		old := place.Load()
		count := old<<32>>32 + 1
		if old>>32 != interval<<32>>32 {
			count = 1
		}
		if place.CompareAndSwap(old, interval<<32|count) {
			return int64(count)
		}
	}
}

// warm counts a request that the store granted; if its claims may be leased and are asked
// for often enough, they get an entry.
func (s *Store) warm(hash uint64, claims []weir.Claim, decisions []weir.Decision) {
	hold, ok := s.hold(claims)
	if !ok {
		return
	}
	now := s.now()
	// Not each request from the fourth on: there may be no room for it, and locks are dear.
	if s.heat.add(hash, uint64(now/int64(hold/2)))%earns == 0 {
		s.enter(hash, claims, decisions, hold, now)
	}
}

// hold is the shortest holding time of claims; ok is false where one may not be leased.
func (s *Store) hold(claims []weir.Claim) (hold time.Duration, ok bool) {
	hold = longestHold
	for i := range claims {
		terms := s.terms(claims[i].Limit)
		if terms.most(claims[i].Limit) == 0 {
			return 0, false
		}
		hold = min(hold, terms.hold())
	}
	return hold, true
}

// enter makes an entry if there is room, and nobody made it meanwhile.
func (s *Store) enter(hash uint64, claims []weir.Claim, decisions []weir.Decision, hold time.Duration, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.stats.Leases >= int64(s.room) || s.find(hash, claims) != nil {
		return
	}
	e := newEntry(hash, claims, s.shares(claims), hold)
	e.want = earns
	e.seen.Store(now)
	e.room.Store(e.share(decisions))
	s.link(e)
	if !s.sweeping {
		s.sweeping = true
		s.running.Add(1)
		go s.sweep()
	}
}

func (s *Store) shares(claims []weir.Claim) []share {
	shares := make([]share, len(claims))
	for i := range claims {
		terms := s.terms(claims[i].Limit)
		shares[i] = share{part: terms.Share, most: terms.most(claims[i].Limit)}
	}
	return shares
}
