package gateway

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/webvalues"
)

// formed returns the request in its forwarded form, with the routedRequest as its context, which gets what
// rules and routes read. The original is not changed.
func (g *gateway) formed(r *http.Request, p *routedRequest) (*http.Request, error) {
	u := *r.URL
	path, err := g.Form.Apply(&u)
	if err != nil {
		return nil, err
	}
	if r.Host == "" { // ReverseProxy would send the upstream's, which no rule matched
		return nil, &weir.InputError{Field: "host", Given: "", Allowed: "a name or an address: send a Host field"}
	}
	if u.Path == "*" { // allowed for OPTIONS alone, which net/http answers
		return nil, &weir.InputError{Field: "path", Given: u.Path, Allowed: "a path that begins with /"}
	}
	if g.StrictQuery {
		if allowed := ambiguity(u.RawQuery); allowed != "" {
			return nil, &weir.InputError{Field: "query", Given: u.RawQuery, Allowed: allowed}
		}
	}
	host, err := webvalues.Host(r)
	if err != nil {
		return nil, err
	}
	r = r.WithContext(p)
	if u.Path != r.URL.Path || u.RawPath != r.URL.RawPath {
		r.URL = movedTo(u)
	}
	if header := g.endToEnd(r.Header); header != nil {
		r.Header = header
	}
	p.request.Method, p.request.Host, p.request.Path = r.Method, host, path
	p.request.Client, p.peer, p.trusted = g.Clients.Read(r)
	return r, nil
}

// movedTo allocates the URL only for requests with a path that changes.
func movedTo(u url.URL) *url.URL { return &u }

// ambiguity returns "" for a query that all servers read alike, and otherwise the allowed form.
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

// endToEnd returns the header without the fields that the Connection field names, and without those
// that some services read as another path or method; nil if there is no such field. ReverseProxy drops the
// former too, but only after the limit has read them (RFC 9110, section 7.6.1).
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
				continue // ReverseProxy reads these three before dropping them
			}
			drop(name)
		}
	}
	if g.Overrides {
		return without
	}
	for name := range h {
		if isOverride(name) {
			drop(name)
		}
	}
	return without
}

// overrides are fields that make some services take another path or method than the request
// line's, which the rules matched.
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

// trimTrailers drops trailers that a service might read as header fields about the client or the
// request: the limit has read only the header. Trailers that the Trailer field did not announce are
// dropped too, because net/http passes them on as well.
func (g *gateway) trimTrailers(trailers http.Header, announced []string) {
	for name := range trailers {
		unsafe := isForwarding(name) || isIdentity(name) || !g.Overrides && isOverride(name)
		if unsafe || !slices.Contains(announced, name) {
			delete(trailers, name)
		}
	}
}

// isIdentity reports whether a field is forbidden as a trailer (RFC 9110, section 6.5.1).
func isIdentity(name string) bool {
	switch strings.ReplaceAll(name, "_", "-") {
	case "Authorization", "Proxy-Authorization", "Cookie", "Host", "Te", "Expect", "Connection", "Upgrade",
		"Range", "X-Api-Key":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "If-")
}

// withoutForwarding drops the fields that only proxies may set, unless a trusted proxy sent them:
// X-Real-IP, Forwarded, CF-Connecting-IP and all X-Forwarded fields. Spellings with underscores are
// always dropped: no proxy writes them, but CGI and its successors read X_Forwarded_For as
// X-Forwarded-For.
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
	if len(rest) < 9 || !strings.EqualFold(rest[:9], "forwarded") {
		return false
	}
	return len(rest) == 9 || rest[9] == '-' || rest[9] == '_'
}
