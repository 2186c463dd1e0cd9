package rules

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/netaddr"
)

// networks finds the networks of an address by one binary search, whatever their number.
type networks[T any] struct {
	list []network[T] // IPv4 first, by address, the wider first
	keys []uint64     // the first 64 bits of each: most comparisons need no more
	six  int          // where IPv6 begins
}

type network[T any] struct {
	prefix netip.Prefix
	parent int // index of the smallest network that contains this one, or −1
	value  T
}

func newNetworks[T any](values map[netip.Prefix]T) (n networks[T]) {
	prefixes := slices.AppendSeq(make([]netip.Prefix, 0, len(values)), maps.Keys(values))
	slices.SortFunc(prefixes, widerFirst)
	n.list = make([]network[T], 0, len(prefixes))
	for _, prefix := range prefixes {
		n.list = append(n.list, network[T]{prefix: prefix, value: values[prefix]})
	}
	n.index()
	return n
}

// networksOf makes networks without values. It sorts the prefixes.
func networksOf(prefixes []netip.Prefix) (n networks[struct{}]) {
	slices.SortFunc(prefixes, widerFirst)
	prefixes = slices.Compact(prefixes)
	n.list = make([]network[struct{}], len(prefixes))
	for i, prefix := range prefixes {
		n.list[i].prefix = prefix
	}
	n.index()
	return n
}

func widerFirst(a, b netip.Prefix) int {
	if order := a.Addr().Compare(b.Addr()); order != 0 {
		return order
	}
	return a.Bits() - b.Bits()
}

// index computes keys, six and the parents; list is sorted.
func (n *networks[T]) index() {
	n.keys = make([]uint64, 0, len(n.list))
	for i := range n.list {
		address := n.list[i].prefix.Addr()
		n.keys = append(n.keys, firstBits(address))
		if address.Is4() {
			n.six = i + 1
		}
		parent := i - 1 // a network that contains this one contains those between them, too
		for parent >= 0 && !n.list[parent].prefix.Contains(address) {
			parent = n.list[parent].parent
		}
		n.list[i].parent = parent
	}
}

func firstBits(address netip.Addr) uint64 {
	if address.Is4() {
		four := address.As4()
		return uint64(binary.BigEndian.Uint32(four[:]))
	}
	sixteen := address.As16()
	return binary.BigEndian.Uint64(sixteen[:])
}

// find is the index of the smallest network that contains the address, or −1. Its parents contain it too.
func (n *networks[T]) find(address netip.Addr) int {
	low, high := 0, n.six
	if address.Is6() {
		low, high = n.six, len(n.list)
	}
	key := firstBits(address)
	for low < high { // finds the first that begins after the address
		middle := int(uint(low+high) / 2)
		if k := n.keys[middle]; k > key || k == key && address.Less(n.list[middle].prefix.Addr()) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	i := low - 1
	for i >= 0 && !n.list[i].prefix.Contains(address) {
		i = n.list[i].parent
	}
	return i
}

// parsePrefix reads an address or a network. allowed is set if it is invalid.
func parsePrefix(text string) (p netip.Prefix, allowed string) {
	p, err := netaddr.Parse(text)
	var input *weir.InputError
	if errors.As(err, &input) {
		return p, input.Allowed
	}
	return p, ""
}

// prefixes reads a list, and reports invalid and repeated ones.
func (b *builder) prefixes(p place, given []string) (list []netip.Prefix) {
	seen := make(map[netip.Prefix]bool, len(given))
	for j, text := range given {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) || text == unixPeers && p.field == proxiesField {
			continue
		}
		prefix, allowed := parsePrefix(text)
		switch {
		case allowed != "" && p.field == proxiesField:
			b.add(item, "%s has %.80q; allowed: %s; or unix", p.field, text, allowed)
		case allowed != "":
			b.add(item, "%s has %.80q; allowed: %s", p.field, text, allowed)
		case seen[prefix]:
			b.add(item, "%s has %.80q twice", p.field, text)
		}
		seen[prefix] = true
		list = append(list, prefix)
	}
	return list
}
