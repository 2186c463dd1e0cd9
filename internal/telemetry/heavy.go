package telemetry

import (
	"math"
	"strings"
)

// maxTop is the number of keys that a sketch lists.
const maxTop = 200

// A sketch finds the most frequent of any number of keys: HeavyKeeper (Gong et al., USENIX ATC 2018). Each of two
// rows has a cell for a key, with the fingerprint and the count of the key that owns it. Another key decrements the
// count, with a probability that falls exponentially with the count, and takes the cell at 0: keys that are rare
// have no chance against frequent ones. A count is never too large, unless fingerprints collide. A Space-Saving
// table of equal size, which evicts the least key for each new one, loses frequent keys in a flood of new ones.
// It is not safe for concurrent use.
type sketch struct {
	rows   [2][]cell
	state  uint64  // of random
	counts int     // calls of add
	weight float64 // sum of their weights
	top    []heavyKey
	place  map[uint64]int // of hashes in top
}

type cell struct{ print, count uint32 }

// A heavyKey is a key with the estimated number of its events.
type heavyKey struct {
	hash  uint64
	key   string
	count uint32
}

// newSketch makes a sketch with rows of a number of cells, a power of two up to 2^16.
func newSketch(cells int) *sketch {
	s := &sketch{state: 1, place: make(map[uint64]int, maxTop)}
	for i := range s.rows {
		s.rows[i] = make([]cell, cells)
	}
	return s
}

// reset forgets all keys.
func (s *sketch) reset() {
	for i := range s.rows {
		clear(s.rows[i])
	}
	clear(s.top)
	clear(s.place)
	s.top, s.counts, s.weight = s.top[:0], 0, 0
}

// decay has the probability of a decrement for each count, as a part of 2^32; larger counts are safe.
var decay = func() (list [256]uint32) {
	for count := range list {
		list[count] = uint32(math.Pow(1.08, -float64(count)) * math.MaxUint32)
	}
	return list
}()

// random is xorshift64 (Marsaglia 2003).
func (s *sketch) random() uint32 {
	s.state ^= s.state << 13
	s.state ^= s.state >> 7
	s.state ^= s.state << 17
	return uint32(s.state >> 32)
}

// add counts an event of a key that stands for weight events. The key is copied if it is listed.
func (s *sketch) add(hash uint64, key string, weight float64) {
	s.weight += weight
	s.counts++
	var count uint32
	for i := range s.rows {
		row := s.rows[i]
		c := &row[hash>>(1+16*i)&uint64(len(row)-1)]
		if c.hit(uint32(hash>>32), s) {
			count = max(count, c.count)
		}
	}
	if count > 0 {
		s.list(hash, key, count)
	}
}

// hit counts an event of the key with a fingerprint, and reports whether the key owns the cell.
func (c *cell) hit(print uint32, s *sketch) bool {
	switch {
	case c.count > 0 && c.print == print:
		c.count++
		return true
	case c.count >= uint32(len(decay)) || c.count > 0 && s.random() > decay[c.count]:
		return false
	case c.count > 1:
		c.count--
		return false
	}
	*c = cell{print, 1}
	return true
}

// list puts a key among the top ones, if it is.
func (s *sketch) list(hash uint64, key string, count uint32) {
	if i, listed := s.place[hash]; listed {
		s.top[i].count = max(s.top[i].count, count)
		s.down(i)
		return
	}
	if len(s.top) < maxTop {
		s.top = append(s.top, heavyKey{hash, strings.Clone(key), count})
		s.place[hash] = len(s.top) - 1
		s.up(len(s.top) - 1)
		return
	}
	if count > s.top[0].count {
		delete(s.place, s.top[0].hash)
		s.top[0] = heavyKey{hash, strings.Clone(key), count}
		s.place[hash] = 0
		s.down(0)
	}
}

// up and down keep top a heap with the least count first.
func (s *sketch) up(i int) {
	for parent := (i - 1) / 2; i > 0 && s.top[i].count < s.top[parent].count; parent = (i - 1) / 2 {
		s.swap(i, parent)
		i = parent
	}
}

func (s *sketch) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.top); child++ {
			if s.top[child].count < s.top[least].count {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

func (s *sketch) swap(i, j int) {
	s.top[i], s.top[j] = s.top[j], s.top[i]
	s.place[s.top[i].hash], s.place[s.top[j].hash] = i, j
}

// mean is the mean weight of an event.
func (s *sketch) mean() float64 { return s.weight / float64(max(1, s.counts)) }
