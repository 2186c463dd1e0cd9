package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/servermetrics"
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

// An httpServer is an HTTP server. Unlike http.Server it also waits for requests whose connection
// was hijacked (a WebSocket).
type httpServer struct {
	server   *http.Server
	listener net.Listener
	counts   *servermetrics.Server
	kept     atomic.Int64 // connections that are not hijacked
	ending   atomic.Bool  // shutting down: responses close their connections
	cancel   context.CancelFunc
	trace    func(*http.Request) (traced *http.Request, end func(status int)) // nil: no traces
}

// newHTTPServer makes a server. bodies is the timeout of reading a request and of writing its
// response; 0 is none, for streams.
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
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         d.note,
		ErrorLog:          newServerLog(log),
	}
	return d
}

// note counts the open connections.
func (d *httpServer) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.kept.Add(1)
	case http.StateHijacked, http.StateClosed:
		d.kept.Add(-1)
	}
}

// counted counts requests and their status. During a shutdown it also sends Connection: close, which
// HTTP/2 turns into GOAWAY. http.Server.SetKeepAlivesEnabled(false) looks equivalent, but closes
// idle connections at once, on requests that are on their way.
func (d *httpServer) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
