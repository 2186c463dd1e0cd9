package slidingcounter

import (
	"encoding/binary"
	"fmt"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

const header = 25 // '4' or '8', the newest slice, a slice's length, the sum

// Decode reads a state as slidingcounter.lua packs it for limit l; "" is the empty one.
func Decode(packed string, l *weir.Limit) (*State, error) {
	if packed == "" {
		return new(State), nil
	}
	size := int64(packed[0] - '0')
	count := l.Slices() + 1
	if size != 4 && size != 8 || int64(len(packed)) != header+count*size {
		return nil, fmt.Errorf("%w: %d bytes are no counter of %d slices", weir.ErrForeignState, len(packed), l.Slices())
	}
	s := &State{counts: make([]int64, count), newest: int64(word(packed[1:]))}
	s.head = int(algorithm.FloorMod(s.newest, count)) // where the script has it
	for i := range s.counts {
		at := header + int64(i)*size
		s.counts[i] = int64(word(packed[at : at+size]))
		s.total += s.counts[i]
	}
	return s, nil
}

// word is the little-endian number of the first 8 bytes, or of all if there are fewer.
func word(packed string) uint64 {
	var b [8]byte
	copy(b[:], packed)
	return binary.LittleEndian.Uint64(b[:])
}
