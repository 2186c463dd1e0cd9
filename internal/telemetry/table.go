package telemetry

import "sync/atomic"

// A table counts all requests of some keys: keys with a hash below a threshold, which are a random sample of the
// keys, and keys that the sketches found to be frequent. Observers add to it; the recorder takes the counts out.
type table struct {
	below uint64            // hashes of the sample are below
	some  atomic.Bool       // a bit of heavy is set
	heavy [64]atomic.Uint64 // a bit for 12 bits of each other hash: most keys that are not here are told by one look
	room  atomic.Int64      // keys that observers may still insert
	slots []slot
	extra []atomic.Int64 // units of the requests of each slot beyond one each
	spent []atomic.Int64 // units that each slot has spent; nil: the rule is not metered
	dear  atomic.Int64   // units by which another key is surely held
	watch *watched
}

// A slot counts one key. Four of them fill a cache line: a request costs one miss.
type slot struct {
	hash   atomic.Uint64 // with isNamed, once the text of the key was passed on; 0: the slot is free
	counts atomic.Uint64 // passed in the low half, oneRefused for each refused request
}

const (
	isNamed    = 1 // the lowest bit of a hash is 0
	oneRefused = 1 << 32
)

// newTable makes a table of some slots, a power of two; keys take at most 5/8 of them besides the frequent ones.
func newTable(slots int, below uint64) *table {
	t := &table{below: below, slots: make([]slot, slots), extra: make([]atomic.Int64, slots)}
	t.room.Store(int64(slots) * 5 / 8)
	return t
}

// find returns the place of a hash, or of the free slot where its probes end.
func (t *table) find(hash uint64) (place int, found bool) {
	for i := hash >> 1; ; i++ {
		place = int(i & uint64(len(t.slots)-1))
		switch there := t.slots[place].hash.Load(); there &^ isNamed {
		case hash:
			return place, true
		case 0:
			return place, false
		}
	}
}

// insert returns the place of a hash, which it takes for a new hash. It ends, because room is less than the
// slots.
func (t *table) insert(hash uint64) int {
	for {
		place, found := t.find(hash)
		if found || t.slots[place].hash.CompareAndSwap(0, hash) {
			return place
		}
	}
}

// addHeavy inserts a key for its frequency.
func (t *table) addHeavy(hash uint64) (place int) {
	place = t.insert(hash)
	t.heavy[hash>>7&63].Or(1 << (hash >> 1 & 63))
	t.some.Store(true)
	return place
}

// has reports whether the table may have a key.
func (t *table) has(hash uint64) bool {
	return hash < t.below || t.some.Load() && t.heavy[hash>>7&63].Load()>>(hash>>1&63)&1 != 0
}

// count counts a request of a key; nil: the table does not count this key.
func (t *table) count(hash, one uint64, cost int64) *slot {
	if !t.has(hash) {
		return nil
	}
	if s := &t.slots[hash>>1&uint64(len(t.slots)-1)]; cost == 1 && s.hash.Load() == hash|isNamed { // nearly always
		s.counts.Add(one)
		return s
	}
	place, found := t.find(hash)
	if !found {
		if hash >= t.below || t.room.Load() <= 0 || t.room.Add(-1) < 0 {
			return nil
		}
		place = t.insert(hash)
	}
	s := &t.slots[place]
	s.counts.Add(one)
	if cost != 1 {
		t.extra[place].Add(cost - 1)
	}
	return s
}

// spend adds units that a key has spent. It reports whether the table counts the key.
func (t *table) spend(hash uint64, units int64) bool {
	if !t.has(hash) {
		return false
	}
	place, found := t.find(hash)
	if found {
		t.spent[place].Add(units)
	}
	return found
}

// takeSpent returns the units that a slot has spent and sets them to 0.
func (t *table) takeSpent(place int) int64 {
	if t.spent == nil || t.spent[place].Load() == 0 {
		return 0
	}
	return t.spent[place].Swap(0)
}

// take returns the counts of a slot and sets them to 0.
func (t *table) take(place int) (passed, refused uint32, units uint64) {
	s, extra := &t.slots[place], &t.extra[place]
	if s.counts.Load() == 0 {
		return 0, 0, 0
	}
	n := s.counts.Swap(0)
	passed, refused = uint32(n), uint32(n>>32)
	sum := int64(passed) + int64(refused)
	if extra.Load() != 0 {
		sum += extra.Swap(0)
	}
	return passed, refused, uint64(max(0, sum))
}
