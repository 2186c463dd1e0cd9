// Package netaddr reads addresses and networks, as rules and lists of proxies have them.
package netaddr

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirproject/weir"
)

// Plain is the one form of an address: IPv4-mapped IPv6 is IPv4, and zones are dropped.
func Plain(address netip.Addr) netip.Addr { return address.WithZone("").Unmap() }

// Parse reads a network, or an address, which is a network of one machine. The error is a
// *weir.InputError.
func Parse(text string) (netip.Prefix, error) {
	// netip would read fe80::1%eth0/64 as one address with the zone "eth0/64".
	if address, err := netip.ParseAddr(text); err == nil && !strings.Contains(address.Zone(), "/") {
		address = Plain(address)
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return refused(text, "an address such as 192.0.2.7, or a network such as 10.0.0.0/8 or 2001:db8::/32")
	}
	return Normal(prefix)
}

// Normal is the prefix with IPv4-mapped IPv6 as IPv4. A prefix with bits beyond its length is
// refused: 10.1.2.3/8 is all of 10.0.0.0/8 when perhaps one machine was meant.
func Normal(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return refused(p, "an address and a length, such as 10.0.0.0/8")
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return refused(p, "at least /96 for IPv4-mapped IPv6, or better the network of IPv4 itself")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		machine := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		return refused(p, fmt.Sprintf("%v for that network, %v for that one machine", p.Masked(), machine))
	}
	return p, nil
}

func refused(given any, allowed string) (netip.Prefix, error) {
	return netip.Prefix{}, &weir.InputError{Field: "network", Given: given, Allowed: allowed}
}
