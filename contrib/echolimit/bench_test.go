package echolimit_test

import (
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/weirproject/weir/contrib/echolimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		e := echo.New()
		if limited != nil {
			e.Use(echolimit.Wrap(limited))
		}
		e.GET("/items/:id", func(*echo.Context) error { return nil })
		return adapttest.Asking(e)
	})
}
