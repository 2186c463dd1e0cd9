// Package layer is what the layers share: batches of which a layer passes on a part, limits derived from limits, hashes
// of claims, timeouts.
package layer

import (
	"hash/maphash"
	"math/bits"
	"time"

	"github.com/weirproject/weir"
)

// Timeout returns the timeout of each call of a store, such as one of redisstore; 0 if the store has none.
func Timeout(store weir.Store) time.Duration {
	if bounded, ok := store.(interface{ Timeout() time.Duration }); ok {
		return bounded.Timeout()
	}
	return 0
}

// A Seed hashes claims for the table of a layer, unpredictably to clients.
type Seed struct{ seed maphash.Seed }

// NewSeed returns a random Seed.
func NewSeed() Seed { return Seed{maphash.MakeSeed()} }

// State is the hash of a key under the name and algorithm of a limit, which are given by weir.Limit.Hash.
func (s Seed) State(limit uint64, key string) uint64 {
	return spread(maphash.String(s.seed, key) ^ limit)
}

// Claim adds a claim to a hash of claims, which begins with 0.
func (s Seed) Claim(hash uint64, key string, l *weir.Limit, cost int64) uint64 {
	return spread((hash ^ maphash.String(s.seed, key) ^ l.Hash()) + uint64(cost))
}

// spread returns a hash of which all bits depend on all bits of the argument: tables take an index from a few of them.
func spread(combined uint64) uint64 {
	hi, lo := bits.Mul64(combined, 0x9e3779b97f4a7c15)
	return hi ^ lo
}
