package gozerolimit_test

import (
	"fmt"
	"net/http"

	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/rest"
	"github.com/zeromicro/go-zero/rest/pathvar"

	"github.com/weirproject/weir/contrib/gozerolimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func Example() {
	logx.Disable()
	var c rest.RestConf
	_ = conf.FillDefault(&c)
	c.DevServer.Enabled = false
	limited := adapttest.Limited()

	server := rest.MustNewServer(c, gozerolimit.WithRoutes())
	server.Use(rest.ToMiddleware(limited))
	server.AddRoute(rest.Route{Method: "GET", Path: "/items/:id", Handler: func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "item", pathvar.Vars(r)["id"])
	}})

	handler, _ := rest.NewServerless(server)
	adapttest.Show(http.HandlerFunc(handler.Serve), "/items/1", "/items/2")
	// Output:
	// /items/1 200
	// /items/2 429
}
