package rules

import (
	"fmt"
	"net/netip"
	"slices"
)

// networks finds the networks that an address lies in by one binary search, however many
// there are.
type networks[T any] []network[T]

type network[T any] struct {
	prefix netip.Prefix
	parent int // the smallest network round this one, or −1
	value  T
}

func newNetworks[T any](values map[netip.Prefix]T) networks[T] {
	list := make(networks[T], 0, len(values))
	for prefix, value := range values {
		list = append(list, network[T]{prefix: prefix, value: value})
	}
	slices.SortFunc(list, func(a, b network[T]) int {
		if order := a.prefix.Addr().Compare(b.prefix.Addr()); order != 0 {
			return order
		}
		return a.prefix.Bits() - b.prefix.Bits()
	})
	for i := range list {
		parent := i - 1 // a network round this one is round what lies between them, too
		for parent >= 0 && !list[parent].prefix.Contains(list[i].prefix.Addr()) {
			parent = list[parent].parent
		}
		list[i].parent = parent
	}
	return list
}

// find is the smallest network that the address lies in, or −1. The others are its
// parents.
func (n networks[T]) find(address netip.Addr) int {
	after, equal := slices.BinarySearchFunc(n, address, func(e network[T], a netip.Addr) int { return e.prefix.Addr().Compare(a) })
	if !equal {
		after--
	}
	for equal && after+1 < len(n) && n[after+1].prefix.Addr() == address {
		after++
	}
	for after >= 0 && !n[after].prefix.Contains(address) {
		after = n[after].parent
	}
	return after
}

// parsePrefix reads an address or a network. allowed is what would have been right.
func parsePrefix(text string) (p netip.Prefix, allowed string) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = plain(address)
		return netip.PrefixFrom(address, address.BitLen()), ""
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, "an address such as 192.0.2.7, or a network such as 10.0.0.0/8 or 2001:db8::/32"
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, "at least /96 for IPv4-mapped IPv6, or better the network of IPv4 itself"
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return p, fmt.Sprintf("%v for that network, %v for that one machine", p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	return p, ""
}

// plain is the one form of an address: IPv4 in IPv6 is IPv4, and zones are dropped.
func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// prefixes reads those of a list, and reports those that are none, or stand there twice.
func (b *builder) prefixes(p place, given []string) (list []netip.Prefix) {
	seen := make(map[netip.Prefix]bool, len(given))
	for j, text := range given {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) {
			continue
		}
		prefix, allowed := parsePrefix(text)
		switch {
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
