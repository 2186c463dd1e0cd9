package gozerolimit_test

import (
	"net/http"
	"testing"

	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/rest"
	"github.com/zeromicro/go-zero/rest/chain"

	"github.com/weirproject/weir/contrib/gozerolimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	logx.Disable()
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		var c rest.RestConf
		if err := conf.FillDefault(&c); err != nil {
			b.Fatal(err)
		}
		c.DevServer.Enabled = false
		options := []rest.RunOption{rest.WithChain(chain.New())} // without go-zero's own middleware
		if limited != nil {
			options = append(options, gozerolimit.WithRoutes())
		}
		server := rest.MustNewServer(c, options...)
		if limited != nil {
			server.Use(rest.ToMiddleware(limited))
		}
		server.AddRoute(rest.Route{Method: "GET", Path: "/items/:id", Handler: func(http.ResponseWriter, *http.Request) {}})
		handler, err := rest.NewServerless(server)
		if err != nil {
			b.Fatal(err)
		}
		return adapttest.Asking(http.HandlerFunc(handler.Serve))
	})
}
