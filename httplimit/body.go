package httplimit

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/rules"
)

// bodyTime is how long a client may take for a body with values that a rule needs, where its server has no ReadTimeout.
var bodyTime = 10 * time.Second

// maxJSON is the length of the longest body that is read for JSON values.
const maxJSON = 1 << 20

// Body is the value of a field of the body: see webvalues.Body.
func (a *attributes) Body(name string) string { return a.readBody().Value(name) }

// Doubtful implements rules.Attributes.
func (a *attributes) Doubtful(kind, name string) bool {
	if kind == "body" {
		return a.readBody().Doubtful(name)
	}
	return a.Request.Doubtful(kind, name)
}

// JSON has the values of a JSON body, of any Content-Type: services differ in which types they read.
func (a *attributes) JSON() *rules.JSON {
	if a.json == nil {
		a.json = a.newJSON()
	}
	return a.json
}

func (a *attributes) newJSON() *rules.JSON {
	r := a.request
	if a.bodiless() {
		return a.rules.ReadJSON(nil)
	}
	if webvalues.Encoded(r.Header) {
		return rules.UnreadJSON(r.ContentLength)
	}
	text, whole := a.readTo(maxJSON)
	if !whole {
		return rules.UnreadJSON(max(r.ContentLength, int64(len(text))))
	}
	return a.rules.ReadJSON(text)
}

func (a *attributes) bodiless() bool {
	r := a.request
	return r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0
}

// readBody reads the fields of the body once, when the first rule needs them.
func (a *attributes) readBody() *webvalues.Body {
	if a.body == nil {
		a.body = a.newBody()
	}
	return a.body
}

func (a *attributes) newBody() *webvalues.Body {
	if a.bodiless() {
		return new(webvalues.Body)
	}
	format := webvalues.FormatOf(a.request.Header)
	if format == webvalues.Unread {
		return webvalues.UnreadBody()
	}
	text, whole := a.readTo(webvalues.MaxBody)
	if !whole {
		return webvalues.UnreadBody()
	}
	return webvalues.NewBody(format, text, a.Kind)
}

// readTo is the body if it has at most so many bytes. The request becomes a copy with a body that begins anew.
func (a *attributes) readTo(most int64) (text []byte, whole bool) {
	r := a.request
	if r.ContentLength > most {
		return nil, false
	}
	b := a.replayed
	if b == nil {
		b = &replayed{body: r.Body}
		a.replayed, a.request = b, r.WithContext(r.Context())
		a.request.Body = b
	}
	if more := most + 1 - int64(len(b.text)); more > 0 && !b.ended {
		end := a.limitTime()
		b.read(more, r.ContentLength)
		if !b.broken { // else the time stays over: net/http would wait for the rest before it sends the refusal
			end()
		}
	}
	return b.text, b.ended && !b.broken && int64(len(b.text)) <= most
}

// limitTime limits the time of reading until the returned function is called. A server's own timeout is left alone: it
// cannot be restored.
func (a *attributes) limitTime() (end func()) {
	server, ok := a.request.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || server.ReadTimeout > 0 || a.writer == nil {
		return func() {}
	}
	connection := http.NewResponseController(a.writer)
	connection.SetReadDeadline(time.Now().Add(bodyTime)) // a writer that cannot has no connection
	return func() { connection.SetReadDeadline(time.Time{}) }
}

// replayed is a body of which a part was read before.
type replayed struct {
	body   io.ReadCloser
	text   []byte // the part
	sent   int    // bytes of it that were read again
	ended  bool   // the part is all there is
	broken bool   // reading failed
}

// read reads at most so many bytes more; length is the length of the whole body, or -1.
func (b *replayed) read(most, length int64) {
	buffer := bytes.NewBuffer(b.text)
	if length > 0 {
		buffer.Grow(int(min(most, length)) + bytes.MinRead)
	}
	n, err := buffer.ReadFrom(io.LimitReader(b.body, most))
	b.text, b.broken = buffer.Bytes(), err != nil
	b.ended = n < most
}

// Read returns the end with the last bytes, as the body of net/http does: a service may answer before another Read, and
// then a proxy would have to close the connection of a client whose request it had not read to the end.
func (b *replayed) Read(p []byte) (n int, err error) {
	if b.sent < len(b.text) {
		n = copy(p, b.text[b.sent:])
		if b.sent += n; b.sent == len(b.text) && b.ended && !b.broken {
			err = io.EOF
		}
		return n, err
	}
	return b.body.Read(p)
}

func (b *replayed) Close() error { return b.body.Close() }

// withBody is the request with another body. The whole body was read.
func (a *attributes) withBody(text []byte) *http.Request {
	a.replayed.text = text
	r := a.request
	if r.ContentLength > 0 {
		r.ContentLength = int64(len(text))
		r.Header = r.Header.Clone()
		r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	}
	if r.GetBody != nil { // of a client, whose transport may send the body again
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	}
	return r
}
