// Package fiberlimit limits the requests of a fiber app.
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	app := fiber.New(fiber.Config{CaseSensitive: true, StrictRouting: true})
//	app.Use(recover.New())
//	app.Get("/items/:id", fiberlimit.Wrap(limited), item)
package fiberlimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/weirproject/weir/internal/adapt"
)

// Wrap makes a handler for fiber of middleware that httplimit or an engine made. Functions of its options, such as
// Observe, must not keep the request, which is used again.
//
// The route of a request, for rules and for httplimit.Route, is the path of fiber's route, such as /items/:id, where
// the handler is given to a route. For Use, no route is known yet. By default fiber serves /LOGIN and /login/ as
// /login, which rules tell apart: match by route, or make the app with CaseSensitive and StrictRouting.
//
// An error of a handler has its status for rules with count_if. A stream is sent after its handler: its units of
// concurrency are held until it ends, and so are those of a hijacked connection. The bytes of a stream cannot be seen,
// so rules that settle by them keep the estimate.
func Wrap(limited func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		request := c.Request()
		uri := request.URI()
		head := adapt.Head{Method: request.Header.Method(), Host: request.Header.Host(), Path: uri.PathOriginal(),
			Query: uri.QueryString(), Remote: c.RequestCtx().RemoteAddr(), Streamed: request.IsBodyStream()}
		head.Length = int64(request.Header.ContentLength())
		if head.Length < 0 && !head.Streamed { // it came in chunks
			head.Length = int64(len(request.Body()))
		}
		if c.Matched() {
			head.Route = c.FullPath()
		}
		own := &exchange{Ctx: c, given: c.Context()}
		x := adapt.Begin(own, &head)
		for name, value := range request.Header.All() {
			x.Field(name, value)
		}
		x.Serve(own.given, limited)
		return own.err
	}
}

// statusOf is the status that fiber's error handler gives an error.
func statusOf(err error) int {
	if failure, ok := errors.AsType[*fiber.Error](err); ok {
		return failure.Code
	}
	return http.StatusInternalServerError
}

type exchange struct {
	fiber.Ctx
	given context.Context
	err   error // of the chain
}

func (x *exchange) Next(ctx context.Context) (status int) {
	if ctx != x.given {
		x.SetContext(ctx)
		defer x.SetContext(x.given)
	}
	if x.err = x.Ctx.Next(); x.err != nil {
		return statusOf(x.err)
	}
	return 0
}

func (x *exchange) Body() []byte { return x.Request().Body() }

func (x *exchange) Replace(name, value string) {
	if name == "" {
		x.Request().SetBodyString(value)
		return
	}
	x.Request().Header.Set(name, value)
}

func (x *exchange) Fields(each func(name, value []byte)) {
	for name, value := range x.Ctx.Response().Header.All() {
		each(name, value)
	}
}

func (x *exchange) Add(name, value string) { x.Ctx.Response().Header.Add(name, value) }

func (x *exchange) Response() (status int, body []byte, whole bool) {
	response := x.Ctx.Response()
	if response.IsBodyStream() {
		return response.StatusCode(), nil, false
	}
	return response.StatusCode(), response.Body(), true
}

func (x *exchange) Refuse(status int, body []byte) {
	x.Ctx.Response().SetStatusCode(status)
	x.Ctx.Response().SetBody(body)
}

// Later lets fasthttp call end: it closes values of a request when the response is sent and when a hijacked connection
// is closed.
func (x *exchange) Later(_ *adapt.Exchange, end func()) bool {
	c := x.RequestCtx()
	if !x.Ctx.Response().IsBodyStream() && !c.Hijacked() {
		return false
	}
	c.SetUserValue(closing{}, closer{end})
	return true
}

// closing is the key of a closer.
type closing struct{}

// A closer ends a request.
type closer struct{ end func() }

func (c closer) Close() error {
	c.end()
	return nil
}
