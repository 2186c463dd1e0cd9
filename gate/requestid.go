package gate

import "strings"

// maxRequestID is the longest request id that is reported, in bytes.
const maxRequestID = 128

// RequestID is the request's X-Request-Id, or the trace id of its traceparent (W3C Trace Context), or "". A value
// that is too long, or is not printable ASCII, is left out, because it is a client's text. It is for observers:
// after Decide it is "". The text may be in a reused buffer of the front end, so clone what is kept.
//
// The verdict keeps the attributes, not the request: a pointer to the request would move each caller's to the heap.
func (v *Verdict) RequestID() string {
	if v.attributes == nil {
		return ""
	}
	if id := v.attributes.Header("X-Request-Id"); id != "" && len(id) <= maxRequestID && isPrintable(id) {
		return id
	}
	return traceID(v.attributes.Header("Traceparent"))
}

func isPrintable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
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
