package memstore

import (
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// entry is one key's state under one limit name and algorithm, in its place of the table: 40 bytes.
//
// The lowest bit of word is a lock. A state is held in one of three forms:
//
//	narrow  a continuous bucket with units of a small denominator: all of it in word, see pack.
//	        A grant is one compare-and-swap. part is minus the denominator.
//	wide    two numbers: word, shifted left, and part, which is never negative.
//	large   behind owner, see large, under its own mutex; word is only the mark of an entry that moved or is dead.
//
// An entry never changes between narrow and wide, nor its denominator: its key gets another entry then. So a narrow
// word that is unchanged stands for an unchanged state. A writer of a wide state holds the lock. A charge
// never leads back to an earlier state; other writes, which may, increment seq. So a reader that saw the same seq,
// part and unlocked word before and after has seen one state.
type entry struct {
	hash  uint64 // hash and tag are written before owner, and not again
	tag   uint32
	seq   atomic.Uint32
	owner atomic.Pointer[owner] // nil: an empty place
	word  atomic.Int64
	part  atomic.Int64
}

// owner is the limit that wrote a state. Entries of small states share owners; a large state begins with its
// owner.
type owner struct{ limit *weir.Limit }

const (
	locked = 1
	// dead is the word of an entry that left the table: locked for ever.
	dead = math.MinInt64 | 2 | locked
	// never is the narrow word of a bucket never used.
	never = math.MinInt64

	partBits  = 12
	wordShift = partBits + 1
	// origin is the zero of narrow words, 2026-01-01: they reach 35 years to both sides of it. States
	// beyond are wide.
	origin = 1_767_225_600_000_000

	// sharedTag marks the overflow key of a limit.
	sharedTag = 1 << 31
)

// id identifies a key in the table.
type id struct {
	hash uint64
	tag  uint32
}

func (e *entry) id() id { return id{e.hash, e.tag} }

func (e *entry) shared() bool { return e.tag&sharedTag != 0 }

// lock keeps others from changing the state. The caller holds the shard's mutex, so it waits for no longer than a
// decision of one claim takes.
func (e *entry) lock() {
	if big := e.owner.Load().large(); big != nil {
		big.mu.Lock()
		return
	}
	for spins := 0; ; spins++ {
		word := e.word.Load()
		if word&locked == 0 && e.word.CompareAndSwap(word, word|locked) {
			return
		}
		if spins > 100 { // its holder was interrupted
			runtime.Gosched()
		}
	}
}

func (e *entry) unlock() {
	if big := e.owner.Load().large(); big != nil {
		big.mu.Unlock()
		return
	}
	if word := e.word.Load(); word != dead {
		e.word.Store(word &^ locked)
	}
}

// pack is a state as a narrow word: the instant, counted from the origin, above the part and the lock.
func pack(st state) int64 {
	if st.a == 0 && st.b == 0 {
		return never
	}
	return (st.a-origin)<<wordShift | st.b<<1
}

func unpack(word int64) state {
	if word&^locked == never {
		return state{}
	}
	return state{a: origin + word>>wordShift, b: word >> 1 & (1<<partBits - 1)}
}

// form is the part of an entry that can hold a state narrow; 0 where it must be wide or large.
func form(l *weir.Limit, st state) int64 {
	const most = 1<<(63-wordShift) - 1
	if !bucket.Short(l) || st != (state{}) && (st.a <= origin-most || st.a >= origin+most) {
		return 0
	}
	return -l.Interval().Den
}

// holds reports whether the entry is of that form.
func (e *entry) holds(form int64) bool { return min(e.part.Load(), 0) == form }

// stateOf reads a state from its word and part.
func stateOf(word, part int64, big *large) state {
	if part < 0 {
		return unpack(word)
	}
	return state{a: word >> 1, b: part, large: big}
}

// read is the state of an entry that is locked.
func (e *entry) read() state {
	return stateOf(e.word.Load(), e.part.Load(), e.owner.Load().large())
}

// write puts a state into a locked entry of its form, which stays locked.
func (e *entry) write(st state) {
	if part := e.part.Load(); part < 0 {
		e.word.Store(pack(st) | locked)
	} else if st.large == nil {
		e.part.Store(st.b)
		e.word.Store(st.a<<1 | locked)
	}
	e.seq.Add(1)
}

// table is an open-addressing hash table with readers that take no lock. Writers hold the shard's mutex. A slot is used
// once: a dead entry stays until the table is replaced, so that a reader of the slot never finds another key in it.
type table struct {
	slots []entry
	used  int // places that are not empty
	live  int
}

func newTable(slots int) *table { return &table{slots: make([]entry, slots)} }

// home is where a hash begins to look. Its top bits chose the shard.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash<<shardBits, uint64(len(t.slots)))
	return int(hi)
}

