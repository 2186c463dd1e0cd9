package pathform

import (
	"net/netip"
	"strings"

	"github.com/weirproject/weir"
)

// Host returns the name or address in the value of a Host field: without port and final dot, and
// an IPv6 address without brackets. Case is unchanged. An IPv6 address alone (::1), as programs
// pass it, is itself; a Host field must not have that form. The error is a *[weir.InputError].
//
// Any other text is refused, not passed unmatched: a service that reads it more generously (a:b:80
// up to the first colon, ex%61mple.com decoded) would serve a host that no rule matched.
func Host(text string) (host string, err error) {
	if literal, ok := strings.CutPrefix(text, "["); ok {
		literal, port, closed := strings.Cut(literal, "]")
		if !closed || !isIPv6(literal) || !isPort(port) {
			return "", badHost(text)
		}
		return literal, nil
	}
	host = text
	if colon := strings.IndexByte(text, ':'); colon >= 0 {
		if isIPv6(text) {
			return text, nil
		}
		if !isPort(text[colon:]) {
			return "", badHost(text)
		}
		host = text[:colon]
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || strings.HasSuffix(host, ".") || isDivided(host) {
		return "", badHost(text)
	}
	return host, nil
}

func isIPv6(text string) bool {
	if strings.IndexByte(text, ':') < 0 { // ParseAddr allocates its errors
		return false
	}
	address, err := netip.ParseAddr(text)
	return err == nil && address.Is6() && address.Zone() == ""
}

// isDivided reports whether a name has one of %@/\?#[], or a blank, which some reader decodes or divides it at.
func isDivided(host string) bool {
	const low = 1<<'%' | 1<<'/' | 1<<'?' | 1<<'#' | 1<<',' | 1<<' ' | 1<<'\t'
	const high = 1<<('@'-64) | 1<<('\\'-64) | 1<<('['-64) | 1<<(']'-64)
	for i := range len(host) {
		c := host[i]
		if c < 64 && uint64(low)>>c&1 != 0 || c >= 64 && c < 128 && uint64(high)>>(c-64)&1 != 0 {
			return true
		}
	}
	return false
}

// isPort reports whether text is empty, or a colon and digits.
func isPort(text string) bool {
	return text == "" || text[0] == ':' && strings.Trim(text[1:], "0123456789") == ""
}

func badHost(given string) error {
	return &weir.InputError{Field: "host", Given: given, Allowed: "a name or an address, with or without a port"}
}
