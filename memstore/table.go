package memstore

import (
	"math"
	"math/bits"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir"
)

// node is one key's state under one limit name and algorithm: 64 bytes, one cache line,
// with the key in it if that is short.
//
// The word holds the first number of the state, shifted left, and a lock in its lowest
// bit. A continuous bucket without parts is that one number, so a grant is one
// compare-and-swap of it; whoever writes more than the word holds the shard's mutex, sets
// the lock, which stops the others, and raises seq around the change. A reader that saw
// the same even seq and word before and after has seen one state.
type node struct {
	size  uint8 // of the key; beyond it the key is in more
	short [shortKey]byte
	seq   atomic.Uint32
	limit atomic.Pointer[weir.Limit] // whose numbers wrote the state
	word  atomic.Int64
	part  atomic.Int64 // the second number of the state
	more  *more
}

// more is what does not fit into a node.
type more struct {
	key   string
	large atomic.Pointer[large]
}

const (
	shortKey = 23

	locked = 1
	// dead is the word of a node that left the table: locked for ever.
	dead = math.MinInt64 | locked
)

// newNode is a key never used, locked.
func newNode(key string, limit *weir.Limit) *node {
	n := &node{}
	if n.size = uint8(len(key)); len(key) > shortKey {
		n.size = shortKey + 1
	}
	if isLarge(limit) || len(key) > shortKey {
		n.more = &more{key: strings.Clone(key)} // the caller's may be part of a large request
	}
	if isLarge(limit) {
		n.more.large.Store(new(large))
	}
	copy(n.short[:], key)
	n.limit.Store(limit)
	n.word.Store(locked)
	return n
}

func (n *node) is(key string, limit *weir.Limit) bool {
	if n.size <= shortKey {
		return string(n.short[:n.size]) == key && n.limit.Load().SameState(limit)
	}
	return n.more.key == key && n.limit.Load().SameState(limit)
}

// key is the node's key; "" is the overflow key of its limit.
func (n *node) key() string {
	if n.size <= shortKey {
		return string(n.short[:n.size])
	}
	return n.more.key
}

func (n *node) shared() bool { return n.size == 0 }

func (n *node) large() *large {
	if n.more == nil {
		return nil
	}
	return n.more.large.Load()
}

// state is what the node holds.
func (n *node) state() state { return state{a: n.word.Load() >> 1, b: n.part.Load(), large: n.large()} }

// lock stops compare-and-swaps of the word. The caller holds the shard's mutex.
func (n *node) lock() {
	for {
		word := n.word.Load()
		if n.word.CompareAndSwap(word, word|locked) {
			return
		}
	}
}

// unlock lets compare-and-swaps pass again, unless the node is dead.
func (n *node) unlock() {
	if word := n.word.Load(); word != dead {
		n.word.Store(word &^ locked)
	}
}

// store puts a state into a locked node, which stays locked.
func (n *node) store(limit *weir.Limit, s state) {
	if n.limit.Load() != limit {
		n.limit.Store(limit)
	}
	if n.part.Load() != s.b {
		n.part.Store(s.b)
	}
	if n.large() != s.large {
		n.more.large.Store(s.large)
	}
	n.word.Store(s.a<<1 | locked)
}

// group is seven places of the table and their control bytes: one cache line. A control
// byte is 0 for empty, 1 for left, and otherwise 0x80 with seven bits of the hash; the
// eighth is never used.
type group struct {
	control atomic.Uint64
	nodes   [places]atomic.Pointer[node]
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x0080808080808080
	left     = 1
	places   = 7
)

func tag(hash uint64) uint64 { return hash&0x7f | 0x80 }

// matching marks the high bit of each byte of control that equals b. It may mark a byte
// above a true match that differs in its lowest bit: the caller compares the key.
func matching(control, b uint64) uint64 {
	x := control ^ (lowBits * b)
	return (x - lowBits) &^ x & highBits
}

// table is an open-addressing hash table whose readers take no lock (after the control
// bytes of the Swiss table, abseil.io/about/design/swisstables). Writers hold the shard's
// mutex. Entries do not move; a table that is full is replaced.
type table struct {
	groups []group
	taken  int // places that are not empty
	live   int
}

func newTable(groups int) *table { return &table{groups: make([]group, groups)} }

// home is the group where a hash begins to look. The top bits chose the shard.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash<<shardBits, uint64(len(t.groups)))
	return int(hi)
}

func (t *table) next(i int) int {
	if i++; i == len(t.groups) {
		return 0
	}
	return i
}

func (t *table) find(hash uint64, key string, limit *weir.Limit) *node {
	for i := t.home(hash); ; i = t.next(i) {
		g := &t.groups[i]
		control := g.control.Load()
		for m := matching(control, tag(hash)); m != 0; m &= m - 1 {
			n := g.nodes[bits.TrailingZeros64(m)/8].Load()
			if n != nil && n.is(key, limit) {
				return n
			}
		}
		if matching(control, 0) != 0 {
			return nil
		}
	}
}

// put adds a node that is not there. The table has an empty place.
func (t *table) put(hash uint64, n *node) {
	for i := t.home(hash); ; i = t.next(i) {
		g := &t.groups[i]
		control := g.control.Load()
		free := ^control & highBits
		if free == 0 {
			continue
		}
		at := bits.TrailingZeros64(free) / 8
		if control>>(8*at)&0xff != left {
			t.taken++
		}
		t.live++
		g.nodes[at].Store(n) // before the control byte, by which readers find it
		g.control.Store(control&^(0xff<<(8*at)) | tag(hash)<<(8*at))
		return
	}
}

// remove takes a node out, if it is there. Its place may become empty only where its group has
// another empty one: else some other key's search went through this group.
func (t *table) remove(hash uint64, n *node) {
	for i := t.home(hash); ; i = t.next(i) {
		g := &t.groups[i]
		control := g.control.Load()
		for at := range g.nodes {
			if g.nodes[at].Load() != n {
				continue
			}
			control &^= 0xff << (8 * at)
			if matching(g.control.Load(), 0) != 0 {
				t.taken--
			} else {
				control |= left << (8 * at)
			}
			t.live--
			g.control.Store(control)
			g.nodes[at].Store(nil)
			return
		}
		if matching(control, 0) != 0 {
			return
		}
	}
}

// full reports whether the next put needs a larger table: at 6/7, a search still ends soon.
func (t *table) full() bool { return t.taken >= len(t.groups)*(places-1) }

// grown is how many groups a full table should have instead. It grows by a quarter once
// it is large: at a million keys, doubling would leave up to half of it empty.
func (t *table) grown() int {
	groups := len(t.groups)
	if t.live > (places-2)*groups { // else there is room enough in places that were left
		groups += max(groups/4, min(groups, 16))
	}
	return groups
}

// shrunk is how many groups the nodes need.
func (t *table) shrunk() int { return 1 + t.live/(places-2) }

// all yields the nodes; a writer may remove the one it was given.
func (t *table) all(yield func(*node) bool) {
	for i := range t.groups {
		for at := range t.groups[i].nodes {
			if n := t.groups[i].nodes[at].Load(); n != nil && !yield(n) {
				return
			}
		}
	}
}
