package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// An httpDoor is a server of HTTP. It knows what is in flight even where the connection was
// taken over (a WebSocket), which http.Server.Shutdown does not wait for.
type httpDoor struct {
	server   *http.Server
	listener net.Listener
	flying   sync.WaitGroup
	cancel   context.CancelFunc // ends the requests' contexts
}

// newHTTPDoor serves a handler. bodies bounds how long reading a request and writing its
// answer may take; 0 is no bound, for what streams.
func newHTTPDoor(listener net.Listener, handler http.Handler, bodies time.Duration, log *slog.Logger) *httpDoor {
	ctx, cancel := context.WithCancel(context.Background())
	d := &httpDoor{listener: listener, cancel: cancel}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS
	d.server = &http.Server{
		Handler:           d.counted(handler),
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: bodies, WriteTimeout: bodies,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		Protocols:   protocols,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    newServerLog(log),
	}
	return d
}

func (d *httpDoor) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.flying.Add(1)
		defer d.flying.Done()
		next.ServeHTTP(w, r)
	})
}

func (d *httpDoor) serve() error {
	if err := d.server.Serve(d.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shutdown waits for connections of the server, then for those that were taken over.
func (d *httpDoor) shutdown(ctx context.Context) error {
	if err := d.server.Shutdown(ctx); err != nil {
		return err
	}
	landed := make(chan struct{})
	go func() {
		d.flying.Wait()
		close(landed)
	}()
	select {
	case <-landed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *httpDoor) cut() {
	d.cancel()
	d.server.Close()
}

func (d *httpDoor) running(name string) running {
	return running{name: name, serve: d.serve, shutdown: d.shutdown, cut: d.cut}
}
