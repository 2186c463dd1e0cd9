// Package pathform rewrites a request's path into one form, so that the path that is matched
// is the path that is forwarded.
//
// A limit on /login is no limit if /./login, //login, /%6cogin or /x/../login reaches the
// same handler uncounted. Every gateway that matches one spelling and forwards another has
// that hole. Here the path is rewritten first; then it is matched and forwarded as the same
// text:
//
//	received                         matched and forwarded
//	//login  /./login  /a/../login   /login
//	/%6cogin  /%6Cogin               /login          unreserved characters are decoded
//	/a%c3%a9  /aé                    /a%C3%A9        others are encoded, in upper case
//	/a/.  /a//                       /a/             or /a with DropTrailingSlash
//	/LOGIN                           /LOGIN          or /login with IgnoreCase
//	/a;b=c                           /a;b=c, rules see /a; or refused with RefuseParameters
//	/a%2fb  /a\b  /a%5cb  /a%00      refused: servers differ in how they read them
//	/a%zz  /a%2  /..;/a              refused always
//
// # The rules
//
// The rules are RFC 3986's, 6.2.2: escapes are upper-cased, unreserved characters
// (letters, digits, - . _ ~) are decoded, dot segments are removed. Further, empty
// segments are removed, as by most servers, and before dot segments are: /a//../b is /b.
// Dot segments cannot leave the root: /../a is /a.
//
// Delimiters are not changed: /a:b and /a%3Ab are two paths by RFC 3986, and turning one
// into the other can change the meaning (/..%3B/ into /..;/). No escape is decoded twice:
// /%256c stays. A server that decodes more than RFC 3986 demands sees paths that no gateway
// matched.
package pathform

import (
	"net/url"

	"github.com/weirproject/weir"
)

// A Form selects the form of paths. The zero value is the strict one. A Form is plain data: it
// may be copied, compared and used concurrently.
type Form struct {
	// DropTrailingSlash turns /a/ into /a. By default they are two paths, as they are to
	// most servers: use it only if yours answers both alike.
	DropTrailingSlash bool
	// IgnoreCase turns /A into /a, for servers that treat them as the same. Only the letters
	// of ASCII are changed.
	IgnoreCase bool
	// RefuseParameters refuses a ; in a path. By default it stays, and rules match the path
	// without it and the rest of its segment: servlet containers serve /login;x as /login. Use
	// it if no service has parameters in its paths.
	RefuseParameters bool
	// AllowEncodedSlash lets %2F pass unchanged. A server that decodes it before it splits
	// the path sees another path than was matched, dot segments included.
	AllowEncodedSlash bool
	// AllowBackslash lets \ and %5C pass, as %5C. A server that reads it as a slash sees
	// another path than was matched, dot segments included.
	AllowBackslash bool
	// AllowNUL lets %00 pass unchanged. A server in C may end the path there.
	AllowNUL bool
}

// Path returns the form of a request's path, as it was sent (escaped), without the query. A
// path that has its form already is returned unchanged, without an allocation. The empty path
// becomes /, and the * of OPTIONS stays. Errors are of type *[weir.InputError].
func (f Form) Path(raw string) (string, error) {
	switch {
	case raw == "":
		return "/", nil
	case raw == "*":
		return raw, nil
	case raw[0] != '/':
		return "", refused(raw, "a path that begins with /")
	}
	w := writer{source: raw, length: 1, segment: 1}
	for i := 1; i < len(raw); {
		if raw[i] == '/' {
			if !w.endSegment() {
				return "", refused(raw, noParameters)
			}
			i++
			continue
		}
		size, allowed := f.char(&w, raw[i:])
		if allowed != "" {
			return "", refused(raw, allowed)
		}
		i += size
	}
	if !w.end(f.DropTrailingSlash) {
		return "", refused(raw, noParameters)
	}
	return w.String(), nil
}

// Apply sets the URL's path to its form and returns it: match it, and forward the URL. On an
// error the URL is not changed.
func (f Form) Apply(u *url.URL) (string, error) {
	if u.Opaque != "" { // it would be forwarded instead of the path
		return "", refused(u.Opaque, "a URL with a path, not an opaque one")
	}
	raw := rawPath(u)
	form, err := f.Path(raw)
	if err != nil || form == raw {
		return form, err
	}
	path, err := url.PathUnescape(form)
	if err != nil {
		return "", refused(raw, validEscapes)
	}
	u.Path, u.RawPath = path, form
	return form, nil
}

// rawPath is the path as it was sent. EscapedPath alone is not enough: if a character should
// have been escaped and was not, it loses which slashes were escaped.
func rawPath(u *url.URL) string {
	if u.RawPath == "" && isPlain(u.Path) { // the usual path, of which EscapedPath looks at each character again
		return u.Path
	}
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return u.RawPath
		}
	}
	return u.EscapedPath()
}

// isPlain reports whether a path is the same with and without escapes.
func isPlain(path string) bool {
	for i := range len(path) {
		if path[i] != '/' && !isUnreserved(path[i]) {
			return false
		}
	}
	return true
}

func refused(raw, allowed string) error {
	return &weir.InputError{Field: "path", Given: raw, Allowed: allowed}
}

// The allowed paths, for errors.
const (
	validEscapes   = "a path in which two hexadecimal digits follow each %"
	noEncodedSlash = "a path without encoded slashes (%2F)"
	noBackslash    = `a path without backslashes (\, %5C)`
	noNUL          = "a path without NUL (%00)"
	noControls     = "a path without unescaped control characters"
	noQuery        = "a path alone, without ? or #"
	noParameters   = "a path whose . and .. have no parameters (/..;/)"
	noSemicolon    = "a path without parameters (;); write %3B for the sign itself"
)
