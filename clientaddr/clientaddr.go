// Package clientaddr finds the address of a request's client, also behind proxies, and
// never one that the client made up.
//
// # The rule
//
// The client's address is the peer's, the other end of the connection. Only if the
// peer is a proxy that you trust is a header read, from the right:
//
//	X-Forwarded-For: 6.6.6.6, 198.51.100.7, 10.0.0.2        peer 10.0.0.1
//	                 made up  the client    ---- trusted ----
//
// Each proxy appends its caller's address at the right end. While that is a trusted proxy,
// the element left of it, which that proxy wrote, is trusted too. The first address that is
// not trusted is the client; the client wrote everything left of it, so that is not read.
// If all are trusted, the client is the leftmost: one of your own machines.
//
// An element that is not an address ends the walk: "unknown", "unix:", an obfuscated
// "_name", an empty element, one of over 512 bytes, the 33rd element. The result is then
// the last trusted proxy that was passed. All clients that confuse a proxy therefore share
// one address; no client gains a new one.
//
// The tempting wrong ways: to take the leftmost address (the client wrote it); to read
// only the first line of the header (the client's line; a proxy may add its own below);
// to skip unreadable elements (a proxy that could not name its caller passed on its
// caller's text); to read any of several headers that is present (your proxies write one of
// them, the client the other). Hence there is one header, and you name it.
//
// # Headers of one address
//
// X-Real-IP and CF-Connecting-IP have one address: the proxy overwrites the header
// of its caller with it. From a trusted peer it is taken without a walk; if the header has
// two lines, or anything but one address, the client is the peer. Name one of them only if
// every trusted proxy sets it: a proxy that passes it on lets its callers choose.
//
// # Spelling
//
// An address has one form here, so that it makes one key: IPv4-mapped IPv6
// (::ffff:192.0.2.1) is IPv4, zones (%eth0), ports and brackets are removed. Numbers with
// leading zeros, which some programs read as octal, are no addresses.
//
// # Unix sockets
//
// A peer on a Unix socket has no address. It is trusted only with [WithTrustedUnix], for a
// socket that only your proxy can reach. [Extractor.Of] recognizes such a peer by the
// address of the listener, not by RemoteAddr, which middleware overwrites.
//
// # Keys
//
// A household or a rented machine has a whole /64 of IPv6 to itself, 2^64 addresses. A
// [Mask] makes one client of them; its text is the client's part of a key.
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
	"github.com/weirproject/weir/internal/netaddr"
)

const (
	xForwardedFor = "X-Forwarded-For"
	forwarded     = "Forwarded"
	xRealIP       = "X-Real-Ip"
	cfConnecting  = "Cf-Connecting-Ip"

	// maxHops is the largest number of elements of the header that are read, from the right.
	maxHops = 32

	// maxElement is the longest element that is read, in bytes. With maxHops it bounds the
	// work for a header of any length.
	maxElement = 512
)

// An Extractor finds the clients behind trusted proxies. Make one with New; the zero value
// trusts no proxy. It is immutable and safe for concurrent use.
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

// WithTrustedUnix trusts peers on Unix sockets: use it if only your proxy can reach the socket.
func WithTrustedUnix() Option { return func(e *Extractor) { e.unix = true } }

