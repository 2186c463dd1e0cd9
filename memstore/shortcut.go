package memstore

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// Shortcut implements weir.Shortcut for the most usual request: of a known key, on a
// continuous bucket whose unit refills in a whole number of microseconds. That state is
// one word, so it takes one look-up, and for a grant one compare-and-swap.
func (s *Store) Shortcut(key string, l *weir.Limit, cost int64) (granted int64, d weir.Decision, ok bool) {
	if l.Algorithm() != weir.AlgorithmTokenBucket || l.Step() || l.Interval().Num != 0 || cost < 0 || cost > weir.MaxUnits {
		return 0, d, false
	}
	hash := s.hash(key, l)
	n := s.shard(hash).table.Load().find(hash, key, l)
	if n == nil || key == "" {
		return 0, d, false
	}
	now := s.now()
	for {
		word := n.word.Load()
		// A part would be left by other numbers, which change the limit of the node first.
		if word&locked != 0 || n.part.Load() != 0 || n.limit.Load() != l {
			return 0, d, false
		}
		before := bucket.State{At: word >> 1}
		after, available, granted := before, bucket.Available(l, before, now), int64(0)
		if available >= cost {
			after, granted = bucket.Charge(l, before, cost, now), 1
			available -= cost
		}
		if after == before || n.word.CompareAndSwap(word, after.At<<1) {
			return granted, bucket.Describe(l, after, available, cost, now), true
		}
	}
}
