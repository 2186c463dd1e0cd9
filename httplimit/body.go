package httplimit

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/weirproject/weir/internal/webvalues"
)

// bodyTime is how long a client may take for a body with fields that a rule needs, where its server has no ReadTimeout.
var bodyTime = 10 * time.Second

// Body is the value of a field of the body: see webvalues.Body.
func (a *attributes) Body(name string) string { return a.readBody().Value(name) }

// Doubtful implements rules.Attributes.
func (a *attributes) Doubtful(kind, name string) bool {
	if kind == "body" {
		return a.readBody().Doubtful(name)
	}
	return a.Request.Doubtful(kind, name)
}

// readBody reads the body once, when the first rule needs it.
func (a *attributes) readBody() *webvalues.Body {
	if a.body == nil {
		a.body = a.newBody()
	}
	return a.body
}

func (a *attributes) newBody() *webvalues.Body {
	r := a.request
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return new(webvalues.Body)
	}
	format := webvalues.FormatOf(r.Header)
	if format == webvalues.Unread || r.ContentLength > webvalues.MaxBody {
		return webvalues.UnreadBody()
	}
	text, err := a.readText(webvalues.MaxBody)
	if err != nil || len(text) > webvalues.MaxBody {
		return webvalues.UnreadBody()
	}
	return webvalues.NewBody(format, text, a.Kind)
}

// readText reads the body, and at most one byte beyond a length. The request is then a copy with a body that begins
// anew.
func (a *attributes) readText(most int64) (text []byte, err error) {
	r, end := a.request, a.limitTime()
	text, err = io.ReadAll(io.LimitReader(r.Body, most+1))
	a.request = r.WithContext(r.Context())
	a.request.Body = &replayed{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
	if err == nil { // otherwise the time stays over: net/http would wait for the rest before it sends the refusal
		end()
	}
	return text, err
}

// limitTime limits the time of reading until the returned function is called. A server's own timeout is left alone: it
// cannot be restored.
func (a *attributes) limitTime() (end func()) {
	server, ok := a.request.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || server.ReadTimeout > 0 {
		return func() {}
	}
	connection := http.NewResponseController(a.writer)
	connection.SetReadDeadline(time.Now().Add(bodyTime)) // a writer that cannot has no connection
	return func() { connection.SetReadDeadline(time.Time{}) }
}

// replayed is a body with the part that was read.
type replayed struct {
	io.Reader
	io.Closer
}
