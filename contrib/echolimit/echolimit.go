// Package echolimit limits the requests of an echo server.
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	e := echo.New()
//	e.Use(middleware.Recover(), echolimit.Wrap(limited))
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/weirproject/weir/internal/adapt"
)

// Wrap makes middleware for echo of middleware that httplimit or an engine made. Give it to Use, not to Pre, before
// which no route is known: the route of a request, for rules and for httplimit.Route, is echo's path, such as
// /items/:id. Addresses of clients come from weir, not from echo's IPExtractor.
//
// An error of a handler has its status for rules with count_if, and echo's error handler renders it.
func Wrap(limited func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			own := c.Response()
			adapt.Serve(limited, own, c.Request(), func(w http.ResponseWriter, r *http.Request) (status int) {
				c.SetRequest(r)
				if w != nil {
					c.SetResponse(w)
					defer c.SetResponse(own)
				}
				if err = next(c); err != nil {
					_, status = echo.ResolveResponseStatus(own, err)
				}
				return status
			})
			return err
		}
	}
}
