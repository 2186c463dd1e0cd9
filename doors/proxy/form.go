package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/weirproject/weir"
)

// formed is the request in the form in which it is forwarded; it is the request itself,
// if that has it. The one that came is not changed.
func (g *gateway) formed(r *http.Request) (*http.Request, error) {
	u := *r.URL
	if _, err := g.form.Apply(&u); err != nil {
		return nil, err
	}
	if r.Host == "" { // ReverseProxy would send the upstream's, which no rule saw
		return nil, &weir.InputError{Field: "host", Given: "", Allowed: "a name or an address: send a Host field"}
	}
	if u.Path == "*" { // only OPTIONS may, and that the server answers
		return nil, &weir.InputError{Field: "path", Given: u.Path, Allowed: "a path that begins with /"}
	}
	if g.strictQuery {
		if allowed := ambiguity(u.RawQuery); allowed != "" {
			return nil, &weir.InputError{Field: "query", Given: u.RawQuery, Allowed: allowed}
		}
	}
	header := g.endToEnd(r.Header)
	moved := u.Path != r.URL.Path || u.RawPath != r.URL.RawPath
	if !moved && header == nil {
		return r, nil
	}
	r = r.WithContext(r.Context())
	if moved {
		r.URL = movedTo(u)
	}
	if header != nil {
		r.Header = header
	}
	return r, nil
}

// movedTo has a URL moved to the heap only where it must be.
func movedTo(u url.URL) *url.URL { return &u }

// ambiguity is what would be allowed instead of a query that servers read differently.
func ambiguity(query string) (allowed string) {
	for i := range len(query) {
		switch query[i] {
		case ';':
			return "a query without semicolons; write %3B"
		case '#':
			return "a query without number signs; write %23"
		case '%':
			if i+2 >= len(query) || !isHex(query[i+1]) || !isHex(query[i+2]) {
				return "a query in which two hexadecimal digits follow each %; write %25 for the sign"
			}
		}
	}
	return ""
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// endToEnd is the header without the fields that the Connection field names, and those that
// some services take for another path or method; nil if there are none. ReverseProxy drops the
// first too, but only after the limit read them (RFC 9110, section 7.6.1).
func (g *gateway) endToEnd(h http.Header) (without http.Header) {
	drop := func(name string) {
		if without == nil {
			without = h.Clone()
		}
		delete(without, name)
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if _, there := h[name]; !there || name == "Connection" || name == "Upgrade" || name == "Te" {
				continue // those three ReverseProxy reads before it drops them
			}
			drop(name)
		}
	}
	if g.overrides {
		return without
	}
	for name := range h {
		if isOverride(name) {
			drop(name)
		}
	}
	return without
}

// overrides are fields by which a client has some services serve another path, or by another
// method, than its request line says: the rules saw that one.
var overrides = []string{"X-Original-Url", "X-Original-Uri", "X-Original-Method", "X-Rewrite-Url",
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

func isOverride(name string) bool {
	if len(name) < len("X-Http-Method") || name[0]|0x20 != 'x' || name[1] != '-' && name[1] != '_' {
		return false
	}
	for _, override := range overrides {
		if len(name) == len(override) && strings.EqualFold(strings.ReplaceAll(name, "_", "-"), override) {
			return true
		}
	}
	return false
}

// trimTrailers drops the trailers of a request that a service might take for header fields
// which say who the client is, or what it wants: the limit read those of the header. What a
// Trailer field did not announce is dropped too: net/http hands it on beside what it did.
func (g *gateway) trimTrailers(trailers http.Header, announced []string) {
	for name := range trailers {
		if !slices.Contains(announced, name) || isForwarding(name) || isIdentity(name) || !g.overrides && isOverride(name) {
			delete(trailers, name)
		}
	}
}

// isIdentity reports whether a field must not be a trailer (RFC 9110, section 6.5.1).
func isIdentity(name string) bool {
	switch strings.ReplaceAll(name, "_", "-") {
	case "Authorization", "Proxy-Authorization", "Cookie", "Host", "Te", "Expect", "Connection", "Upgrade", "Range", "X-Api-Key":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "If-")
}

// withoutForwarding drops what only proxies may say, unless one did: X-Real-IP, Forwarded,
// CF-Connecting-IP and all X-Forwarded fields. Those with underscores no proxy says, but CGI and its heirs
// read X_Forwarded_For as X-Forwarded-For.
func withoutForwarding(h http.Header, trusted bool) {
	for name := range h {
		if isForwarding(name) && (!trusted || strings.Contains(name, "_")) {
			delete(h, name)
		}
	}
}

func isForwarding(name string) bool {
	switch {
	case len(name) < len("forwarded"):
		return false
	case name[0]|0x20 == 'f':
		return strings.EqualFold(name, "forwarded")
	case len(name) == len("cf-connecting-ip") && name[0]|0x20 == 'c':
		return strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "cf-connecting-ip")
	case name[0]|0x20 != 'x' || name[1] != '-' && name[1] != '_':
		return false
	case len(name) == len("x-real-ip"):
		return strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "x-real-ip")
	}
	rest := name[2:]
	return len(rest) >= 9 && strings.EqualFold(rest[:9], "forwarded") && (len(rest) == 9 || rest[9] == '-' || rest[9] == '_')
}

// sentence is an error for the client: what was given is known to it.
func sentence(err error) string {
	var input *weir.InputError
	if errors.As(err, &input) {
		return fmt.Sprintf("The %s is refused; allowed: %s.", input.Field, input.Allowed)
	}
	return "The request is refused."
}
