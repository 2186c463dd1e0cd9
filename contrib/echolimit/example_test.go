package echolimit_test

import (
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/weirproject/weir/contrib/echolimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func Example() {
	limited := adapttest.Limited()

	e := echo.New()
	e.Use(middleware.Recover(), echolimit.Wrap(limited))
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(200, "item "+c.Param("id")) })

	adapttest.Show(e, "/items/1", "/items/2")
	// Output:
	// /items/1 200
	// /items/2 429
}
