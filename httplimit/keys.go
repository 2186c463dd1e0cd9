package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/weirproject/weir/clientaddr"
)

// A Key says whom a request is counted against. An error, or "", says that the request
// has no such thing: see [Missing].
type Key func(*http.Request) (string, error)

// ErrMissing is what the keys of this package return where a request lacks what they read.
var ErrMissing = errors.New("httplimit: the request has no such key")

// longest is how long a key may be before it is hashed. Strangers write keys: one that the
// store refuses for its length must not become an error, which may let the request pass.
const longest = 256

const anonymous = "\x00anonymous" // no key of this package begins with a zero

// PeerAddress is the address of the connection's other end, and of IPv6 its /64, since one
// subscriber has 2^64 addresses to choose from. IPv4 in IPv6 is IPv4. It believes no header:
// behind a proxy all clients have the proxy's address. There write a Key of a
// [clientaddr.Extractor], which knows the proxies, and a [clientaddr.Mask].
func PeerAddress(r *http.Request) (string, error) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // a Unix socket has no address
		return "", ErrMissing
	}
	buffer := append(make([]byte, 0, 64), "ip:"...)
	return string(clientaddr.Mask{}.AppendKey(buffer, peer.Addr())), nil
}

// Route is the pattern of the http.ServeMux that chose the handler. The middleware must
// then stand behind the mux, round its handlers: before it no route is chosen yet. Where it
// stands before, use [RouteOf].
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", ErrMissing
	}
	return "route:" + r.Pattern, nil
}

// RouteOf is the pattern that a mux would choose, for middleware that stands before it.
func RouteOf(mux *http.ServeMux) Key {
	return func(r *http.Request) (string, error) {
		_, pattern := mux.Handler(r)
		if pattern == "" {
			return "", ErrMissing
		}
		return "route:" + pattern, nil
	}
}

// MethodRoute is the method and the pattern: one route's reads and writes are counted apart.
// Methods that HTTP does not define count as one: whoever makes them up gets no fresh keys.
func MethodRoute(r *http.Request) (string, error) {
	route, err := Route(r)
	if err != nil {
		return "", err
	}
	return method(r.Method) + " " + route, nil
}

func method(name string) string {
	switch name {
	case "": // a client's way to say GET
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return name
	}
	return "other"
}

// Header is the first value of a header field, such as an API key that was verified
// before. One that nobody verifies is no limit: its sender makes up another.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	prefix := "header:" + name + ":"
	return func(r *http.Request) (string, error) {
		values := r.Header[name]
		if len(values) == 0 || values[0] == "" {
			return "", ErrMissing
		}
		return prefix + values[0], nil
	}
}

// Constant is the same for all requests: a limit of the whole service.
func Constant(name string) Key {
	return func(*http.Request) (string, error) { return name, nil }
}

// Joined is several keys in one. Each is written with its length before it: parts that
// only look alike when they stand side by side stay different. If one is missing, all is.
func Joined(keys ...Key) Key {
	return func(r *http.Request) (string, error) {
		var joined []byte
		for _, key := range keys {
			part, err := key(r)
			if err != nil || part == "" {
				return "", errors.Join(ErrMissing, err)
			}
			joined = strconv.AppendInt(joined, int64(len(part)), 10)
			joined = append(append(joined, ':'), part...)
		}
		return string(joined), nil
	}
}

// Missing says what becomes of a request that has no key.
type Missing uint8

const (
	// Anonymous counts all of them against one key. It is the default: nobody escapes a
	// limit by leaving something out.
	Anonymous Missing = iota
	// Skip does not ask this limit.
	Skip
	// Deny answers 403.
	Deny
)

// key is what to charge; "" skips the limit.
func (m Missing) key(key Key, r *http.Request) (string, error) {
	text, err := key(r)
	switch {
	case err == nil && len(text) > longest:
		sum := sha256.Sum256([]byte(text))
		return "\x00sha256:" + hex.EncodeToString(sum[:]), nil
	case err == nil && text != "":
		return text, nil
	case m == Skip:
		return "", nil
	case m == Deny:
		return "", &missingError{cause: err}
	}
	return anonymous, nil
}

// A missingError is a request that is denied because it has no key.
type missingError struct{ cause error }

func (e *missingError) Error() string {
	if e.cause == nil {
		return ErrMissing.Error()
	}
	return "httplimit: the request is denied without its key: " + e.cause.Error()
}

func (e *missingError) Unwrap() []error { return []error{ErrMissing, e.cause} }
