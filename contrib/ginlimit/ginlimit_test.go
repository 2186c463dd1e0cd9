package ginlimit_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weirproject/weir/contrib/ginlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func serve(t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
	router.Use(ginlimit.Wrap(limited))
	router.GET("/items/:id", func(c *gin.Context) { c.String(200, "%s", s.Item(c.Param("id"))) })
	router.GET("/status/:code", func(c *gin.Context) { c.Status(adapttest.Code(c.Request.URL.Path)) })
	router.GET("/error/:code", func(c *gin.Context) {
		_ = c.AbortWithError(adapttest.Code(c.Request.URL.Path), errors.New("an error"))
	})
	router.GET("/cost", func(c *gin.Context) {
		cost, body := s.Cost()
		c.Header("X-Cost", cost)
		c.String(200, "%s", body)
	})
	router.POST("/form", func(c *gin.Context) {
		body, _ := c.GetRawData()
		c.Data(200, "text/plain", body)
	})
	router.GET("/panic", func(*gin.Context) { panic("a handler") })
	router.GET("/hold", func(c *gin.Context) {
		s.Hold()
		c.String(200, "%s", s.Last())
	})
	router.GET("/stream", func(c *gin.Context) {
		lines := []string{s.First(), s.Last()}
		c.Stream(func(w io.Writer) bool {
			io.WriteString(w, lines[0])
			c.Writer.Flush()
			if lines = lines[1:]; len(lines) > 0 {
				s.Hold()
			}
			return len(lines) > 0
		})
	})
	router.GET("/hijack", func(c *gin.Context) {
		conn, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		s.Hold()
		io.WriteString(conn, s.Hijacked())
	})
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	return server.URL
}

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Serve: serve, Route: "/items/:id"})
}
