package telemetry

import "github.com/weirproject/weir/rules"

// MaxRequestID is the maximum length of a RequestID, in bytes; longer ones are cut.
const MaxRequestID = 64

// RequestID is the X-Request-Id of a request, else the trace id of its traceparent; "" if it has neither. It
// shares memory with the request. For use in an observer of a gate: RequestID(v.Request()).
func RequestID(r *rules.Request) string {
	if r == nil || r.Attributes == nil {
		return ""
	}
	if id := r.Attributes.Header("X-Request-Id"); id != "" {
		return id[:min(len(id), MaxRequestID)]
	}
	return traceID(r.Attributes.Header("Traceparent"))
}

// traceID is the trace id of a traceparent (W3C Trace Context): 00-TRACE-SPAN-FLAGS, with 32 digits of TRACE. It is
// the same for all requests of one trace. Versions above 00 may only append fields.
func traceID(traceparent string) string {
	const begin, end, least = 3, 35, 55
	if len(traceparent) < least || traceparent[begin-1] != '-' || traceparent[end] != '-' {
		return ""
	}
	id := traceparent[begin:end]
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return id
}
