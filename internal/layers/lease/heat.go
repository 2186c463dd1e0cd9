package lease

import (
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// earns is the number of requests in half a hold for which a key earns a lease: a lease costs two calls, to
// take and to give back, and must save more.
const earns = 4

// heat counts requests by hash, approximately and in constant memory, because clients choose the keys. Keys
// that collide may earn leases together; the colder one's is soon given up.
type heat [4096]atomic.Uint64 // the interval in the upper half, the count in the lower

// add counts one request of the interval and returns the count.
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

// warm counts a request that the store granted. If its claims may be leased and are frequent enough, they get
// an entry.
func (s *Store) warm(hash uint64, claims []weir.Claim, decisions []weir.Decision) {
	hold, ok := s.hold(claims)
	if !ok {
		return
	}
	now := s.now()
	// Only every fourth request: there may be no room, and the lock is expensive.
	if s.heat.add(hash, uint64(now/int64(hold/2)))%earns == 0 {
		s.enter(hash, claims, decisions, hold, now)
	}
}

// hold is the shortest hold of claims; ok is false where one may not be leased.
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

// enter adds an entry if there is room and none exists.
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
		s.running.Go(s.sweep)
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
