// Package clientaddr finds out whose request it is: the address of the client, also
// behind proxies, and never one that the client made up.
//
// # The rule
//
// The client's address is the peer's: of who holds the other end of the connection. Only
// if the peer is a proxy that you trust is a header read, from the right:
//
//	X-Forwarded-For: 6.6.6.6, 198.51.100.7, 10.0.0.2        peer 10.0.0.1
//	                 made up  the client    ---- trusted ----
//
// Each proxy writes at the right end whom it was called by. As long as that is a trusted
// proxy, its own word, left of it, is believed too. The first address that is none of
// yours is the client; what stands left of it was written by the client, and is not read.
// If all are trusted, the client is the leftmost: one of your own machines.
//
// What is not an address ends the walk: "unknown", "unix:", an obfuscated "_name", an
// element with nothing in it, an element of over 512 bytes, the 33rd element. The answer
// is then the last trusted proxy that was passed. So whoever confuses a proxy shares one
// address with all that it confuses; nobody gains a new one.
//
// The tempting wrong ways: to take the leftmost address (the client wrote it); to read
// only the first line of the header (the client's line; a proxy may add its own below);
// to skip what cannot be read (the proxy that could not name its caller passed on what
// its caller wrote); to read whichever of two headers is there (your proxies write one of
// them, the client the other). Hence there is one header, and you name it.
//
// # One address
//
// X-Real-IP and CF-Connecting-IP have one address, which the proxy writes over whatever its
// caller sent. Of a trusted peer it is believed as it is, without a walk; of two lines, or
// anything but one address, nothing is, and the client is the peer. Name one of them only if
// every trusted proxy sets it: one that passes it on lets its callers choose.
//
// # Spelling
//
// An address has one form here, so that it makes one key: IPv4-mapped IPv6
// (::ffff:192.0.2.1) is IPv4, zones (%eth0) and ports are dropped, brackets are taken off.
// Numbers with leading zeros, which some read as octal, are no addresses.
//
// # Unix sockets
//
// A peer on a Unix socket has no address. It is not trusted unless [WithTrustedUnix] says
// that only your proxy can reach the socket. [Extractor.Of] knows such a peer by the
// address of the listener, not by RemoteAddr, which middleware overwrites.
//
// # Keys
//
// A household or a rented machine has a whole /64 of IPv6 to itself, 2^64 addresses. A
// [Mask] makes one client of them; its text is what stands in a key.
package clientaddr

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sort"

	"github.com/weirproject/weir"
)

const (
	xForwardedFor = "X-Forwarded-For"
	forwarded     = "Forwarded"
	xRealIP       = "X-Real-Ip"
	cfConnecting  = "Cf-Connecting-Ip"

	// MaxHops is how many elements of the header are read at most, counted from the right.
	MaxHops = 32

	// maxElement is the longest element that is read, in bytes. Together they bound the
	// work that a header can cause, however long it is.
	maxElement = 512
)

// An Extractor knows which peers are trusted proxies, and finds clients behind them. Make
// one with New; the zero value trusts nobody. It does not change, so any number of
// goroutines may use it.
type Extractor struct {
	trusted []netip.Prefix // in order, none within another
	header  string
	unix    bool
}

// An Option changes what New makes.
type Option func(*Extractor)

// WithHeader names the header that your proxies write: "X-Forwarded-For" (the default),
// "Forwarded" (RFC 7239), "X-Real-IP" or "CF-Connecting-IP". The others are never read.
func WithHeader(name string) Option {
	return func(e *Extractor) { e.header = http.CanonicalHeaderKey(name) }
}

// WithTrustedUnix trusts peers on Unix sockets: only your proxy can reach the socket.
func WithTrustedUnix() Option { return func(e *Extractor) { e.unix = true } }

