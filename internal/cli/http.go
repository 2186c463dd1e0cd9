package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/observe"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// maxStreams is how many requests one connection of HTTP/2 has under way: the least that
	// RFC 9113 recommends. Each may cost an upstream connection.
	maxStreams = 100
	// lastRequests is how long connections stay when no new ones are accepted. A client whose
	// request is on its way when an closeGrace connection closes has no answer, and cannot know
	// whether it was executed.
	lastRequests = 500 * time.Millisecond
	// pollEvery is how often it is looked whether a server is done, as net/http does.
	pollEvery = 5 * time.Millisecond
)

// An httpServer is a server of HTTP. It knows what is in flight even where the connection was
// taken over (a WebSocket), which http.Server.Shutdown does not wait for.
type httpServer struct {
	server   *http.Server
	listener net.Listener
	counts   *observe.Server
	kept     atomic.Int64 // connections that are not taken over
	ending   atomic.Bool  // answers close their connections
	cancel   context.CancelFunc
}

// newHTTPServer serves a handler. bodies bounds how long reading a request and writing its
// answer may take; 0 is no bound, for what streams.
func newHTTPServer(listener net.Listener, handler http.Handler, bodies time.Duration, counts *observe.Server, log *slog.Logger) *httpServer {
	ctx, cancel := context.WithCancel(context.Background())
	d := &httpServer{listener: listener, counts: counts, cancel: cancel}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS
	d.server = &http.Server{
		Handler:           d.counted(handler),
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: bodies, WriteTimeout: bodies,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		Protocols:   protocols,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   d.note,
		ErrorLog:    newServerLog(log),
	}
	return d
}

// note counts the connections of the server.
func (d *httpServer) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.kept.Add(1)
	case http.StateHijacked, http.StateClosed:
		d.kept.Add(-1)
	}
}

// counted notes each answer. When the server is about to end it also asks clients to leave:
// by Connection: close, of which HTTP/2 makes GOAWAY. http.Server.SetKeepAlivesEnabled(false)
// looks like the same, but closes closeGrace connections at once, on requests that are on their way.
func (d *httpServer) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &statusRecorder{ResponseWriter: w}
		d.counts.Began()
		defer func() { d.counts.Ended(answer.status) }()
		if d.ending.Load() && r.Header["Upgrade"] == nil { // whose Connection is Upgrade
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(answer, r)
		if answer.status == 0 {
			answer.status = http.StatusOK // net/http writes it
		}
	})
}

// A statusRecorder response remembers its status.
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

// Unwrap is for http.ResponseController.
func (n *statusRecorder) Unwrap() http.ResponseWriter { return n.ResponseWriter }

func (d *httpServer) serve() error {
	err := d.server.Serve(d.listener)
	if errors.Is(err, http.ErrServerClosed) || d.ending.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// drain asks clients to leave, and goes on serving.
func (d *httpServer) drain() { d.ending.Store(true) }

// shutdown accepts no more connections, answers what comes on those that there are for a
// moment, and then waits for what is in flight, on connections that were taken over too.
func (d *httpServer) shutdown(ctx context.Context) (cut int) {
	d.drain()
	d.listener.Close()
	last, cancel := context.WithTimeout(ctx, lastRequests)
	defer cancel()
	poll(last, func() bool { return d.kept.Load() == 0 })
	if d.server.Shutdown(ctx) == nil {
		poll(ctx, func() bool { return d.counts.InFlight() == 0 })
	}
	return int(d.counts.InFlight())
}

// poll waits until something is so, or the context ends.
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
