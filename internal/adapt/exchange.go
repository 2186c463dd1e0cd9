package adapt

import (
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
)

// A Framework is a request of a framework that is not built on net/http, and its response.
type Framework interface {
	// Next runs the rest of the chain with a context. It returns the status of an error that the framework renders
	// later, or 0.
	Next(ctx context.Context) (status int)
	// Body is the body of the request, which the handler reads too.
	Body() []byte
	// Replace sets a field of the request, or its body if the name is "".
	Replace(name, value string)
	// Fields calls each with the header fields of the response.
	Fields(each func(name, value []byte))
	// Add adds a field to the response.
	Add(name, value string)
	// Response is the status and the body of the response; the body is not whole if it is a stream.
	Response() (status int, body []byte, whole bool)
	// Refuse sets the status and the body of the response.
	Refuse(status int, body []byte)
	// Later keeps end until the response is sent, if the response is a stream or its connection is taken over, and
	// reports whether it is. x.Stream shows a stream to the middleware, if it needs to see it.
	Later(x *Exchange, end func()) bool
}

// A Head has what frameworks know of a request. The bytes may be reused.
type Head struct {
	Method, Host, Path, Query []byte // the path as it was sent
	Route                     string // "" if no route is known
	Remote                    net.Addr
	Length                    int64 // of the body; below 0: unknown
	Streamed                  bool  // the body is read as it comes
}

// An Exchange is a request and its response, as middleware of net/http reads and writes them. It is used again for
// other requests: whoever gets its request must not keep it.
type Exchange struct {
	framework Framework
	request   http.Request
	given     *http.Request // request, or a copy with a context
	url       url.URL
	text      []byte // method, host, path and query, then names and values of fields in turn
	ends      []int  // where each part of the text ends
	values    []string
	body      lazyBody
	writer    writer

	header  http.Header // of the response
	status  int         // of a response that the middleware wrote
	content []byte      // its body, or what is to be sent of a stream
	passed  bool
	limited http.ResponseWriter // that gets the response; nil: the middleware needs none
	pending bool                // the response goes on after the handler
	unseen  bool                // the middleware does not see the body
}

var exchanges = sync.Pool{New: func() any {
	x := &Exchange{header: make(http.Header)}
	x.request.Header = make(http.Header)
	return x
}}

// Begin begins an exchange. Call Field for each field of the request, and Serve.
func Begin(framework Framework, head *Head) *Exchange {
	x := exchanges.Get().(*Exchange)
	x.framework = framework
	r := &x.request
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.Pattern = "HTTP/1.1", 1, 1, head.Route
	r.RemoteAddr = address(head.Remote)
	for _, part := range [...][]byte{head.Method, head.Host, head.Path, head.Query} {
		x.part(part)
	}
	r.Body, r.ContentLength = http.NoBody, head.Length
	if head.Length != 0 {
		x.body = lazyBody{framework: framework}
		r.Body = &x.body
	}
	if head.Streamed && head.Length < 0 {
		r.ContentLength = math.MaxInt64 // too long to be read: it would be read as a whole
	}
	return x
}

func address(remote net.Addr) string {
	switch remote := remote.(type) {
	case nil:
		return ""
	case *net.TCPAddr:
		peer := remote.AddrPort()
		return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()).String()
	}
	return remote.String()
}

func (x *Exchange) part(text []byte) {
	x.text = append(x.text, text...)
	x.ends = append(x.ends, len(x.text))
}

// Field adds a field of the request. The bytes may be reused.
func (x *Exchange) Field(name, value []byte) {
	x.part(name)
	x.part(value)
}

// read makes the request of its parts, in one text, so that values may be kept.
func (x *Exchange) read() {
	text, r := string(x.text), &x.request
	begin, next := 0, 0
	cut := func() string {
		part := text[begin:x.ends[next]]
		begin = x.ends[next]
		next++
		return part
	}
	r.Method, r.Host = cut(), cut()
	x.url = url.URL{Path: cut(), RawQuery: cut()}
	r.URL = &x.url
	if strings.IndexByte(x.url.Path, '%') >= 0 {
		if plain, err := url.PathUnescape(x.url.Path); err == nil {
			x.url.Path, x.url.RawPath = plain, x.url.Path
		}
	}
	if n := len(x.ends) / 2; cap(x.values) < n {
		x.values = make([]string, 0, 2*n)
	}
	for next < len(x.ends) {
		name, value := textproto.CanonicalMIMEHeaderKey(cut()), cut()
		if list := r.Header[name]; list != nil {
			r.Header[name] = append(list, value)
		} else if name != "Host" { // net/http has it elsewhere
			x.values = append(x.values, value)
			last := len(x.values)
			r.Header[name] = x.values[last-1 : last : last]
		}
	}
}

