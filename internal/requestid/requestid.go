// Package requestid names a request, so that who was refused can say which request it was.
package requestid

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/url"
	"strings"
)

// Field is the header field with the id of a request.
const Field = "X-Request-Id"

// maxBytes is the longest id that is taken over, in bytes.
const maxBytes = 128

// Of is the request's X-Request-Id, or the trace id of its traceparent (W3C Trace Context), or "". A value that is too
// long, or is not printable ASCII, is left out, because it is a client's text.
func Of(fields interface{ Header(name string) string }) string {
	if id := fields.Header(Field); isID(id) {
		return id
	}
	return traceID(fields.Header("Traceparent"))
}

// For is Of for the header of a request over HTTP, or a new id.
func For(h map[string][]string) string {
	if id := Of(header(h)); id != "" {
		return id
	}
	return New()
}

type header map[string][]string

func (h header) Header(name string) string {
	if lines := h[name]; len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// New makes an id in the form of a trace id. It is no secret.
func New() string { return string(Append(make([]byte, 0, 32))) }

// Append appends what New makes.
func Append(text []byte) []byte {
	var bytes [16]byte
	binary.BigEndian.PutUint64(bytes[:], rand.Uint64())
	binary.BigEndian.PutUint64(bytes[8:], rand.Uint64())
	return hex.AppendEncode(text, bytes[:])
}

// Instance is the id as a URI, for the instance of a problem document (RFC 9457).
func Instance(id string) string { return "urn:weir:request:" + url.PathEscape(id) }

func isID(text string) bool {
	if text == "" || len(text) > maxBytes {
		return false
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// traceID is the second field of version-traceid-parentid-flags. Later versions may have more fields.
func traceID(parent string) string {
	const from, to, end = len("00-"), len("00-") + 32, 55
	if len(parent) < end || parent[from-1] != '-' || parent[to] != '-' || strings.HasPrefix(parent, "ff") {
		return ""
	}
	id := parent[from:to]
	if strings.Trim(id, "0123456789abcdef") != "" || strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}
