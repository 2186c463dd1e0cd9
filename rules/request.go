package rules

import (
	"net/netip"
	"net/textproto"
	"strings"
)

// A Request is what a door knows of one. Whatever it leaves empty is missing. Doors fill
// it in and reuse it; nothing here keeps it.
//
// Host and Path must be in the form that is acted upon afterwards: the host without port
// and final dot, the path decoded and cleaned as it is forwarded. Matching one form and
// serving another is how rules are evaded.
type Request struct {
	Method  string
	Host    string // any case
	Path    string // begins with a slash, or is empty
	Route   string // the pattern that a router chose
	User    string // who was authenticated
	Service string
	Client  netip.Addr

	Attributes Attributes // nil: none
}

// Attributes answers for what requests have by name. Each method returns "" for what is
// missing, and the first of several values.
type Attributes interface {
	Header(name string) string // name is in canonical form: X-User
	Query(name string) string
	Cookie(name string) string
	Descriptor(name string) string
}

func (r *Request) attribute(kind source, name string) string {
	if kind == sourceMethod {
		return r.Method
	}
	if r.Attributes == nil {
		return ""
	}
	switch kind {
	case sourceHeader:
		return r.Attributes.Header(name)
	case sourceQuery:
		return r.Attributes.Query(name)
	case sourceCookie:
		return r.Attributes.Cookie(name)
	default:
		return r.Attributes.Descriptor(name)
	}
}

func canonical(header string) string { return textproto.CanonicalMIMEHeaderKey(header) }

// validAttribute reports whether a name is one that headers may have, which leaves out what
// separates the parts of a key.
func validAttribute(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$&'*+-._`|~", rune(c)) {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 128
}

// segments splits a path that begins with a slash.
func segments(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(strings.TrimPrefix(path, "/"), "/")
}

// cut is the first segment of what follows a slash, and the rest; more is false after the
// last one.
func cut(path string) (first, rest string, more bool) { return strings.Cut(path, "/") }

// segment is the nth of a path, or "".
func segment(path string, n int) string {
	rest, more := strings.CutPrefix(path, "/")
	first := ""
	for range n + 1 {
		if !more {
			return ""
		}
		first, rest, more = cut(rest)
	}
	return first
}
