package ginlimit_test

import (
	"github.com/gin-gonic/gin"

	"github.com/weirproject/weir/contrib/ginlimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func Example() {
	gin.SetMode(gin.ReleaseMode)
	limited := adapttest.Limited()

	router := gin.New()
	router.Use(gin.Recovery(), ginlimit.Wrap(limited))
	router.GET("/items/:id", func(c *gin.Context) { c.String(200, "item %s", c.Param("id")) })

	adapttest.Show(router, "/items/1", "/items/2")
	// Output:
	// /items/1 200
	// /items/2 429
}
