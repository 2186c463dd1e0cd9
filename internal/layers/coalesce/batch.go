package coalesce

import (
	"fmt"
	"math/bits"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

const (
	// mostClaims bounds the claims of a batch: a script over more keys would block Redis for longer than others
	// should wait, and costs no less for each key.
	mostClaims = 64

	// mostMerged bounds the callers of one request: any cost × times stays below 2^63.
	mostMerged = 1024
)

// A batch is callers that wait together, and their results. The shard's mutex guards it until it is sealed. Then
// it belongs to the sender, and after done is closed the callers may read it; the last one to release it
// returns it to the pool.
type batch struct {
	groups  []group
	index   [2 * mostClaims]uint8 // hash table of 1 + the index in groups, 0: none
	claims  int
	waiting int
	opened  time.Time // when the first caller joined
	sealed  bool

	requests  []weir.Request
	decisions []weir.Decision // buffer of all requests
	returned  bool            // the store returned, did not panic
	done      chan struct{}
	holders   atomic.Int64
}

// A group is the callers with equal claims. Each has a ticket, numbered from 0.
type group struct {
	hash    uint64
	claims  []weir.Claim // a copy, because the first caller may leave first
	wanted  bool         // a caller wants decisions
	tickets int
	waiting int
	left    []uint64 // nil, or one bit for each ticket whose caller has left
	request int      // index in requests
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(now time.Time) *batch {
	b := batches.Get().(*batch)
	b.done, b.opened = make(chan struct{}), now
	return b
}

// recycle keeps the memory, but no keys and no limits.
func (b *batch) recycle() {
	for i := range b.groups {
		g := &b.groups[i]
		clear(g.claims)
		*g = group{claims: g.claims[:0]}
	}
	clear(b.requests)
	if cap(b.decisions) > mostMerged {
		b.decisions = nil
	}
	*b = batch{groups: b.groups[:0], requests: b.requests[:0], decisions: b.decisions[:0]}
	batches.Put(b)
}

// find returns the group of claims, or −1 and the free place in the index. Without claims, the hash is compared
// alone.
func (b *batch) find(hash uint64, claims []weir.Claim) (group, place int) {
	for place = int(hash % uint64(len(b.index))); b.index[place] != 0; place = (place + 1) % len(b.index) {
		group = int(b.index[place]) - 1
		if g := &b.groups[group]; g.hash == hash && (claims == nil || same(g.claims, claims)) {
			return group, place
		}
	}
	return -1, place
}

// same compares limits by identity: after a reload, numbers may differ under one name.
func same(a, b []weir.Claim) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Limit != b[i].Limit || a[i].Cost != b[i].Cost || a[i].Key != b[i].Key {
			return false
		}
	}
	return true
}

// join adds a caller. ok is false if there is no room.
func (b *batch) join(hash uint64, claims []weir.Claim, wanted bool) (group, ticket int, ok bool) {
	group, place := b.find(hash, claims)
	if group < 0 {
		if b.claims+len(claims) > mostClaims {
			return 0, 0, false
		}
		group = len(b.groups)
		b.open(hash, claims)
		b.index[place] = uint8(group + 1)
	}
	g := &b.groups[group]
	if g.tickets == mostMerged {
		return 0, 0, false
	}
	b.waiting++
	g.waiting++
	g.tickets++
	g.wanted = g.wanted || wanted
	return group, g.tickets - 1, true
}

// open adds a group, in recycled memory if there is some.
func (b *batch) open(hash uint64, claims []weir.Claim) {
	n := len(b.groups)
	if n == cap(b.groups) {
		b.groups = append(b.groups, group{})
	}
	b.groups = b.groups[:n+1]
	g := &b.groups[n]
	g.hash, g.claims = hash, append(g.claims, claims...)
	for i := range g.claims {
		g.claims[i].Key = strings.Clone(g.claims[i].Key)
	}
	b.claims += len(claims)
}

// remove takes a caller out.
func (b *batch) remove(group, ticket int) {
	b.waiting--
	g := &b.groups[group]
	if g.waiting--; g.waiting == 0 {
		g.tickets, g.left = 0, nil
		return
	}
	if g.left == nil {
		g.left = make([]uint64, mostMerged/64)
	}
	g.left[ticket/64] |= 1 << (ticket % 64)
}

// place is the position of a ticket among those that stayed.
func (g *group) place(ticket int) int {
	if g.left == nil {
		return ticket
	}
	place := ticket - bits.OnesCount64(g.left[ticket/64]&(1<<(ticket%64)-1))
	for _, word := range g.left[:ticket/64] {
		place -= bits.OnesCount64(word)
	}
	return place
}

// seal ends joining and leaving, and makes a request of each group.
func (b *batch) seal() {
	b.sealed = true
	b.holders.Store(int64(b.waiting) + 1) // and the sender
	n := b.wanted()
	if cap(b.decisions) < n {
		b.decisions = make([]weir.Decision, n)
	}
	free := b.decisions[:n]
	for i := range b.groups {
		g := &b.groups[i]
		if g.waiting == 0 {
			continue // times = 0 would be a peek
		}
		r := weir.Request{Claims: g.claims, Times: int64(g.waiting)}
		if g.wanted {
			n := g.waiting * len(g.claims)
			r.Decisions, free = free[:n:n], free[n:]
		}
		g.request = len(b.requests)
		b.requests = append(b.requests, r)
	}
}

// wanted counts the decisions that the requests have room for.
func (b *batch) wanted() (n int) {
	for i := range b.groups {
		if g := &b.groups[i]; g.wanted {
			n += g.waiting * len(g.claims)
		}
	}
	return n
}

// finish wakes the callers, also when the store panicked or its goroutine ended.
func (b *batch) finish() {
	if !b.returned {
		b.fail(recover())
	}
	close(b.done)
}

// fail turns a panic into the error of all callers. It has the stack, which no caller's stack shows.
func (b *batch) fail(panicked any) {
	err := fmt.Errorf("%w (%s): the store panicked: %v\n%s",
		weir.ErrUnavailable, perhapsExecuted, panicked, debug.Stack())
	for i := range b.requests {
		b.requests[i].Err = err
	}
}

// release drops one holder of a sealed batch.
func (b *batch) release() {
	if b.holders.Add(-1) == 0 {
		b.recycle()
	}
}
