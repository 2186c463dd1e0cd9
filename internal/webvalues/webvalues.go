// Package webvalues reads values of a request over HTTP by name, as rules match and count them: header fields, query
// parameters and cookies. It knows which of them are ambiguous.
package webvalues

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/weirproject/weir"
)

// Maxima of net/http and net/url, which do not read larger input. A service behind may read it:
// rules would not see the values that it acts on.
const (
	maxParameters = 10_000
	maxCookies    = 3000
)

// A Request has the parts of a request that rules read. Its methods are the methods of rules.Attributes, but for
// descriptors; they make no copies and no maps.
type Request struct {
	Host     string
	RawQuery string
	// Kind is how the service reads names and cookies: see servicekind. "" is how any service does.
	Kind string
	// Fields are the header fields, by their canonical names; an http.Header is one. nil: no fields.
	Fields interface{ Values(name string) []string }
}

func (a *Request) lines(name string) []string {
	switch fields := a.Fields.(type) {
	case nil:
		return nil
	case http.Header: // its Values would make the name canonical once more
		return fields[name]
	}
	return a.Fields.Values(name)
}

// Check refuses input that the methods below, like net/http, would not read.
func (a *Request) Check() error {
	query := a.RawQuery
	if len(query) >= maxParameters && strings.Count(query, "&") >= maxParameters {
		return &weir.InputError{Field: "query", Given: "more", Allowed: "at most 10000 parameters"}
	}
	cookies := 0
	for _, line := range a.lines("Cookie") {
		cookies += strings.Count(line, ";") + 1
	}
	if cookies > maxCookies {
		return &weir.InputError{Field: "cookies", Given: cookies, Allowed: "at most 3000 cookies"}
	}
	return nil
}

// Header is the first line of a header field. Host is included, which net/http keeps elsewhere.
func (a *Request) Header(name string) string {
	if name == "Host" {
		return a.Host
	}
	if lines := a.lines(name); len(lines) > 0 {
		return textproto.TrimString(lines[0]) // net/http keeps a blank of a folded line, which services remove
	}
	return ""
}

// Query is the first value of a parameter, as url.ParseQuery reads it: it ignores pairs with a
// semicolon or an invalid escape. A form in the body is not read.
func (a *Request) Query(name string) (value string) {
	a.queries(name, func(text string, readable bool) bool {
		if readable {
			value = text
		}
		return !readable
	})
	return value
}

// queries calls each with the values of a parameter until it returns false.
func (a *Request) queries(name string, each func(value string, readable bool) bool) {
	for rest := a.RawQuery; rest != ""; {
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

// isEscaped reports whether text unescapes to name.
func isEscaped(text, name string) bool {
	if strings.IndexByte(text, '%') < 0 && strings.IndexByte(text, '+') < 0 {
		return text == name
	}
	if len(text) > 3*len(name) { // impossible, and expensive to unescape
		return false
	}
	plain, err := url.QueryUnescape(text)
	return err == nil && plain == name
}

// Cookie is the first value of a cookie, normalized by cookieValue.
func (a *Request) Cookie(name string) (value string) {
	a.cookies(name, func(text string, readable bool) bool {
		if readable {
			value = text
		}
		return !readable
	})
	return value
}

// cookies calls each with the values of a cookie until it returns false.
func (a *Request) cookies(name string, each func(value string, readable bool) bool) {
	for _, line := range a.lines("Cookie") {
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

// cookieValue is the one form of the spellings that frameworks read as the same value: without
// surrounding blanks and quotes, and without escapes, which Express and PHP decode. It is
// unreadable with bytes that no cookie has (RFC 6265, 4.1.1, plus spaces and commas): Django reads
// a backslash as an escape.
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

// Doubtful says which values are ambiguous: see rules.Attributes.
func (a *Request) Doubtful(kind, name string) bool {
	if kind == "header" {
		return differ(a.lines(name))
	}
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
		return doubtful || a.aliasedCookie(kindOf(a.Kind), name, first, several)
	case "query":
		a.queries(name, each)
		return doubtful || strings.IndexByte(first, 0) >= 0 || a.aliasedQuery(kindOf(a.Kind), name, first, several)
	}
	return doubtful
}

// differ reports whether a header field has lines with several values.
func differ(lines []string) bool {
	for i := 1; i < len(lines); i++ {
		if textproto.TrimString(lines[i]) != textproto.TrimString(lines[0]) {
			return true
		}
	}
	return false
}

// IsRegistered reports whether IANA has registered a method for HTTP requests (the registry of RFC
// 9110, 16.1, as of 2026).
func IsRegistered(method string) bool {
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