// New makes an Extractor that trusts the proxies within the given prefixes. Without prefixes, the
// client is always the peer. Its errors are of type *[weir.InputError], joined if there are
// several.
//
// A prefix with bits beyond its length is refused, because 10.1.2.3/8 is all of 10.0.0.0/8
// when perhaps one machine was meant; so are prefixes that cover all addresses: then every
// client could choose its own.
func New(trusted []netip.Prefix, opts ...Option) (*Extractor, error) {
	e := &Extractor{header: xForwardedFor}
	for _, opt := range opts {
		opt(e)
	}
	var errs []error
	if !slices.Contains([]string{xForwardedFor, forwarded, xRealIP, cfConnecting}, e.header) {
		errs = append(errs, &weir.InputError{Field: "header", Given: e.header,
			Allowed: "X-Forwarded-For, Forwarded, X-Real-IP or CF-Connecting-IP"})
	}
	prefixes := make([]netip.Prefix, 0, len(trusted))
	for i, prefix := range trusted {
		prefix, err := netaddr.Normal(prefix)
		if err == nil && prefix.Bits() == 0 {
			err = &weir.InputError{Allowed: "the networks of your proxies: " + notAll}
		}
		var input *weir.InputError
		if errors.As(err, &input) {
			input.Field, input.Given = fmt.Sprintf("trusted[%d]", i), trusted[i]
			errs = append(errs, input)
		}
		prefixes = append(prefixes, prefix)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	e.trusted = disjoint(prefixes)
	if family := whole(e.trusted); family != "" {
		return nil, &weir.InputError{Field: "trusted", Given: trusted,
			Allowed: "the networks of your proxies; together these are all of " + family + ": " + notAll}
	}
	return e, nil
}

// notAll is why trust in every address is refused.
const notAll = "trusting all addresses lets every client choose its own"

// whole is the family ("IPv4", "IPv6") that disjoint prefixes, in order, cover entirely, or "".
func whole(prefixes []netip.Prefix) (family string) {
	next := netip.Addr{} // the first address after those covered without a gap
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

// disjoint sorts the prefixes and drops prefixes that lie within another.
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

// Header is the name of the header; From and FromUnix take its lines.
func (e *Extractor) Header() string { return e.header }

// Trusts reports whether an address belongs to a trusted proxy. Check it before you use another
// header that only proxies may set, such as X-Forwarded-Proto.
func (e *Extractor) Trusts(address netip.Addr) bool { return e.trusts(netaddr.Plain(address)) }

// TrustsPeer reports whether a request comes from a trusted proxy, on a Unix socket too.
func (e *Extractor) TrustsPeer(r *http.Request) bool {
	if onUnix(r) {
		return e.unix
	}
	return e.trusts(parseNode(r.RemoteAddr))
}

func onUnix(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

func (e *Extractor) trusts(address netip.Addr) bool {
	after := sort.Search(len(e.trusted), func(i int) bool { return address.Less(e.trusted[i].Addr()) })
	return after > 0 && e.trusted[after-1].Contains(address)
}

// Of is the address of the request's client. ok is false if there is no address: the peer is on a
// Unix socket and is not trusted, or did not name its caller; or RemoteAddr is not an address.
func (e *Extractor) Of(r *http.Request) (address netip.Addr, ok bool) {
	address, _, _ = e.Read(r)
	return address, address.IsValid()
}

// Read is Of and TrustsPeer at once, with the address of the peer. An address that is not known is not valid.
func (e *Extractor) Read(r *http.Request) (client, peer netip.Addr, trusted bool) {
	if onUnix(r) {
		client, _ = e.FromUnix(r.Header[e.header])
		return client, netip.Addr{}, e.unix
	}
	peer = parseNode(r.RemoteAddr)
	if !peer.IsValid() || !e.trusts(peer) {
		return peer, peer, false
	}
	return e.walk(peer, r.Header[e.header]), peer, true
}

// From is [Extractor.Of] for other protocols: peer is the address of the connection's
// other end, with or without a port, and lines are all lines of the header, in their
// order. Take the peer from the connection, never from a header.
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

// walk goes left from a trusted hop until a hop is not trusted or cannot be read.
func (e *Extractor) walk(at netip.Addr, lines []string) netip.Addr {
	if e.header == xRealIP || e.header == cfConnecting {
		return only(at, lines)
	}
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop netip.Addr
			hop, rest, more = e.last(rest)
			if hops++; hops > maxHops || !hop.IsValid() {
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

// last reads the last element of a line: its address (invalid if it is no address), the text
// left of it, and whether there are more elements.
func (e *Extractor) last(line string) (hop netip.Addr, rest string, more bool) {
	if e.header == forwarded {
		return lastForwarded(line)
	}
	return lastListed(line)
}
