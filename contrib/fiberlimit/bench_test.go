package fiberlimit_test

import (
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/weirproject/weir/contrib/fiberlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		app := fiber.New()
		null := func(fiber.Ctx) error { return nil }
		if limited != nil {
			app.Get("/items/:id", fiberlimit.Wrap(limited), null)
		} else {
			app.Get("/items/:id", null)
		}
		handler, c := app.Handler(), new(fasthttp.RequestCtx)
		c.Request.SetRequestURI("/items/1")
		c.Request.Header.SetHost("example.com")
		c.Request.Header.SetUserAgent("bench")
		c.Request.Header.Set("X-Api-Key", "k1")
		return func() {
			c.Response.Reset()
			handler(c)
		}
	})
}
