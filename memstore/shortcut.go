package memstore

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// Shortcut implements weir.Shortcut for the most usual request: of a known key, on a
// continuous bucket without overdraft whose unit refills in a whole number of
// microseconds. That state is one word, so it takes one look-up, and for a grant one
// compare-and-swap.
func (s *Store) Shortcut(key string, l *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	if !short(l) || cost < 0 || cost > weir.MaxUnits || key == "" {
		return
	}
	now := s.now() // before the node is touched: others wait for its cache line
	hash := s.hash(key, l)
	n := s.shard(hash).table.Load().find(hash, key, l)
	if n == nil {
		return
	}
	for {
		word := n.word.Load()
		// A part would be left by other numbers, which change the limit of the node first.
		if word&locked != 0 || n.part.Load() != 0 || n.limit.Load() != l {
			return
		}
		before := bucket.State{At: word >> 1}
		after, available := before, bucket.Available(l, before, now)
		if available < 0 {
			return // in debt: there is a delay to tell of
		}
		if granted = available >= cost; granted {
			after = bucket.Charge(l, before, cost, now)
			available -= cost
		}
		if after == before || n.word.CompareAndSwap(word, after.At<<1) {
			retryAfter, resetAfter = bucket.Waits(l, after, available, cost, now)
			return granted, available, retryAfter, resetAfter, weir.Instant(now), true
		}
	}
}

func short(l *weir.Limit) bool {
	return l.Algorithm() == weir.AlgorithmTokenBucket && !l.Step() && l.Overdraft() == 0 && l.Interval().Num == 0
}