// Serve runs the middleware, and the rest of the chain if the middleware lets the request pass, which Serve reports;
// else the framework has the response.
func (x *Exchange) Serve(ctx context.Context, limited Middleware) (passed bool) {
	x.read()
	x.given = &x.request
	if ctx != context.Background() {
		x.given = x.given.WithContext(ctx)
	}
	x.writer = writer{ResponseWriter: x, next: x}
	if passed = x.writer.serve(limited, x.given); !passed {
		x.describe()
		x.framework.Refuse(x.status, x.content)
	}
	if !x.pending {
		x.release()
	}
	return passed
}

// pass passes a request on to the framework.
func (x *Exchange) pass(w http.ResponseWriter, r *http.Request) (status int) {
	x.passed, x.limited = true, w
	x.describe()
	x.rewrite(r)
	if status = x.framework.Next(r.Context()); w != nil {
		x.show(status)
	}
	return 0
}

// describe copies the fields of the middleware to the response.
func (x *Exchange) describe() {
	for name, values := range x.header {
		for _, value := range values {
			x.framework.Add(name, value)
		}
	}
}

// rewrite copies what the middleware has changed of the request.
func (x *Exchange) rewrite(r *http.Request) {
	given := x.given
	if r == given {
		return
	}
	if encoding := r.Header.Get("Accept-Encoding"); encoding != given.Header.Get("Accept-Encoding") {
		x.framework.Replace("Accept-Encoding", encoding)
	}
	if r.Body == given.Body { // no rule has read it
		return
	}
	if body, err := io.ReadAll(r.Body); err == nil && !bytes.Equal(body, x.framework.Body()) {
		x.framework.Replace("", string(body))
	}
}

// show shows the middleware the response. failed is the status of an error that is not rendered yet.
func (x *Exchange) show(failed int) {
	x.take()
	status, body, whole := x.framework.Response()
	if failed != 0 {
		x.limited.WriteHeader(failed)
		return
	}
	x.limited.WriteHeader(status)
	if x.unseen = !whole; whole {
		x.limited.Write(body)
	}
}

// take makes the fields of the response the header that the middleware sees.
func (x *Exchange) take() {
	clear(x.header)
	x.framework.Fields(func(name, value []byte) {
		key := textproto.CanonicalMIMEHeaderKey(string(name))
		x.header[key] = append(x.header[key], string(value))
	})
}

// Header implements http.ResponseWriter.
func (x *Exchange) Header() http.Header { return x.header }

// WriteHeader implements http.ResponseWriter. The framework has the status of a request that passed.
func (x *Exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
}

// Write implements http.ResponseWriter. The framework has the body of a request that passed, unless it is a stream.
func (x *Exchange) Write(b []byte) (int, error) {
	if !x.passed || x.pending {
		x.content = append(x.content, b...)
	}
	return len(b), nil
}

// Later keeps the end of a request whose response is sent after the handler: see httplimit.
func (x *Exchange) Later(end func()) bool {
	if x.limited == nil {
		x.take() // for rules that settle by a header
	}
	x.pending = true
	x.pending = x.framework.Later(x, sync.OnceFunc(func() {
		end()
		x.release()
	}))
	return x.pending
}

// Unseen reports whether the middleware does not see the body: see httplimit.
func (x *Exchange) Unseen() bool { return x.unseen }

// Measures reports whether the middleware needs to see the response.
func (x *Exchange) Measures() bool { return x.limited != nil }

// release pools the exchange.
func (x *Exchange) release() {
	header, fields := x.header, x.request.Header
	clear(header)
	clear(fields)
	clear(x.values)
	*x = Exchange{header: header, text: x.text[:0], ends: x.ends[:0], values: x.values[:0]}
	x.request.Header = fields
	exchanges.Put(x)
}

// A lazyBody is a body that is read if a rule needs it.
type lazyBody struct {
	framework Framework
	reader    *bytes.Reader
}

// Read implements io.Reader.
func (b *lazyBody) Read(p []byte) (int, error) {
	if b.reader == nil {
		b.reader = bytes.NewReader(b.framework.Body())
	}
	return b.reader.Read(p)
}

// Close implements io.Closer.
func (b *lazyBody) Close() error { return nil }

// Stream is a stream that the middleware sees, and may end, while the framework sends it.
func (x *Exchange) Stream(from io.Reader) io.ReadCloser {
	x.unseen = false
	return &stream{x: x, from: from}
}

type stream struct {
	x    *Exchange
	from io.Reader
	sent int   // bytes of the content
	over error // what follows the content
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (n int, err error) {
	for s.sent == len(s.x.content) {
		if s.over != nil {
			return 0, s.over
		}
		s.x.content, s.sent = s.x.content[:0], 0
		n, s.over = s.from.Read(p)
		if _, err := s.x.limited.Write(p[:n]); err != nil {
			s.over = io.EOF // a rule ends the stream
		}
	}
	n = copy(p, s.x.content[s.sent:])
	s.sent += n
	return n, nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	if closer, ok := s.from.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