// New makes an Extractor that trusts the proxies within the given prefixes. With none, the
// client is always the peer. Its errors are of type *[weir.InputError], joined if there are
// several.
//
// A prefix with bits beyond its length is refused, because 10.1.2.3/8 is all of 10.0.0.0/8
// when perhaps one machine was meant; so is one of length 0: who trusts everybody lets
// every client choose its address.
func New(trusted []netip.Prefix, opts ...Option) (*Extractor, error) {
	e := &Extractor{header: xForwardedFor}
	for _, opt := range opts {
		opt(e)
	}
	var errs []error
	if !slices.Contains([]string{xForwardedFor, forwarded, xRealIP, cfConnecting}, e.header) {
		errs = append(errs, &weir.InputError{Field: "header", Given: e.header, Allowed: "X-Forwarded-For, Forwarded, X-Real-IP or CF-Connecting-IP"})
	}
	prefixes := make([]netip.Prefix, 0, len(trusted))
	for i, prefix := range trusted {
		prefix, allowed := normalPrefix(prefix)
		if allowed != "" {
			errs = append(errs, &weir.InputError{Field: fmt.Sprintf("trusted[%d]", i), Given: trusted[i], Allowed: allowed})
		}
		prefixes = append(prefixes, prefix)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	e.trusted = disjoint(prefixes)
	if family := whole(e.trusted); family != "" {
		return nil, &weir.InputError{Field: "trusted", Given: trusted,
			Allowed: "the networks of your proxies; together these are all of " + family + ": who trusts everybody lets every client choose its address"}
	}
	return e, nil
}

// whole is the family of which disjoint prefixes, in order, leave no address out; "" is none.
func whole(prefixes []netip.Prefix) (family string) {
	next := netip.Addr{} // the first address after those that were seen without a gap
	for _, p := range prefixes {
		first := p.Addr()
		if zero := netip.PrefixFrom(first, 0).Masked().Addr(); first != next && first != zero {
			next = netip.Addr{}
			continue
		}
		if next = lastOf(p).Next(); !next.IsValid() {
			return map[bool]string{true: "IPv4", false: "IPv6"}[first.Is4()]
		}
	}
	return ""
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// normalPrefix is the prefix with mapped IPv4 as IPv4, or else what would be allowed.
func normalPrefix(p netip.Prefix) (normal netip.Prefix, allowed string) {
	if !p.IsValid() {
		return p, "an address and a length, such as 10.0.0.0/8"
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, "at least /96 for IPv4-mapped IPv6, or better the prefix of IPv4 itself"
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	switch {
	case p.Bits() == 0:
		return p, "the networks of your proxies: who trusts everybody lets every client choose its address"
	case p != p.Masked():
		return p, fmt.Sprintf("%v for that network, %v for that one machine", p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	return p, ""
}

// disjoint sorts the prefixes and drops those that lie within another.
func disjoint(prefixes []netip.Prefix) (kept []netip.Prefix) {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		if order := a.Addr().Compare(b.Addr()); order != 0 {
			return order
		}
		return a.Bits() - b.Bits()
	})
	for _, prefix := range prefixes {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(prefix.Addr()) {
			kept = append(kept, prefix)
		}
	}
	return kept
}

// Header is the name of the header whose lines From and FromUnix want.
func (e *Extractor) Header() string { return e.header }

// Trusts reports whether an address is that of a trusted proxy. Ask it before anything
// else is believed that only proxies may say, such as X-Forwarded-Proto.
func (e *Extractor) Trusts(address netip.Addr) bool { return e.trusts(normal(address)) }

// TrustsPeer reports whether a request comes from a trusted proxy, on a Unix socket too.
func (e *Extractor) TrustsPeer(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return e.unix
	}
	return e.trusts(parseNode(r.RemoteAddr))
}

func (e *Extractor) trusts(address netip.Addr) bool {
	after := sort.Search(len(e.trusted), func(i int) bool { return address.Less(e.trusted[i].Addr()) })
	return after > 0 && e.trusted[after-1].Contains(address)
}

// Of is the address of the request's client. It is false where there is none: the peer is
// on a Unix socket and not trusted, or did not name its caller; or RemoteAddr is not an
// address.
func (e *Extractor) Of(r *http.Request) (address netip.Addr, ok bool) {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return e.FromUnix(r.Header[e.header])
	}
	return e.From(r.RemoteAddr, r.Header[e.header])
}

// From is [Extractor.Of] for other protocols: peer is the address of the connection's
// other end, with or without a port, and lines are all lines of the header, in the order
// in which they came. The peer must be what the connection says, never what a header says.
func (e *Extractor) From(peer string, lines []string) (address netip.Addr, ok bool) {
	address = parseNode(peer)
	if !address.IsValid() || !e.trusts(address) {
		return address, address.IsValid()
	}
	return e.walk(address, lines), true
}

// FromUnix is [Extractor.From] for a peer on a Unix socket.
func (e *Extractor) FromUnix(lines []string) (address netip.Addr, ok bool) {
	if !e.unix {
		return netip.Addr{}, false
	}
	address = e.walk(netip.Addr{}, lines)
	return address, address.IsValid()
}

// walk goes from a trusted hop to the left until one is not trusted or cannot be read.
func (e *Extractor) walk(at netip.Addr, lines []string) netip.Addr {
	if e.header == xRealIP || e.header == cfConnecting {
		return only(at, lines)
	}
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop netip.Addr
			hop, rest, more = e.last(rest)
			if hops++; hops > MaxHops || !hop.IsValid() {
				return at
			}
			if at = hop; !e.trusts(at) {
				return at
			}
		}
	}
	return at
}

// only is the address of a header that has one, else the peer's.
func only(peer netip.Addr, lines []string) netip.Addr {
	if len(lines) != 1 || len(lines[0]) > maxElement {
		return peer
	}
	if address := parseNode(trim(lines[0])); address.IsValid() {
		return address
	}
	return peer
}

// last reads the last element of a line: the address in it (invalid if there is none),
// what is left of it, and whether that is anything.
func (e *Extractor) last(line string) (hop netip.Addr, rest string, more bool) {
	if e.header == forwarded {
		return lastForwarded(line)
	}
	return lastListed(line)
}
