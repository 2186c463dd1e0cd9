// Package hertzlimit limits the requests of a hertz server.
//
//	limited, err := limits.Middleware(nil) // of an engine.Engine, or made by httplimit
//	...
//	h := server.Default()
//	h.Use(hertzlimit.Wrap(limited))
package hertzlimit

import (
	"context"
	"net/http"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/weirproject/weir/internal/adapt"
)

// Wrap makes a handler for hertz of middleware that httplimit or an engine made. Functions of its options, such as
// Observe, must not keep the request, which is used again.
//
// The route of a request, for rules and for httplimit.Route, is hertz's full path, such as /items/:id.
//
// A body stream is sent after its handler: its units of concurrency are held until it ends, and so are those of a
// hijacked connection. The bytes that a handler writes to a hijacked response writer, as for server-sent events,
// cannot be seen: rules that settle by them keep the estimate.
func Wrap(limited func(http.Handler) http.Handler) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		request := &c.Request
		uri := request.URI()
		head := adapt.Head{Method: request.Method(), Host: request.Header.Host(), Path: uri.PathOriginal(),
			Query: uri.QueryString(), Route: c.FullPath(), Remote: c.RemoteAddr(), Streamed: request.IsBodyStream()}
		head.Length = int64(request.Header.ContentLength())
		if head.Length < 0 && !head.Streamed { // it came in chunks
			head.Length = int64(len(request.Body()))
		}
		x := adapt.Begin(exchange{c}, &head)
		request.Header.VisitAll(x.Field)
		if !x.Serve(ctx, limited) {
			c.Abort()
		}
	}
}

type exchange struct{ c *app.RequestContext }

func (x exchange) Next(ctx context.Context) (status int) {
	x.c.Next(ctx)
	return 0
}

func (x exchange) Body() []byte { return x.c.Request.Body() }

func (x exchange) Replace(name, value string) {
	if name == "" {
		x.c.Request.SetBodyString(value)
		return
	}
	x.c.Request.Header.Set(name, value)
}

func (x exchange) Fields(each func(name, value []byte)) { x.c.Response.Header.VisitAll(each) }

func (x exchange) Add(name, value string) { x.c.Response.Header.Add(name, value) }

func (x exchange) Response() (status int, body []byte, whole bool) {
	response := &x.c.Response
	if response.IsBodyStream() || response.GetHijackWriter() != nil {
		return response.StatusCode(), nil, false
	}
	return response.StatusCode(), response.Body(), true
}

func (x exchange) Refuse(status int, body []byte) {
	x.c.Response.SetStatusCode(status)
	x.c.Response.SetBody(body)
}

// Later waits for hertz to end the request: after the response, and after a hijacked connection.
func (x exchange) Later(exchange *adapt.Exchange, end func()) bool {
	response := &x.c.Response
	if exchange.Measures() && response.IsBodyStream() {
		length := response.Header.ContentLength()
		response.SetBodyStreamNoReset(exchange.Stream(response.BodyStream()), length)
	}
	if !response.IsBodyStream() && !x.c.Hijacked() {
		return false
	}
	finished := x.c.Finished()
	go func() {
		<-finished
		end()
	}()
	return true
}
