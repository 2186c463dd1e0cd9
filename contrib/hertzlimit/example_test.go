package hertzlimit_test

import (
	"context"
	"fmt"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/middlewares/server/recovery"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/ut"

	"github.com/weirproject/weir/contrib/hertzlimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func Example() {
	limited := adapttest.Limited()

	h := server.New()
	h.Use(recovery.Recovery(), hertzlimit.Wrap(limited))
	h.GET("/items/:id", func(_ context.Context, c *app.RequestContext) { c.String(200, "item %s", c.Param("id")) })

	for _, path := range []string{"/items/1", "/items/2"} {
		w := ut.PerformRequest(h.Engine, "GET", path, nil, ut.Header{Key: "Host", Value: "example.com"})
		fmt.Println(path, w.Result().StatusCode())
	}
	// Output:
	// /items/1 200
	// /items/2 429
}
