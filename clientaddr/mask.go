package clientaddr

import (
	"net/netip"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/netaddr"
)

const (
	ipv4Bits = 32
	ipv6Bits = 64
)

// A Mask is the number of leading bits of an address that make one client. The zero value is
// the usual one: 32 for IPv4, one address; 64 for IPv6, the smallest network that a customer
// is given.
type Mask struct {
	ipv4, ipv6 int8 // bits fewer than the default
}

// NewMask makes a Mask: 1 to 32 bits for IPv4, 1 to 128 for IPv6.
func NewMask(ipv4, ipv6 int) (Mask, error) {
	if ipv4 < 1 || ipv4 > 32 {
		return Mask{}, &weir.InputError{Field: "IPv4 prefix length", Given: ipv4, Allowed: "1 to 32"}
	}
	if ipv6 < 1 || ipv6 > 128 {
		return Mask{}, &weir.InputError{Field: "IPv6 prefix length", Given: ipv6, Allowed: "1 to 128"}
	}
	return Mask{ipv4: int8(ipv4Bits - ipv4), ipv6: int8(ipv6Bits - ipv6)}, nil
}

// Prefix is the network that is counted as one client. It is invalid if the address is.
func (m Mask) Prefix(address netip.Addr) netip.Prefix {
	address = netaddr.Plain(address)
	bits := ipv6Bits - int(m.ipv6)
	if address.Is4() {
		bits = ipv4Bits - int(m.ipv4)
	}
	prefix, err := address.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

// AppendKey appends the client's text for keys: the address if that alone is the client
// ("192.0.2.7"), else the network ("2001:db8:1:2::/64"). Each client has exactly one text.
// It appends no text if the address is invalid.
func (m Mask) AppendKey(key []byte, address netip.Addr) []byte {
	prefix := m.Prefix(address)
	switch {
	case !prefix.IsValid():
		return key
	case prefix.IsSingleIP():
		return prefix.Addr().AppendTo(key)
	}
	return prefix.AppendTo(key)
}

// Key is the text of AppendKey.
func (m Mask) Key(address netip.Addr) string {
	var room [48]byte
	return string(m.AppendKey(room[:0], address))
}
