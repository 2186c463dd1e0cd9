package gozerolimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/rest"

	"github.com/weirproject/weir/contrib/gozerolimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

// spelling is how go-zero writes the patterns.
var spelling = strings.NewReplacer("{", ":", "}", "")

// serve serves with all of go-zero's own middleware, which frames the middleware of a service.
func serve(t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
	logx.Disable()
	var c rest.RestConf
	if err := conf.FillDefault(&c); err != nil {
		t.Fatal(err)
	}
	c.DevServer.Enabled = false
	server := rest.MustNewServer(c, gozerolimit.WithRoutes())
	server.Use(rest.ToMiddleware(limited))
	for pattern, handler := range s.Handlers() {
		method, path, _ := strings.Cut(spelling.Replace(pattern), " ")
		var options []rest.RouteOption
		if last, ok := strings.CutPrefix(path, "/items"); ok {
			path, options = last, append(options, rest.WithPrefix("/items"))
		}
		if path == "/stream" {
			options = append(options, rest.WithSSE())
		}
		server.AddRoute(rest.Route{Method: method, Path: path, Handler: handler}, options...)
	}
	handler, err := rest.NewServerless(server)
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(http.HandlerFunc(handler.Serve))
	t.Cleanup(listener.Close)
	return listener.URL
}

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Serve: serve, Route: "/items/:id"})
}
