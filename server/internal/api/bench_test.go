package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The usual requests: a rule and a claim of the caller's own.
const (
	byRule  = `{"request":{"method":"GET","path":"/v1/items","client":"203.0.113.7","headers":{"X-User":"42"}}}`
	byClaim = `{"claims":[{"name":"api","limit":"1000000000/1s","key":"user:42"}]}`
	oneRule = `rules: [{name: per-ip, key: [client.ip], limit: 1000000000/1s}]`
)

// discard is a ResponseWriter that allocates nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// asking calls a handler with one body, again and again.
func asking(t testing.TB, h http.Handler, path, body string) func() {
	reader := strings.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.Header.Set("Content-Type", "application/json")
	r.Body, r.ContentLength = io.NopCloser(reader), int64(len(body))
	w := &discard{make(http.Header)}
	return func() {
		reader.Reset(body)
		h.ServeHTTP(w, r)
	}
}
