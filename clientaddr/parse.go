package clientaddr

import (
	"net/netip"
	"strings"
)

// lastListed is [Extractor.last] for X-Forwarded-For.
func lastListed(line string) (hop netip.Addr, rest string, more bool) {
	tail := lastBytes(line)
	comma := strings.LastIndexByte(tail, ',')
	if comma < 0 && len(line) > maxElement {
		return netip.Addr{}, "", false
	}
	hop = parseNode(trim(tail[comma+1:]))
	if comma < 0 {
		return hop, "", false
	}
	return hop, line[:len(line)-len(tail)+comma], true
}

// lastForwarded is [Extractor.last] for Forwarded. It reads from the right, quotes too: an
// element that a proxy wrote is read the same after any text. Read from the left, a client's
// lone quote would swallow the elements that the proxies added.
func lastForwarded(line string) (hop netip.Addr, rest string, more bool) {
	tail := lastBytes(line)
	end := len(tail) // of the pair that is being read
	for i := len(tail) - 1; i >= 0; i-- {
		switch tail[i] {
		case '"':
			if i = openingQuote(tail, i); i < 0 {
				return netip.Addr{}, "", false
			}
		case ',', ';':
			var ok bool
			if hop, ok = readPair(tail[i+1:end], hop); !ok {
				return netip.Addr{}, "", false
			}
			if tail[i] == ',' {
				return hop, line[:len(line)-len(tail)+i], true
			}
			end = i
		}
	}
	if len(line) > maxElement {
		return netip.Addr{}, "", false
	}
	hop, _ = readPair(tail[:end], hop)
	return hop, "", false
}

// lastBytes is the end of a line, as long as an element and the comma before it can be.
func lastBytes(line string) string { return line[max(0, len(line)-maxElement-1):] }

// openingQuote is the index at which the quoted string that is closed at end begins, or -1.
func openingQuote(text string, end int) int {
	if escaped(text, end) {
		return -1
	}
	for i := end - 1; i > 0; i-- {
		if text[i] == '"' && !escaped(text, i) {
			if text[i-1] != '=' {
				return -1
			}
			return i
		}
	}
	return -1
}

// escaped reports whether an odd number of backslashes stands before a byte.
func escaped(text string, at int) bool {
	before := at
	for before > 0 && text[before-1] == '\\' {
		before--
	}
	return (at-before)%2 == 1
}

// readPair reads one pair of a Forwarded element; hop is the element's address so far. It is
// false if the text is not a pair, or is a second "for", or a "for" without an address.
func readPair(pair string, hop netip.Addr) (netip.Addr, bool) {
	pair = trim(pair)
	if pair == "" {
		return hop, true // RFC 7239 allows for=192.0.2.1;;proto=http
	}
	name, value, ok := strings.Cut(pair, "=")
	if !ok || hop.IsValid() && strings.EqualFold(name, "for") {
		return netip.Addr{}, false
	}
	if !strings.EqualFold(name, "for") {
		return hop, true
	}
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	hop = parseNode(value)
	return hop, hop.IsValid()
}

// parseNode is the address in 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1] or
// [2001:db8::1]:80, each IPv6 also with a zone; the port may be obfuscated as RFC 7239 says
// (:_name). It is invalid for any other text.
func parseNode(text string) netip.Addr {
	host, port, hasPort := text, "", false
	bracketed := strings.HasPrefix(text, "[")
	if bracketed {
		inner, after, closed := strings.Cut(text[1:], "]")
		host, port, hasPort = inner, strings.TrimPrefix(after, ":"), after != ""
		if !closed || hasPort && after[0] != ':' {
			return netip.Addr{}
		}
	} else if colon := strings.IndexByte(text, ':'); colon >= 0 && colon == strings.LastIndexByte(text, ':') {
		host, port, hasPort = text[:colon], text[colon+1:], true
	}
	if hasPort && !isPort(port) {
		return netip.Addr{}
	}
	return parseHost(host, bracketed)
}

// parseHost reads an address, which must be IPv6 if it stood in brackets or has a zone. The
// zone is cut off first: netip would keep every name that a client makes up.
func parseHost(host string, mustBe6 bool) netip.Addr {
	host, zone, hasZone := strings.Cut(host, "%")
	if hasZone && !isName(zone) {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(host)
	if err != nil || (mustBe6 || hasZone) && address.Is4() {
		return netip.Addr{}
	}
	return address.Unmap()
}

// isPort reports whether the text is one to five digits, or an underscore and a name.
func isPort(text string) bool {
	if strings.HasPrefix(text, "_") {
		return isName(text[1:])
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return len(text) >= 1 && len(text) <= 5
}

// isName reports whether the text is letters, digits, dots, hyphens and underscores.
func isName(text string) bool {
	for i := range len(text) {
		c := text[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return text != ""
}

// trim removes the blanks that HTTP allows in lists, and no others.
func trim(text string) string { return strings.Trim(text, " \t") }
