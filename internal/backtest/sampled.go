package backtest

// A sampled table has a record for each of up to max ids. Once there are more, it keeps those of a half of all ids,
// then of a quarter, and so on: each record stands for weight() of them. Which ids are kept does not depend on their
// order or frequency.
type sampled[T any] struct {
	max   int
	shift uint // 1 of 2^shift ids is kept
	index map[uint64]int32
	ids   []uint64
	items []T
	// drop, if not nil, is called before a record is dropped.
	drop func(*T)
}

func newSampled[T any](most int) *sampled[T] {
	return &sampled[T]{max: max(1, most), index: make(map[uint64]int32)}
}

// place is the index of the record of an id, made if missing; −1: it is not kept.
func (s *sampled[T]) place(id uint64) int {
	if i, ok := s.index[id]; ok {
		return int(i)
	}
	for s.keeps(id) {
		if len(s.items) < s.max {
			var zero T
			s.index[id] = int32(len(s.items))
			s.ids, s.items = append(s.ids, id), append(s.items, zero)
			return len(s.items) - 1
		}
		s.halve()
	}
	return -1
}

func (s *sampled[T]) keeps(id uint64) bool { return s.shift == 0 || mixed(id)>>(64-s.shift) == 0 }

// halve keeps half of the records.
func (s *sampled[T]) halve() {
	s.shift++
	clear(s.index)
	n := 0
	for i, id := range s.ids {
		if !s.keeps(id) {
			if s.drop != nil {
				s.drop(&s.items[i])
			}
			continue
		}
		s.ids[n], s.items[n] = id, s.items[i]
		s.index[id] = int32(n)
		n++
	}
	clear(s.items[n:])
	s.ids, s.items = s.ids[:n], s.items[:n]
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
