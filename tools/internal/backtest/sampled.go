package backtest

// A sampled table has a record for each of up to max ids. Once there are more, it keeps the records of a half of all
// ids, then of a quarter, and so on: each record stands for weight() of them. Which ids are kept does not depend on
// their order or frequency.
//
// It is not a map because a replay waits for memory more than for anything else: a look-up in a map of Go
// misses the cache twice as often.
type sampled[T any] struct {
	max   int
	shift uint // 1 of 2^shift ids is kept
	slots []slot
	items []item[T]
	// moved, if not nil, is called with the new places of the records by their old ones; −1: it is dropped.
	moved func(places []int32)
}

// A slot refers to an item; its place is the item's, from 1; 0: the slot is empty.
type slot struct{ tag, place uint32 }

type item[T any] struct {
	id uint64
	v  T
}

func newSampled[T any](most int) *sampled[T] {
	return &sampled[T]{max: max(1, most), slots: make([]slot, 16)}
}

// place is the index of the record of an id, made if missing; −1: it is not kept.
func (s *sampled[T]) place(id uint64) int {
	hash := mixed(id)
	if i := s.find(id, hash); s.slots[i].place != 0 {
		return int(s.slots[i].place) - 1
	}
	for s.keeps(hash) {
		if len(s.items) < s.max {
			return s.insert(id, hash)
		}
		s.halve()
	}
	return -1
}

// known is the record of an id; nil: no record.
func (s *sampled[T]) known(id uint64) *T {
	if i := s.find(id, mixed(id)); s.slots[i].place != 0 {
		return &s.items[s.slots[i].place-1].v
	}
	return nil
}

// find is the slot of an id, or the empty one where it would be.
func (s *sampled[T]) find(id, hash uint64) int {
	mask := len(s.slots) - 1
	i := int(hash) & mask
	for ; s.slots[i].place != 0; i = (i + 1) & mask {
		if s.slots[i].tag == uint32(hash>>24) && s.items[s.slots[i].place-1].id == id {
			break
		}
	}
	return i
}

func (s *sampled[T]) insert(id, hash uint64) int {
	s.items = append(s.items, item[T]{id: id})
	if 2*len(s.items) > len(s.slots) {
		s.index(2 * len(s.slots))
	} else {
		s.slots[s.find(id, hash)] = slot{uint32(hash >> 24), uint32(len(s.items))}
	}
	return len(s.items) - 1
}

// index fills a new table of slots.
func (s *sampled[T]) index(slots int) {
	s.slots = make([]slot, slots)
	for i := range s.items {
		hash := mixed(s.items[i].id)
		at := int(hash) & (slots - 1)
		for s.slots[at].place != 0 {
			at = (at + 1) & (slots - 1)
		}
		s.slots[at] = slot{uint32(hash >> 24), uint32(i + 1)}
	}
}

// keeps reads the highest bits of the hash; slots are chosen by the lowest.
func (s *sampled[T]) keeps(hash uint64) bool { return s.shift == 0 || hash>>(64-s.shift) == 0 }

// halve keeps half of the records.
func (s *sampled[T]) halve() {
	s.shift++
	places := make([]int32, len(s.items))
	n := 0
	for i := range s.items {
		if places[i] = -1; s.keeps(mixed(s.items[i].id)) {
			places[i] = int32(n)
			s.items[n] = s.items[i]
			n++
		}
	}
	clear(s.items[n:])
	s.items = s.items[:n]
	s.index(len(s.slots))
	if s.moved != nil {
		s.moved(places)
	}
}

// weight is how many ids a record stands for.
func (s *sampled[T]) weight() int64 { return 1 << s.shift }

// mixed is the finalizer of splitmix64 (Steele et al. 2014): equal in every process, so that reports are.
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
