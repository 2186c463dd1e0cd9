// Package mix spreads the bits of hashes that the layers combine for their tables.
package mix

import "math/bits"

// Bits returns a hash of which all bits depend on all bits of the argument: tables take an index from a few of them.
func Bits(combined uint64) uint64 {
	hi, lo := bits.Mul64(combined, 0x9e3779b97f4a7c15)
	return hi ^ lo
}
