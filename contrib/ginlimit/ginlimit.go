// Package ginlimit limits the requests of a gin engine.
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	router := gin.New()
//	router.Use(gin.Recovery(), ginlimit.Wrap(limited))
package ginlimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weirproject/weir/internal/adapt"
)

// Wrap makes a handler for gin of middleware that httplimit or an engine made. A refused request does not reach the
// handlers after it. The route of a request, for rules and for httplimit.Route, is gin's full path, such as /items/:id;
// a request without a route has none. Addresses of clients come from weir, not from gin: gin trusts all proxies unless
// told otherwise.
//
// Rules with count_if and settled costs read the response as it is when the handlers after Wrap have returned: put
// middleware that writes responses for errors after Wrap.
func Wrap(limited func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		own := c.Writer
		passed := adapt.Serve(limited, own, c.Request, func(w http.ResponseWriter, r *http.Request) (status int) {
			c.Request = r
			if w != nil {
				c.Writer = &writer{own, w}
				defer func() { c.Writer = own }()
			}
			if c.Next(); !own.Written() {
				return own.Status()
			}
			return 0
		})
		if !passed {
			c.Abort()
		}
	}
}

// A writer is gin's, which keeps the head until it is needed, and shows the middleware what gin sends.
type writer struct {
	gin.ResponseWriter
	limited http.ResponseWriter
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.limited.WriteHeader(w.Status())
		w.ResponseWriter.WriteHeaderNow()
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	return w.limited.Write(b)
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	return io.WriteString(w.limited, s)
}

func (w *writer) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.limited).Flush() // gin's Flush reports no errors
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.limited).Hijack()
}

// Unwrap supports http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.limited }
