package memstore

import (
	"fmt"
	"unsafe"

	"github.com/weirproject/weir"
)

// ErrFull is returned (wrapped) where a request needs memory that the ceilings do not leave: a new key of a concurrency
// limit (a lease on a key that others share could not be found again), any new key of a store made WithoutOverflow, or a
// log that would grow. Nothing was charged.
// It is a [weir.ErrUnavailable], so a rule's on_store_error decides.
var ErrFull = fmt.Errorf("%w: memstore is full of keys in use and nothing was charged; raise WithMaxKeys or WithMaxBytes (weir serve: --max-keys, --max-bytes)", weir.ErrUnavailable)

const (
	// keyBytes is an entry and its share of empty places.
	keyBytes = int64(unsafe.Sizeof(entry{})) * 25 / 16
	// largeBytes is a large state without what it holds.
	largeBytes = int64(unsafe.Sizeof(large{}) + unsafe.Sizeof(owner{}))
)

// bytes is about what the keys and their states take.
func (s *Store) bytes() int64 { return s.keys.Load()*keyBytes + s.large.Load() }

// measure counts what a large state takes, after it changed. The caller holds its mutex.
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

// spare reports whether a charge under the limit needs no memory, or there is some.
func (s *Store) spare(l *weir.Limit, st state, now int64) bool {
	if st.large == nil || s.bytes() < s.maxBytes {
		return true
	}
	return l.Algorithm() != weir.AlgorithmConcurrency && (l.Algorithm() != weir.AlgorithmSlidingLog || !st.large.log.Full(l, now))
}
