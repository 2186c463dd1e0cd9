package fiberlimit_test

import (
	"bufio"
	"io"
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/weirproject/weir/contrib/fiberlimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func serve(t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
	app := fiber.New()
	app.Use(recover.New())
	limit := fiberlimit.Wrap(limited)
	app.Get("/items/:id", limit, func(c fiber.Ctx) error { return c.SendString(s.Item(c.Params("id"))) })
	app.Get("/status/:code", limit, func(c fiber.Ctx) error {
		c.Status(adapttest.Code(c.Path()))
		return nil
	})
	app.Get("/error/:code", limit, func(c fiber.Ctx) error { return fiber.NewError(adapttest.Code(c.Path()), "an error") })
	app.Get("/cost", limit, func(c fiber.Ctx) error {
		cost, body := s.Cost()
		c.Set("X-Cost", cost)
		return c.SendString(body)
	})
	app.Post("/form", limit, func(c fiber.Ctx) error { return c.Send(c.Body()) })
	app.Get("/panic", limit, func(fiber.Ctx) error { panic("a handler") })
	app.Get("/hold", limit, func(c fiber.Ctx) error {
		s.Hold()
		return c.SendString(s.Last())
	})
	app.Get("/stream", limit, func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			io.WriteString(w, s.First())
			w.Flush()
			s.Hold()
			io.WriteString(w, s.Last())
		})
	})
	app.Get("/hijack", limit, func(c fiber.Ctx) error {
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(conn net.Conn) {
			s.Hold()
			io.WriteString(conn, s.Hijacked())
		})
		return nil
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
	t.Cleanup(func() { app.Shutdown() })
	return "http://" + listener.Addr().String()
}

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Serve: serve, Route: "/items/:id", Lacks: []string{"stream bytes"}})
}
