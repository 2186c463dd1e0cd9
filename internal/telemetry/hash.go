package telemetry

import "math/bits"

// A hasher hashes keys, by the construction of wyhash (Wang Yi). Its words are secret: a client that knew them could
// choose keys that are in every sample. Nodes with the same seed choose the same keys.
type hasher [4]uint64

// newHasher draws the words from a seed, by splitmix64 (Steele, Lea, Flood 2014).
func newHasher(seed uint64) (h hasher) {
	for i := range h {
		seed += 0x9e3779b97f4a7c15
		x := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		h[i] = (x ^ x>>31) | 1
	}
	return h
}

// sum is an even hash above 0: the lowest bit of a slot has another use, and 0 is an empty slot.
func (h *hasher) sum(key string) uint64 {
	size, a := uint64(len(key)), h[0]
	for len(key) > 16 {
		a = fold(load64(key)^h[1], load64(key[8:])^a)
		key = key[16:]
	}
	var x, y uint64
	switch n := len(key); {
	case n >= 8:
		x, y = load64(key), load64(key[n-8:])
	case n >= 4:
		x, y = load32(key), load32(key[n-4:])
	case n > 0:
		x = uint64(key[0])<<16 | uint64(key[n/2])<<8 | uint64(key[n-1])
	}
	return max(2, fold(x^h[2]^size*h[3], y^a)&^1)
}

// fold is both halves of a product.
func fold(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

// load64 is the first 8 bytes; the compiler makes one load of it.
func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func load32(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}
