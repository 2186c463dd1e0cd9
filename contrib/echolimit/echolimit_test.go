package echolimit_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/weirproject/weir/contrib/echolimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func serve(t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.Recover(), echolimit.Wrap(limited))
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(200, s.Item(c.Param("id"))) })
	e.GET("/status/:code", func(c *echo.Context) error { return c.NoContent(adapttest.Code(c.Request().URL.Path)) })
	e.GET("/error/:code", func(c *echo.Context) error {
		return echo.NewHTTPError(adapttest.Code(c.Request().URL.Path), "an error")
	})
	e.GET("/cost", func(c *echo.Context) error {
		cost, body := s.Cost()
		c.Response().Header().Set("X-Cost", cost)
		return c.String(200, body)
	})
	e.POST("/form", func(c *echo.Context) error { return c.Stream(200, "text/plain", c.Request().Body) })
	e.GET("/panic", func(*echo.Context) error { panic("a handler") })
	handlers := s.Handlers() // echo's way to stream and to take over is that of net/http
	for _, path := range []string{"/hold", "/stream", "/hijack"} {
		e.GET(path, func(c *echo.Context) error {
			handlers["GET "+path](c.Response(), c.Request())
			return nil
		})
	}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return server.URL
}

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Serve: serve, Route: "/items/:id"})
}
