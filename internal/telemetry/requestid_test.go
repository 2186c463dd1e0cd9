package telemetry

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// headers are attributes of a request.
type headers map[string]string

func (h headers) Header(name string) string {
	if name != http.CanonicalHeaderKey(name) {
		panic(name + " is not canonical")
	}
	return h[name]
}
func (headers) Query(string) string      { return "" }
func (headers) Cookie(string) string     { return "" }
func (headers) Descriptor(string) string { return "" }

func TestRequestID(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct {
		name    string
		headers headers
		want    string
	}{
		{"none", headers{}, ""},
		{"request id", headers{"X-Request-Id": "r-1", "Traceparent": "00-" + trace + "-00f067aa0ba902b7-01"}, "r-1"},
		{"trace", headers{"Traceparent": "00-" + trace + "-00f067aa0ba902b7-01"}, trace},
		{"trace of a later version", headers{"Traceparent": "01-" + trace + "-00f067aa0ba902b7-01-more"}, trace},
		{"too long", headers{"X-Request-Id": strings.Repeat("x", 1000)}, strings.Repeat("x", MaxRequestID)},
		{"short traceparent", headers{"Traceparent": "00-" + trace}, ""},
		{"traceparent with capitals", headers{"Traceparent": "00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01"}, ""},
		{"traceparent without dashes", headers{"Traceparent": strings.Repeat("0", 55)}, ""},
	} {
		if got := RequestID(&rules.Request{Attributes: c.headers}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if RequestID(nil) != "" || RequestID(&rules.Request{}) != "" {
		t.Error("a request without headers has an id")
	}
}
