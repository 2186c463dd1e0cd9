package memstore

import (
	"slices"
	"sync"
	"time"
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

// isLarge has the algorithms with large states. It has a place for each number, so that no index is checked.
var isLarge = largeKinds()

func largeKinds() (is [256]bool) {
	for a := range kinds {
		is[a] = kinds[a].keeper != nil
	}
	return is
}

// unused is read as the state of a key never used; it is never written.
func unused(l *weir.Limit) state { return state{large: empty[l.Algorithm()]} }

var empty = emptyStates()

func emptyStates() (list [len(kinds)]*large) {
	for a := range kinds {
		if kinds[a].keeper != nil {
			list[a] = kinds[a].empty()
		}
	}
	return list
}

// newLarge is a state never used under the limit.
func newLarge(l *weir.Limit) *large {
	b := kindOf(l).empty()
	b.limit = l
	return b
}

// large is the state that the owner is the head of; nil, if it is one of small states.
func (o *owner) large() *large {
	if !isLarge[o.limit.Algorithm()] {
		return nil
	}
	return (*large)(unsafe.Pointer(o))
}

// under is the state with another limit of its algorithm, instead of the one before.
func (b *large) under(l *weir.Limit) *large {
	moved := kindOf(l).copied(b)
	moved.limit = l
	return moved
}

// size is about the memory of the state.
func (b *large) size() int64 { return kindOf(b.limit).size(b) }

type logKind struct{ plain }

type logState struct {
	large
	state slidinglog.State
}

func (b *large) log() *slidinglog.State { return &(*logState)(unsafe.Pointer(b)).state }

func (*logKind) empty() *large { return &new(logState).large }

func (*logKind) copied(b *large) *large { return &(&logState{state: *b.log()}).large }

func (*logKind) used(b *large) bool { return b.log().Used() }

func (*logKind) size(b *large) int64 { return int64(unsafe.Sizeof(logState{})) + b.log().Bytes() }

func (*logKind) growth(b *large, l *weir.Limit, _, now int64) int64 { return b.log().Growth(l, now) }

func (*logKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	return s.large.log().Available(l, now.at) - floor
}

func (*logKind) charge(l *weir.Limit, s state, n int64, now moment, _ string) state {
	s.large.log().Charge(l, n, now.at)
	return s
}

func (*logKind) refund(l, other *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	return s, other, s.large.log().Refund(l, other, r.n, r.takenAt, now.at) > 0
}

func (*logKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision {
	return s.large.log().Decision(l, cost+floor, now.at)
}

func (*logKind) ahead(l *weir.Limit, s state, now moment) bool { return s.large.log().Ahead(l, now.at) }

func (*logKind) back(l *weir.Limit, s state, now moment) state {
	s.large.log().Back(l, now.at)
	return s
}

func (*logKind) newest(_ *weir.Limit, s state) int64 { return s.large.log().Newest() }

func (*logKind) take(l *weir.Limit, s state, cost, floor int64, now moment, peeks bool) (a, b, remaining int64,
	retryAfter, resetAfter, delay time.Duration, granted bool) {
	var d weir.Decision
	log := s.large.log()
	before := log.Bytes()
	granted = log.Take(l, cost, floor, now.at, !peeks, &d)
	return log.Bytes() - before, 0, d.Remaining, d.RetryAfter, d.ResetAfter, 0, granted
}

func (*logKind) numbers(s state) (list []int64, ids [][]byte) {
	for _, e := range s.large.log().Entries() {
		list = append(list, e.At, e.Units)
	}
	return list, nil
}

func (*logKind) restore(_ *weir.Limit, s state, list []int64, _ [][]byte) (state, bool) {
	var entries []slidinglog.Entry
	for i := 0; i+1 < len(list); i += 2 {
		if i > 0 && list[i] < list[i-2] || list[i+1] < 0 {
			return s, false
		}
		entries = append(entries, slidinglog.Entry{At: list[i], Units: list[i+1]})
	}
	*s.large.log() = *slidinglog.New(entries)
	return s, len(list)%2 == 0
}

type counterKind struct{}

type counterState struct {
	large
	state slidingcounter.State
}

func (b *large) counter() *slidingcounter.State { return &(*counterState)(unsafe.Pointer(b)).state }

func (*counterKind) empty() *large { return &new(counterState).large }

func (*counterKind) copied(b *large) *large { return &(&counterState{state: *b.counter()}).large }

func (*counterKind) used(b *large) bool { return b.counter().Used() }

func (*counterKind) size(b *large) int64 {
	return int64(unsafe.Sizeof(counterState{})) + b.counter().Bytes()
}

func (*counterKind) growth(b *large, l *weir.Limit, n, now int64) int64 {
	return b.counter().Growth(l, n, now)
}

func (*counterKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	return s.large.counter().Available(l, now.at) - floor
}

func (*counterKind) charge(l *weir.Limit, s state, n int64, now moment, _ string) state {
	s.large.counter().Charge(l, n, now.at)
	return s
}

func (*counterKind) refund(l, other *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	return s, other, s.large.counter().Refund(l, other, r.n, r.takenAt, now.at) > 0
}

func (*counterKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision {
	return s.large.counter().Decision(l, cost+floor, now.at)
}

func (*counterKind) ahead(l *weir.Limit, s state, now moment) bool {
	return s.large.counter().Ahead(l, now.at)
}

func (*counterKind) back(l *weir.Limit, s state, now moment) state {
	s.large.counter().Back(l, now.at)
	return s
}

// adopt is another state if the slices were converted.
func (*counterKind) adopt(from, to *weir.Limit, s state, now moment, charges bool) state {
	before := s.large.counter()
	after := before
	if charges {
		after = before.AdoptCharged(from, to, now.at)
	} else {
		after = before.Adopt(from, to, now.at)
	}
	if after == before {
		return s
	}
	converted := newLarge(to)
	*converted.counter() = *after
	return state{large: converted}
}

func (*counterKind) newest(l *weir.Limit, s state) int64 { return s.large.counter().Newest(l) }

func (*counterKind) take(l *weir.Limit, s state, cost, floor int64, now moment, peeks bool) (a, b, remaining int64,
	retryAfter, resetAfter, delay time.Duration, granted bool) {
	var d weir.Decision
	counter := s.large.counter()
	before := counter.Bytes()
	granted = counter.Take(l, cost, floor, now.at, !peeks, &d)
	return counter.Bytes() - before, 0, d.Remaining, d.RetryAfter, d.ResetAfter, 0, granted
}

func (*counterKind) numbers(s state) (list []int64, ids [][]byte) {
	newest, counts := s.large.counter().Counts()
	return append([]int64{newest}, counts...), nil
}

func (*counterKind) restore(l *weir.Limit, s state, list []int64, _ [][]byte) (state, bool) {
	if int64(len(list)) != l.Slices()+2 || slices.Min(list[1:]) < 0 {
		return s, false
	}
	*s.large.counter() = *slidingcounter.New(list[0], list[1:])
	return s, true
}

type leaseKind struct{ plain }

type leaseState struct {
	large
	state concurrency.State
}

func (b *large) leases() *concurrency.State { return &(*leaseState)(unsafe.Pointer(b)).state }

func (*leaseKind) empty() *large { return &new(leaseState).large }

func (*leaseKind) copied(b *large) *large { return &(&leaseState{state: *b.leases()}).large }

// used is false: a lease keeps its own expiry, so other numbers never make it count for longer.
func (*leaseKind) used(*large) bool { return false }

func (*leaseKind) size(b *large) int64 {
	return int64(unsafe.Sizeof(leaseState{})) + b.leases().Bytes()
}

func (*leaseKind) growth(*large, *weir.Limit, int64, int64) int64 { return concurrency.LeaseBytes }

func (*leaseKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	return s.large.leases().Available(l, now.at) - floor
}

func (*leaseKind) charge(l *weir.Limit, s state, n int64, now moment, lease string) state {
	s.large.leases().Take(l, lease, n, now.at)
	return s
}

func (*leaseKind) refund(l, _ *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	return s, l, s.large.leases().Release(r.lease, now.at)
}

func (*leaseKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision {
	return s.large.leases().Decision(l, cost+floor, now.at)
}

func (*leaseKind) numbers(s state) (list []int64, ids [][]byte) {
	for _, lease := range s.large.leases().Leases() {
		list, ids = append(list, lease.Expires, lease.Units), append(ids, []byte(lease.ID))
	}
	return list, ids
}

func (*leaseKind) restore(_ *weir.Limit, s state, list []int64, ids [][]byte) (state, bool) {
	leases, ok := leasesOf(list, ids, weir.MaxLease)
	*s.large.leases() = *concurrency.New(leases)
	return s, ok
}

// leasesOf are the leases with these expiries and units, and ids of at most so many bytes.
func leasesOf(list []int64, ids [][]byte, most int) (leases []concurrency.Lease, ok bool) {
	for i, id := range ids {
		if len(list) != 2*len(ids) || list[2*i+1] < 1 || len(id) > most {
			return nil, false
		}
		leases = append(leases, concurrency.Lease{ID: string(id), Expires: list[2*i], Units: list[2*i+1]})
	}
	return leases, true
}
