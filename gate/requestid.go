package gate

import "github.com/weirproject/weir/internal/requestid"

// RequestID is the request's X-Request-Id, or the trace id of its traceparent (W3C Trace Context). A value that is too
// long, or is not printable ASCII, is left out, because it is a client's text. A request without such an id that does
// not pass has the id that the front end makes and tells the client, if its attributes have MakeRequestID() string;
// else "". It is for observers: after Decide it is "". The text may be in a reused buffer of the front end, so clone a
// text that is kept.
//
// The verdict keeps the attributes, not the request: a pointer to the request would move each caller's to the heap.
func (v *Verdict) RequestID() string {
	if v.attributes == nil {
		return ""
	}
	if id := requestid.Of(v.attributes); id != "" || v.Outcome == Passed {
		return id
	}
	if front, ok := v.attributes.(interface{ MakeRequestID() string }); ok {
		return front.MakeRequestID()
	}
	return ""
}

// Target is the method and the path of the request, as the front end states them. It is for observers, as RequestID is.
func (v *Verdict) Target() (method, path string) { return v.method, v.target }
