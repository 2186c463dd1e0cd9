// Package adapt runs middleware of net/http, as httplimit makes it, in the chain of a framework. The adapters in
// contrib are thin layers over it.
package adapt

import (
	"io"
	"net/http"

	"github.com/weirproject/weir/httplimit"
)

// Middleware is middleware of net/http.
type Middleware = func(http.Handler) http.Handler

// Next is the rest of a framework's chain. It gets the request as the middleware made it, and the writer that the
// middleware needs, or nil if the framework's own will do. It returns the status of a response that is not written yet,
// as of an error that the framework renders later; 0 if the response is written.
type Next func(w http.ResponseWriter, r *http.Request) (status int)

// Serve runs middleware, and next if the middleware lets the request pass, which it reports. Otherwise the middleware
// has written the response.
func Serve(limited Middleware, w http.ResponseWriter, r *http.Request, next Next) (passed bool) {
	return (&writer{ResponseWriter: w, next: next}).serve(limited, r)
}

// A passer is the rest of a chain, as Next is.
type passer interface {
	pass(w http.ResponseWriter, r *http.Request) (status int)
}

func (n Next) pass(w http.ResponseWriter, r *http.Request) (status int) { return n(w, r) }

func (x *writer) serve(limited Middleware, r *http.Request) (passed bool) {
	limited(x).ServeHTTP(x, r)
	return x.passed
}

// A writer stands between the middleware and the framework's writer, and is the handler behind the middleware.
type writer struct {
	http.ResponseWriter
	next   passer
	passed bool
	muted  bool // a status that is written is only for the middleware
}

// ServeHTTP implements http.Handler.
func (x *writer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.passed = true
	if w == x {
		x.next.pass(nil, r)
		return
	}
	if status := x.next.pass(w, r); status != 0 {
		x.muted = true
		w.WriteHeader(status)
		x.muted = false
	}
}

// WriteHeader implements http.ResponseWriter.
func (x *writer) WriteHeader(status int) {
	if !x.muted {
		x.ResponseWriter.WriteHeader(status)
	}
}

// ReadFrom keeps net/http's file copies within the kernel.
func (x *writer) ReadFrom(r io.Reader) (int64, error) { return io.Copy(x.ResponseWriter, r) }

// Unwrap supports http.ResponseController.
func (x *writer) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Later forwards the end of a request to a writer that sends the response after the handler: see httplimit.
func (x *writer) Later(end func()) bool {
	later, ok := x.ResponseWriter.(interface{ Later(end func()) bool })
	return ok && later.Later(end)
}

// Unseen reports whether the body of the response does not pass through the writer: see httplimit.
func (x *writer) Unseen() bool {
	unseen, ok := x.ResponseWriter.(interface{ Unseen() bool })
	return ok && unseen.Unseen()
}

// Refuse forwards a refusal to a writer of a framework that renders it: see httplimit.
func (x *writer) Refuse(refusal *httplimit.Refusal) bool {
	framework, ok := x.ResponseWriter.(interface{ Refuse(*httplimit.Refusal) bool })
	return ok && framework.Refuse(refusal)
}
