package httplimit

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// What net/http and net/url read at most. Of more they read nothing, and somebody else
// behind this might: rules would not see what is acted upon.
const (
	maxParameters = 10_000
	maxCookies    = 3000
)

// hostOf is the host of a request without its port and final dot, an IPv6 address without
// its brackets. The server has put the host of an absolute target into r.Host already.
//
// What is no host is refused, not passed on unmatched: whoever reads it more generously
// behind this (a:b:80 up to the first colon, ex%61mple.com decoded) would serve a host that
// no rule saw. So is an empty host: a service then takes its own name for it. Only HTTP/1.0
// may leave it out.
func hostOf(r *http.Request) (host string, err error) {
	host = r.Host
	if host == "" && !r.ProtoAtLeast(1, 1) {
		return "", nil
	}
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal, port, closed := strings.Cut(literal, "]")
		if address, err := netip.ParseAddr(literal); !closed || err != nil || !address.Is6() || address.Zone() != "" || !isPort(port) {
			return "", badHost(host)
		}
		return literal, nil
	}
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		if !isPort(host[colon:]) {
			return "", badHost(host)
		}
		host = host[:colon]
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || strings.HasSuffix(host, ".") || strings.ContainsAny(host, "%@/\\?#[], \t") {
		return "", badHost(r.Host)
	}
	return host, nil
}

func badHost(given string) error {
	return &weir.InputError{Field: "host", Given: given, Allowed: "a name or an address, with or without a port"}
}

// isPort reports whether a text is a colon and digits, or nothing.
func isPort(text string) bool {
	return text == "" || text[0] == ':' && strings.Trim(text[1:], "0123456789") == ""
}

// isRegistered reports whether IANA has registered a method for requests of HTTP (the registry of
// RFC 9110, 16.1, as of 2026).
func isRegistered(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY",
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE",
		"MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH",
		"PROPFIND", "PROPPATCH", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK",
		"UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL":
		return true
	}
	return false
}

// attributes are what rules read of a request by name. Nothing is copied, and no map made.
type attributes struct {
	request    *http.Request
	descriptor func(r *http.Request, name string) string
}

var _ rules.Attributes = (*attributes)(nil)

// check refuses what the methods below, like net/http, would read nothing of.
func (a *attributes) check() error {
	query := a.request.URL.RawQuery
	if len(query) >= maxParameters && strings.Count(query, "&") >= maxParameters {
		return &weir.InputError{Field: "query", Given: "more", Allowed: "at most 10000 parameters"}
	}
	cookies := 0
	for _, line := range a.request.Header["Cookie"] {
		cookies += strings.Count(line, ";") + 1
	}
	if cookies > maxCookies {
		return &weir.InputError{Field: "cookies", Given: cookies, Allowed: "at most 3000 cookies"}
	}
	return nil
}

// Header is the first line of a header. Host is one, which net/http keeps elsewhere.
func (a *attributes) Header(name string) string {
	if name == "Host" {
		return a.request.Host
	}
	if lines := a.request.Header[name]; len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// Query is url.ParseQuery's first value of a parameter: a pair with a semicolon or a broken
// escape is none. The form in a body is not read.
func (a *attributes) Query(name string) (value string) {
	a.queries(name, func(text string, readable bool) bool {
		if readable {
			value = text
		}
		return !readable
	})
	return value
}

// queries has each called with the values of a parameter until it returns false.
func (a *attributes) queries(name string, each func(value string, readable bool) bool) {
	for rest := a.request.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		if pair == "" || strings.Contains(pair, ";") {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if !isEscaped(key, name) {
			continue
		}
		value, err := url.QueryUnescape(value)
		if !each(value, err == nil) {
			return
		}
	}
}

// isEscaped reports whether a text is the name, once its escapes are read.
func isEscaped(text, name string) bool {
	if strings.IndexByte(text, '%') < 0 && strings.IndexByte(text, '+') < 0 {
		return text == name
	}
	if len(text) > 3*len(name) { // it cannot be: do not copy it
		return false
	}
	plain, err := url.QueryUnescape(text)
	return err == nil && plain == name
}

// Cookie is the first value of a cookie in its one form: see cookieValue.
func (a *attributes) Cookie(name string) (value string) {
	a.cookies(name, func(text string, readable bool) bool {
		if readable {
			value = text
		}
		return !readable
	})
	return value
}

// cookies has each called with the values of a cookie until it returns false.
func (a *attributes) cookies(name string, each func(value string, readable bool) bool) {
	for _, line := range a.request.Header["Cookie"] {
		for rest := line; rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ";")
			key, value, _ := strings.Cut(textproto.TrimString(part), "=")
			if textproto.TrimString(key) == name && !each(cookieValue(value)) {
				return
			}
		}
	}
}

// cookieValue is the one form of what frameworks take for one value: without blanks and quotes
// round it, and without escapes, which Express and PHP read. It is false for bytes that no cookie
// has (RFC 6265, 4.1.1, with spaces and commas): Django reads a backslash as an escape.
func cookieValue(raw string) (value string, readable bool) {
	raw = textproto.TrimString(raw)
	if len(raw) > 1 && raw[0] == '"' && raw[len(raw)-1] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	for i := range len(raw) {
		if c := raw[i]; c < 0x20 || c >= 0x7f || c == '"' || c == ';' || c == '\\' {
			return "", false
		}
	}
	if strings.IndexByte(raw, '%') < 0 {
		return raw, true
	}
	if plain, err := url.PathUnescape(raw); err == nil {
		return plain, true
	}
	return raw, true
}

// Doubtful implements rules.Doubtful.
func (a *attributes) Doubtful(kind, name string) bool {
	var first string
	var several, doubtful bool
	each := func(value string, readable bool) bool {
		doubtful = !readable || several && value != first
		first, several = value, true
		return !doubtful
	}
	switch kind {
	case "cookie":
		a.cookies(name, each)
	case "query":
		a.queries(name, each)
	case "header":
		if lines := a.request.Header[name]; len(lines) > 1 {
			for _, line := range lines {
				if !each(line, true) {
					break
				}
			}
		}
	}
	return doubtful
}

var _ rules.Doubtful = (*attributes)(nil)

func (a *attributes) Descriptor(name string) string {
	if a.descriptor == nil {
		return ""
	}
	return a.descriptor(a.request, name)
}
