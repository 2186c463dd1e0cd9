package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/server/internal/listen"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// maxStreams is the most concurrent requests per HTTP/2 connection: the least value that
	// RFC 9113 recommends, since each may need an upstream connection.
	maxStreams = 100
	// lastRequests is how long connections stay open after the listener closes. If an idle connection
	// closed at once, a client with a request on its way could not know whether it was executed.
	lastRequests = 500 * time.Millisecond
	// pollEvery is the interval of polling for the end of requests, as in net/http.
	pollEvery = 5 * time.Millisecond
)

// An httpServer is an HTTP server. Unlike http.Server it also waits for requests on hijacked
// connections (WebSockets).
type httpServer struct {
	server   *http.Server
	listener net.Listener
	counts   *servermetrics.Server
	conns    sync.Map     // net.Conn to *httpConn: the connections that are not hijacked
	kept     atomic.Int64 // their number
	ending   atomic.Bool  // shutting down: responses close their connections
	cancel   context.CancelFunc
	trace    func(*http.Request) (traced *http.Request, end func(status int)) // nil: no traces
}

// newHTTPServer makes a server. bodies is the timeout of reading a request and of writing its
// response; 0 is no timeout, for streams.
func newHTTPServer(listener net.Listener, handler http.Handler, bodies time.Duration, counts *servermetrics.Server,
	log *slog.Logger) *httpServer {
	ctx, cancel := context.WithCancel(context.Background())
	d := &httpServer{listener: listener, counts: counts, cancel: cancel}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS
	d.server = &http.Server{
		Handler:           d.counted(handler),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       bodies,
		WriteTimeout:      bodies,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols,
		// Each request is one for the handler.
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, CountError: d.broken},
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext:                  d.withConn,
		ConnState:                    d.note,
		ErrorLog:                     newServerLog(log, counts),
	}
	return d
}

// An httpConn has the server's facts about a connection.
type httpConn struct {
	*listen.Conn
	slack   int64 // bytes that the end of a connection has, without a request
	before  int64 // bytes that came before the request that is read now
	whole   int64 // bytes that came up to a request without a body, before whose end those of the next may come
	reading bool  // the head of a request has come, or a part of it
	http2   bool
	handled atomic.Bool // a handler has the request
}

// connKey is the key of the *httpConn in the context of a request.
type connKey struct{}

// closingTLS is more than the records that end a TLS connection, and less than a request in one.
const closingTLS = 72

func (d *httpServer) withConn(ctx context.Context, conn net.Conn) context.Context {
	c := &httpConn{Conn: listen.Of(conn)}
	if _, secured := conn.(*tls.Conn); secured {
		c.slack = closingTLS
		c.before = math.MaxInt64 - c.slack // until the first request: the bytes are those of the handshake
	}
	d.conns.Store(conn, c)
	return context.WithValue(ctx, connKey{}, c)
}

// note counts the open connections, and the ones that end with a request that no handler got: net/http
// answers a malformed or too large head on its own, and does not report one that does not come in time.
func (d *httpServer) note(conn net.Conn, state http.ConnState) {
	known, _ := d.conns.Load(conn)
	c, ok := known.(*httpConn)
	if !ok {
		return
	}
	switch state {
	case http.StateNew:
		d.kept.Add(1)
	case http.StateActive:
		c.reading = true
	case http.StateIdle:
		c.next()
	case http.StateHijacked, http.StateClosed:
		d.conns.Delete(conn)
		d.kept.Add(-1)
		if c.unread() {
			d.counts.Unread()
		}
	}
}

// next expects another request. Only HTTP/2 becomes idle without a request: when it begins.
func (c *httpConn) next() {
	c.http2 = c.http2 || !c.handled.Load()
	c.reading, c.before = false, c.Read()
	if c.whole > 0 {
		c.before, c.whole = c.whole, 0
	}
	c.handled.Store(false)
}

// unread reports whether a connection of HTTP/1 ended with a request that no handler got. Its bytes
// are the only sign of one that was in the buffer of net/http before it was read.
func (c *httpConn) unread() bool {
	return !c.http2 && !c.handled.Load() && (c.reading || c.Read() > c.before+c.slack)
}

// broken counts the requests of HTTP/2 that net/http resets on its own. Its other errors are errors of
// connections, which it logs, and of requests that the handler has.
func (d *httpServer) broken(kind string) {
	switch strings.TrimPrefix(kind, "stream_PROTOCOL_ERROR_") {
	case "bad_connect", "bad_path", "bad_path_method", "userinfo_in_authority":
		d.counts.Unread()
	}
}

// counted counts requests and their status. During a shutdown it also sends Connection: close, which
// HTTP/2 turns into GOAWAY. http.Server.SetKeepAlivesEnabled(false) looks equivalent, but closes
// idle connections at once, on requests that are on their way.
func (d *httpServer) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.admit(w, r)
		answer := &statusRecorder{ResponseWriter: w}
		d.counts.Began()
		defer func() { d.counts.Ended(answer.status) }()
		if d.ending.Load() && r.Header["Upgrade"] == nil { // an upgrade needs its Connection header
			w.Header().Set("Connection", "close")
		}
		if d.trace != nil {
			var end func(status int)
			r, end = d.trace(r)
			defer func() { end(answer.status) }()
		}
		next.ServeHTTP(answer, r)
		if answer.status == 0 {
			answer.status = http.StatusOK // net/http writes it
		}
	})
}

// admit notes that a handler has the request. A reserved connection answers one health check: any
// other request finds the connection closed, as it would without the reserve.
func (d *httpServer) admit(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*httpConn)
	c.handled.Store(true)
	if r.ProtoMajor == 1 && r.ContentLength == 0 {
		c.whole = c.Read()
	}
	if !c.Reserved() {
		return
	}
	if r.URL.Path != livePath && r.URL.Path != readyPath {
		c.Refuse()
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Connection", "close")
}

// A statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (n *statusRecorder) WriteHeader(status int) {
	if n.status < http.StatusOK && n.status != http.StatusSwitchingProtocols {
		n.status = status
	}
	n.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (n *statusRecorder) Write(b []byte) (int, error) {
	if n.status < http.StatusOK {
		n.status = http.StatusOK
	}
	return n.ResponseWriter.Write(b)
}

// Unwrap supports http.ResponseController.
func (n *statusRecorder) Unwrap() http.ResponseWriter { return n.ResponseWriter }

func (d *httpServer) serve() error {
	err := d.server.Serve(d.listener)
	if errors.Is(err, http.ErrServerClosed) || d.ending.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// drain asks clients to disconnect, and continues to serve.
func (d *httpServer) drain() { d.ending.Store(true) }

// shutdown closes the listener, serves the open connections for lastRequests, and then waits for
// requests in flight, hijacked connections included.
func (d *httpServer) shutdown(ctx context.Context) (cut int) {
	d.drain()
	d.listener.Close()
	last, cancel := context.WithTimeout(ctx, lastRequests)
	defer cancel()
	poll(last, func() bool { return d.kept.Load() == 0 })
	d.server.Shutdown(ctx) // its error may be that the listener is closed, which it is
	poll(ctx, func() bool { return d.counts.InFlight() == 0 })
	return int(d.counts.InFlight())
}

// poll waits until so returns true, or the context ends.
func poll(ctx context.Context, so func() bool) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d *httpServer) cut() {
	d.cancel()
	d.server.Close()
}

func (d *httpServer) frontEnd(name string) frontEnd {
	return frontEnd{name: name, serve: d.serve, drain: d.drain, shutdown: d.shutdown, cut: d.cut}
}
