package hertzlimit_test

import (
	"context"
	"testing"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"

	"github.com/weirproject/weir/contrib/hertzlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		h := server.New()
		if limited != nil {
			h.Use(hertzlimit.Wrap(limited))
		}
		h.GET("/items/:id", func(context.Context, *app.RequestContext) {})
		c := h.NewContext()
		return func() {
			c.Reset()
			c.Request.SetMethod("GET")
			c.Request.SetRequestURI("/items/1")
			c.Request.Header.SetHost("example.com")
			c.Request.Header.SetUserAgentBytes([]byte("bench"))
			c.Request.Header.Set("X-Api-Key", "k1")
			h.ServeHTTP(context.Background(), c)
		}
	})
}
