package api_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/memstore"
)

func TestCompactAnswers(t *testing.T) {
	s := serve(t, handler(t, memstore.New(), someRules))
	const (
		path  = "/v1/decide?answer=compact"
		body  = `{"claims":[{"name":"a","limit":"fixed_window 2/1h","key":"k"}]}`
		batch = `{"requests":[` + body + `,` + body + `]}`
	)
	if a := s.post(path, body); a.status != 200 || len(a.text) > 160 || strings.Contains(a.text, "checks") {
		t.Errorf("the answer is %d, %d bytes: %s", a.status, len(a.text), a.text)
	}
	s.post("/v1/decide?answer=full", body).has(t, 200, "reason", "within_limits")
	both := s.post("/v1/decide?deny_status=429&answer=compact", body)
	if len(both.text) > 160 || strings.Contains(both.text, "checks") {
		t.Errorf("with another parameter the answer is %s", both.text)
	}
	both.has(t, 429, "outcome", "refused", "allowed", false, "granted", 0, "remaining", 0)
	if a := s.post(path, batch); strings.Count(a.text, `"allowed":false`) != 2 || strings.Contains(a.text, "checks") {
		t.Errorf("a batch is answered %s", a.text)
	}
	s.post("/v1/decide", body).has(t, 200, "reason", "limit_exceeded") // not compact because an earlier one was
	for _, wrong := range []string{"/v1/decide?answer=short", "/v1/decide?answer=",
		"/v1/decide?answer=compact&answer=full"} {
		s.post(wrong, body).has(t, 400, "field", "answer", "allowed", "one of compact, full")
	}
	for _, other := range []string{"/v1/peek", "/v1/reserve", "/v1/acquire", "/v1/reset"} {
		s.post(other+"?answer=compact", body).has(t, 400, "field", "the query")
	}
}
