package web

import (
	"errors"
	"net/http"
)

// WithoutBody gives a request that is decided without its body one that cannot be read, so that rules that need it
// refuse the request or take their defaults; a request to read has none.
func WithoutBody(r *http.Request) {
	r.Body, r.ContentLength = http.NoBody, 0
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		r.Body, r.ContentLength = unread{}, -1
	}
}

type unread struct{}

// Read implements io.Reader.
func (unread) Read([]byte) (int, error) { return 0, errors.New("the front end does not have the body") }

// Close implements io.Closer.
func (unread) Close() error { return nil }
