package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// keyer hashes keys. The table holds 95 bits of a key's hash instead of its text: an entry has one size whatever the
// key's length, and one look finds it. Two keys share a counter if those bits agree: a chance of
// about 10^-17 among a million keys. Clients cannot choose such keys, because the random words are secret to the
// process. The construction is wyhash (Wang Yi), twice over.
type keyer [8]uint64

func newKeyer() (k keyer) {
	var random [8 * len(k)]byte
	rand.Read(random[:]) // never fails: see its documentation
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(random[8*i:])
	}
	return k
}

// sum is two hashes of a key.
func (k *keyer) sum(key string) (a, b uint64) {
	size := uint64(len(key))
	a, b = k[0], k[1]
	for len(key) > 16 {
		x, y := load64(key), load64(key[8:])
		a, b = fold(x^k[2], y^a), fold(x^k[3], y^b)
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
	a, b = fold(x^k[4], y^a), fold(x^k[5], y^b)
	return fold(a^size, k[6]), fold(b^size, k[7])
}

// member is the number of a member of a fair limit.
func (k *keyer) member(name string) uint64 {
	a, _ := k.sum(name)
	return a
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
