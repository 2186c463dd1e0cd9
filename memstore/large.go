package memstore

import (
	"sync"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
	"github.com/weirproject/weir/internal/algorithm/slidingcounter"
	"github.com/weirproject/weir/internal/algorithm/slidinglog"
)

// large is the state of an algorithm that needs more than two numbers: the head of a logState, a counterState or a
// leaseState, as its limit says. So a key of a counter or a log is one piece of memory, a line of the cache.
//
// A decision of one claim takes its mutex alone; one of several holds the shards' mutexes before, so that no two of
// them wait for each other.
type large struct {
	owner
	mu sync.Mutex
}

type logState struct {
	large
	state slidinglog.State
}

type counterState struct {
	large
	state slidingcounter.State
}

type leaseState struct {
	large
	state concurrency.State
}

func isLarge(l *weir.Limit) bool { return l.Algorithm() >= weir.AlgorithmSlidingLog }

// newLarge is a state never used under the limit.
func newLarge(l *weir.Limit) (b *large) {
	switch l.Algorithm() {
	case weir.AlgorithmSlidingLog:
		b = &new(logState).large
	case weir.AlgorithmSlidingCounter:
		b = &new(counterState).large
	default:
		b = &new(leaseState).large
	}
	b.limit = l
	return b
}

// unused is read as the state of a key never used; it is never written.
func unused(l *weir.Limit) state {
	if isLarge(l) {
		return state{large: empty[l.Algorithm()]}
	}
	return state{}
}

var empty = [...]*large{
	weir.AlgorithmSlidingLog:     &new(logState).large,
	weir.AlgorithmSlidingCounter: &new(counterState).large,
	weir.AlgorithmConcurrency:    &new(leaseState).large,
}

// large is the state that the owner is the head of; nil, if it is one of small states.
func (o *owner) large() *large {
	if !isLarge(o.limit) {
		return nil
	}
	return (*large)(unsafe.Pointer(o))
}

func (b *large) log() *slidinglog.State { return &(*logState)(unsafe.Pointer(b)).state }

func (b *large) counter() *slidingcounter.State { return &(*counterState)(unsafe.Pointer(b)).state }

func (b *large) leases() *concurrency.State { return &(*leaseState)(unsafe.Pointer(b)).state }

// under is the state with another limit of its algorithm, instead of the one before.
func (b *large) under(l *weir.Limit) *large {
	moved := newLarge(l)
	switch l.Algorithm() {
	case weir.AlgorithmSlidingLog:
		*moved.log() = *b.log()
	case weir.AlgorithmSlidingCounter:
		*moved.counter() = *b.counter()
	default:
		*moved.leases() = *b.leases()
	}
	return moved
}

// size is about the memory of the state.
func (b *large) size() int64 {
	switch b.limit.Algorithm() {
	case weir.AlgorithmSlidingLog:
		return int64(unsafe.Sizeof(logState{})) + b.log().Bytes()
	case weir.AlgorithmSlidingCounter:
		return int64(unsafe.Sizeof(counterState{})) + b.counter().Bytes()
	default:
		return int64(unsafe.Sizeof(leaseState{})) + b.leases().Bytes()
	}
}

// growth is by how many bytes a charge of n units under the limit makes the state larger.
func (b *large) growth(l *weir.Limit, n, now int64) int64 {
	switch l.Algorithm() {
	case weir.AlgorithmSlidingLog:
		return b.log().Growth(l, now)
	case weir.AlgorithmSlidingCounter:
		return b.counter().Growth(l, n, now)
	default:
		return concurrency.LeaseBytes
	}
}
