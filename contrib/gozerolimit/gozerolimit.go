// Package gozerolimit tells weir the routes of a go-zero server. Middleware of net/http needs nothing else there:
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	server := rest.MustNewServer(c.RestConf, gozerolimit.WithRoutes())
//	server.Use(rest.ToMiddleware(limited))
package gozerolimit

import (
	"net/http"

	"github.com/zeromicro/go-zero/rest"
	"github.com/zeromicro/go-zero/rest/httpx"
	"github.com/zeromicro/go-zero/rest/router"
)

// WithRoutes is the option of a server whose requests have their routes, for rules and for httplimit.Route: the path of
// the route with its prefix, such as /v1/items/:id. It sets the router of the server: name it before options that
// change one, such as rest.WithNotFoundHandler.
func WithRoutes() rest.RunOption { return rest.WithRouter(routes{router.NewRouter()}) }

// routes is a router that names the route of each request.
type routes struct{ httpx.Router }

// Handle implements httpx.Router.
func (r routes) Handle(method, path string, handler http.Handler) error {
	return r.Router.Handle(method, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = path
		handler.ServeHTTP(w, r)
	}))
}
