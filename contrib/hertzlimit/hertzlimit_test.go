package hertzlimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/middlewares/server/recovery"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network"

	"github.com/weirproject/weir/contrib/hertzlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func serve(t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
	hlog.SetOutput(io.Discard)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := server.New(server.WithListener(listener), server.WithExitWaitTime(time.Millisecond))
	h.Use(recovery.Recovery(), hertzlimit.Wrap(limited))
	h.GET("/items/:id", func(_ context.Context, c *app.RequestContext) { c.String(200, "%s", s.Item(c.Param("id"))) })
	h.GET("/status/:code", func(_ context.Context, c *app.RequestContext) {
		c.SetStatusCode(adapttest.Code(string(c.Path())))
	})
	h.GET("/error/:code", func(_ context.Context, c *app.RequestContext) {
		_ = c.AbortWithError(adapttest.Code(string(c.Path())), errors.New("an error"))
	})
	h.GET("/cost", func(_ context.Context, c *app.RequestContext) {
		cost, body := s.Cost()
		c.Header("X-Cost", cost)
		c.String(200, "%s", body)
	})
	h.POST("/form", func(_ context.Context, c *app.RequestContext) { c.Data(200, "text/plain", c.Request.Body()) })
	h.GET("/panic", func(context.Context, *app.RequestContext) { panic("a handler") })
	h.GET("/hold", func(_ context.Context, c *app.RequestContext) {
		s.Hold()
		c.String(200, "%s", s.Last())
	})
	h.GET("/stream", func(_ context.Context, c *app.RequestContext) {
		from, to := io.Pipe()
		go func() {
			io.WriteString(to, s.First())
			s.Hold()
			io.WriteString(to, s.Last())
			to.Close()
		}()
		c.SetBodyStream(from, -1)
	})
	h.GET("/hijack", func(_ context.Context, c *app.RequestContext) {
		c.Response.Header.SetContentLength(0)
		c.Response.HijackWriter(nothing{})
		c.Hijack(func(conn network.Conn) {
			s.Hold()
			io.WriteString(conn, s.Hijacked())
		})
	})
	go h.Run()
	t.Cleanup(func() { h.Close() })
	return "http://" + listener.Addr().String()
}

// nothing is a response that the handler of the connection writes.
type nothing struct{}

func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) Flush() error                { return nil }
func (nothing) Finalize() error             { return nil }

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Serve: serve, Route: "/items/:id"})
}
