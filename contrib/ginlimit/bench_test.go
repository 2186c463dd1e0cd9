package ginlimit_test

import (
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weirproject/weir/contrib/ginlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func BenchmarkAdapter(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	adapttest.Bench(b, func(limited adapt.Middleware) func() {
		router := gin.New()
		if limited != nil {
			router.Use(ginlimit.Wrap(limited))
		}
		router.GET("/items/:id", func(*gin.Context) {})
		return adapttest.Asking(router)
	})
}