func (t *table) next(i int) int {
	if i++; i == len(t.slots) {
		return 0
	}
	return i
}

func (t *table) find(key id, limit *weir.Limit) *entry {
	for i := t.home(key.hash); ; i = t.next(i) {
		e := &t.slots[i]
		own := e.owner.Load()
		if own == nil {
			return nil
		}
		if e.hash == key.hash && e.tag == key.tag && own.limit.SameState(limit) && e.word.Load() != dead {
			return e
		}
	}
}

// put makes an entry that is not there. The table has an empty place.
func (t *table) put(key id, own *owner, word, part int64) *entry {
	i := t.home(key.hash)
	for t.slots[i].owner.Load() != nil {
		i = t.next(i)
	}
	e := &t.slots[i]
	e.hash, e.tag = key.hash, key.tag
	e.word.Store(word)
	e.part.Store(part)
	e.owner.Store(own)
	t.used++
	t.live++
	return e
}

// fits reports whether n more entries leave a fifth of the places empty. Searches end at empty places.
func (t *table) fits(n int) bool { return 5*(t.used+n) <= 4*len(t.slots) }

// roomy is how many places n entries need, with a fifth to spare.
func roomy(n int) int { return 4 + n + n/2 + n/16 }

// all yields the entries that are not dead; a writer may drop the one it was given.
func (t *table) all(yield func(*entry) bool) {
	for i := range t.slots {
		e := &t.slots[i]
		if e.owner.Load() != nil && e.word.Load() != dead && !yield(e) {
			return
		}
	}
}

// reserve makes room for n entries in a shard. The caller holds the shard's mutex and no lock of its entries.
func (s *Store) reserve(sh *shard, n int) {
	if t := sh.table.Load(); !t.fits(n) {
		s.resize(sh, roomy(t.live+n))
	}
}

// resize moves the entries of a shard to a new table. Those in the old one stay locked: a reader that still
// has one of them takes the shard's mutex, and finds the new one.
func (s *Store) resize(sh *shard, slots int) {
	old, resized := sh.table.Load(), newTable(slots)
	for e := range old.all {
		e.lock()
		own := e.owner.Load()
		resized.put(e.id(), own, e.word.Load()&^locked, e.part.Load())
		e.word.Store(e.word.Load() | locked)
		if big := own.large(); big != nil {
			big.mu.Unlock()
		}
	}
	sh.table.Store(resized)
	sh.forget()
}

// tryLarge locks a large state, if it is unlocked and still belongs to the entry.
func (e *entry) tryLarge(big *large) bool {
	if !big.mu.TryLock() {
		return false
	}
	if e.owner.Load() == &big.owner && e.word.Load() == 0 {
		return true
	}
	big.mu.Unlock()
	return false
}

// become gives a locked entry another large state, which is locked then.
func (e *entry) become(next *large) {
	before := e.owner.Load().large()
	next.mu.Lock()
	e.owner.Store(&next.owner)
	before.mu.Unlock()
}
