package memstore

import (
	"fmt"
	"unsafe"

	"github.com/weirproject/weir"
)

// ErrFull is returned (wrapped) if a request needs memory beyond the ceilings: a new key of a concurrency limit (a
// lease on a shared overflow key could not be found again), any new key of a store made WithoutOverflow, or a log that
// would grow. Nothing was charged. It is a [weir.ErrUnavailable], so a rule's on_store_error applies.
var ErrFull = fmt.Errorf("%w: memstore is full of keys in use and nothing was charged; "+
	"raise WithMaxKeys or WithMaxBytes (weir serve: --max-keys, --max-bytes)", weir.ErrUnavailable)

const (
	// keyBytes is the size of an entry with its share of empty slots.
	keyBytes = int64(unsafe.Sizeof(entry{})) * 25 / 16
	// largeBytes is the size of a large state without its contents.
	largeBytes = int64(unsafe.Sizeof(large{}) + unsafe.Sizeof(owner{}))
)

// bytes is the approximate memory of the keys and their states.
func (s *Store) bytes() int64 { return s.keys.Load()*keyBytes + s.large.Load() }

// measure updates the counted size of a large state after a change. The caller holds its mutex.
func (s *Store) measure(own *owner) {
	big := own.large
	bytes := largeBytes
	switch own.limit.Algorithm() {
	case weir.AlgorithmSlidingLog:
		bytes += big.log.Bytes()
	case weir.AlgorithmSlidingCounter:
		bytes += big.counter.Bytes()
	case weir.AlgorithmConcurrency:
		bytes += big.leases.Bytes()
	}
	if bytes != big.bytes {
		s.large.Add(bytes - big.bytes)
		big.bytes = bytes
	}
}

// spare reports whether a charge under the limit needs no memory, or memory is left.
func (s *Store) spare(l *weir.Limit, st state, now int64) bool {
	if st.large == nil || s.bytes() < s.maxBytes {
		return true
	}
	return l.Algorithm() != weir.AlgorithmConcurrency &&
		(l.Algorithm() != weir.AlgorithmSlidingLog || !st.large.log.Full(l, now))
}
