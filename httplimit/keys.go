package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
)

// A Key returns the key against which a request is counted. An error, or "", means that the request has no key: see
// [Missing].
type Key func(*http.Request) (string, error)

// ErrMissing is the error of the keys of this package for a request without the property they read.
var ErrMissing = errors.New("httplimit: the request has no such key")

// longest is the maximum length of a key; longer ones are hashed. Clients choose keys: a key that
// the store rejects for its length must not become an error, because errors may let the request
// pass.
const longest = 256

const anonymous = "\x00anonymous" // no key of this package begins with a zero

// PeerAddress is the address of the connection's peer; for IPv6 its /64, since one subscriber has
// 2^64 addresses. IPv4 in IPv6 is IPv4. It reads no header: behind a proxy all clients share the
// proxy's address. There, write a Key with a [clientaddr.Extractor], which knows the proxies, and a
// [clientaddr.Mask].
func PeerAddress(r *http.Request) (string, error) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil { // a Unix socket has no address
		return "", ErrMissing
	}
	buffer := append(make([]byte, 0, 64), "ip:"...)
	return string(clientaddr.Mask{}.AppendKey(buffer, peer.Addr())), nil
}

// Route is the pattern of the http.ServeMux that chose the handler. The middleware must wrap the
// handlers of the mux: before the mux no route is chosen. For middleware around the mux, use
// [RouteOf].
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", ErrMissing
	}
	return "route:" + r.Pattern, nil
}

// RouteOf is the pattern that a mux would choose, for middleware around the mux.
func RouteOf(mux *http.ServeMux) Key {
	return func(r *http.Request) (string, error) {
		_, pattern := mux.Handler(r)
		if pattern == "" {
			return "", ErrMissing
		}
		return "route:" + pattern, nil
	}
}

// MethodRoute is the method and the pattern, so that reads and writes of a route are counted
// separately. Methods that HTTP does not define share one key, so that an invented method gives no
// new key.
func MethodRoute(r *http.Request) (string, error) {
	route, err := Route(r)
	if err != nil {
		return "", err
	}
	return method(r.Method) + " " + route, nil
}

func method(name string) string {
	switch name {
	case "": // GET, in a client request
		return http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return name
	}
	return "other"
}

// Header is the first value of a header field, such as an API key that was verified before. An
// unverified value is no limit: the client can invent another.
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

// Constant is the same key for all requests: a limit of the whole service.
func Constant(name string) Key {
	return func(*http.Request) (string, error) { return name, nil }
}

// Joined combines several keys. Each part is prefixed with its length, so that different parts
// never give the same text. If one is missing, the whole key is.
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

// Missing is the policy for a request without a key.
type Missing uint8

const (
	// Anonymous counts all such requests against one key. It is the default: omitting a property
	// does not evade a limit.
	Anonymous Missing = iota
	// Skip ignores this limit.
	Skip
	// Deny answers 403.
	Deny
)

// Choose returns the key to count for the result of a function that returns keys; "" skips the limit. Keys over 256
// bytes are hashed. The error, which is ErrMissing, denies the request. It is for middleware of other protocols.
func (m Missing) Choose(key string, err error) (string, error) {
	switch {
	case err == nil && len(key) > longest:
		sum := sha256.Sum256([]byte(key))
		return "\x00sha256:" + hex.EncodeToString(sum[:]), nil
	case err == nil && key != "":
		return key, nil
	case m == Skip:
		return "", nil
	case m == Deny:
		return "", &missingError{cause: err}
	}
	return anonymous, nil
}

// Claims chooses the key of each claim, and the cost of claims without a cost. It is for middleware of other protocols.
func (m Missing) Claims(claims []weir.Claim, cost int64) (chosen []weir.Claim, err error) {
	for _, claim := range claims {
		if claim.Key, err = m.Choose(claim.Key, nil); err != nil {
			return nil, err
		}
		if claim.Cost == 0 {
			claim.Cost = cost
		}
		if claim.Key != "" {
			chosen = append(chosen, claim)
		}
	}
	return chosen, nil
}

// key is Choose for the key of a request.
func (m Missing) key(key Key, r *http.Request) (string, error) { return m.Choose(key(r)) }

// A missingError denies a request because it has no key.
type missingError struct{ cause error }

func (e *missingError) Error() string {
	if e.cause == nil {
		return ErrMissing.Error()
	}
	return "httplimit: the request has no key and is denied: " + e.cause.Error()
}

func (e *missingError) Unwrap() []error { return []error{ErrMissing, e.cause} }
