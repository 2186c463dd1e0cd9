package memstore

import (
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// Shortcut implements weir.Shortcut for the most usual request: of a known key, on a
// bucket whose state is one word. It takes one look-up, and for a grant one
// compare-and-swap.
func (s *Store) Shortcut(key string, l *weir.Limit, cost int64) (granted bool, remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	if !bucket.Short(l) || cost < 0 || cost > weir.MaxUnits || key == "" {
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
			return false, 0, 0, 0, 0, false
		}
		var after int64
		after, remaining, retryAfter, resetAfter, granted, ok = bucket.Take(l, word>>1, cost, now)
		if after == word>>1 || n.word.CompareAndSwap(word, after<<1) {
			return granted, remaining, retryAfter, resetAfter, weir.Instant(now), ok
		}
	}
}
