package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/server/admin"
	"github.com/weirproject/weir/internal/server/api"
	"github.com/weirproject/weir/internal/server/forwardauth"
	"github.com/weirproject/weir/internal/server/resp"
	"github.com/weirproject/weir/internal/server/web"
)

// apiBodies is the timeout for reading a request of the API, and for writing its answer. Nothing
// in the API streams.
const apiBodies = 30 * time.Second

// A server is the state of one weir serve.
type server struct {
	system    *System
	flags     *serveFlags
	engine    *engine.Engine
	secrets   secrets
	log       *slog.Logger
	repeated  *repeatedLog
	frontEnds []frontEnd
	open      []net.Listener // listeners without a front end yet
	where     []endpoint
}

// An endpoint is a front end with its address, for the banner.
type endpoint struct{ name, address string }

// serve is the command, from its flags to its end.
func serve(ctx context.Context, s *System, f *serveFlags, flags *pflag.FlagSet, signals, hup <-chan os.Signal) error {
	log, err := newLog(s.Err, f.format, f.level)
	if err != nil {
		return err
	}
	warn := func(text string) { log.Warn(text) }
	for _, text := range s.unknownVariables(knownVariables(flags)) {
		warn(text)
	}
	v := &server{system: s, flags: f, log: log, repeated: &repeatedLog{log: log}}
	collectAsUsual := collectLess()
	defer collectAsUsual()
	f.rules.Log = log
	setup, err := f.rules.read(ctx, s, flags, warn)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.onLine, func(url string) bool { return engine.Masked(url) != url }) {
		warn("the command line shows the password in --store, --rules or --ledger to every user of this machine: " +
			"use WEIR_STORE, WEIR_RULES or WEIR_LEDGER, or store in the rule file")
	}
	if v.secrets, err = f.readSecrets(s, warn); err != nil {
		return err
	}
	if err := v.start(ctx, setup, flags.Changed, signals); err != nil {
		v.abandon()
		return err
	}
	collectAsUsual()
	v.announce()
	go v.reloadOn(hup)
	l := &lifecycle{frontEnds: v.frontEnds, drain: f.drain, timeout: f.shutdown, unready: v.engine.Metrics.Stopping,
		log: log}
	err = l.run(signals)
	return errors.Join(err, v.engine.Close())
}

// collectLess reduces garbage collection during the start: reading many rules leaves garbage that
// can be freed only when they are in force. Collecting earlier takes a quarter of the time, and
// saves a quarter of the memory. A GOGC set by the user is left alone.
func collectLess() (asUsual func()) {
	const usual, less = 100, 400
	if old := debug.SetGCPercent(less); old != usual {
		debug.SetGCPercent(old)
		return func() {}
	}
	return sync.OnceFunc(func() { debug.SetGCPercent(usual) })
}

// start opens everything, the listeners first: an address in use should be reported before the
// wait for Redis. A signal ends the wait for the rules.
func (v *server) start(ctx context.Context, setup *engine.Setup, given func(flag string) bool,
	signals <-chan os.Signal) error {
	if err := v.flags.complete(); err != nil {
		return err
	}
	v.fitFiles(given)
	listeners, err := v.listen(setup)
	if err != nil {
		return err
	}
	if v.engine, err = setup.Open(ctx); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() { ready <- v.engine.Wait(ctx) }()
	select {
	case <-ready:
		return v.openFrontEnds(listeners)
	case received := <-signals:
		v.log.Info("stopping before the rules were read", "signal", received.String())
		return &exit{code: exitClean}
	}
}

func (v *server) openFrontEnds(listeners listeners) error {
	for _, build := range []struct {
		listener net.Listener
		open     func(net.Listener) error
	}{
		{listeners.http, v.openHTTP},
		{listeners.gateway, v.openGateway},
		{listeners.resp, v.openRESP},
		{listeners.metrics, v.openMetrics},
	} {
		if build.listener == nil {
			continue
		}
		if err := build.open(build.listener); err != nil {
			return err
		}
	}
	return nil
}

// abandon closes everything that a failed start opened.
func (v *server) abandon() {
	for _, listener := range v.open {
		listener.Close()
	}
	if v.engine != nil {
		v.engine.Close()
	}
}

func (v *server) openHTTP(listener net.Listener) error {
	callers, err := v.callers(listener)
	if err != nil {
		return err
	}
	api, err := api.New(v.engine.Gate, api.Config{Access: callers, Form: v.engine.Form})
	if err != nil {
		return err
	}
	counts := v.count(&v.flags.http)
	forward, err := forwardauth.New(v.engine.Gate, v.engine.Clients, v.byRules(counts)...)
	if err != nil {
		return err
	}
	operators, reload, err := v.openAdmin(listener, callers)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/v1/forward-auth", forward)
	mux.Handle(admin.Prefix, operators)
	mux.Handle("/-/reload", reload)
	if !v.flags.apart {
		mux.Handle("/metrics", local(listener, &v.flags.http, v.engine.Metrics.Handler()))
	}
	v.health(mux, listener, &v.flags.http)
	frequent := exact{paths: map[string]http.Handler{"/v1/decide": api, "/v1/forward-auth": forward}, rest: mux}
	v.frontEnds = append(v.frontEnds, newHTTPServer(listener, frequent, apiBodies, counts, v.log).frontEnd("http"))
	return nil
}

// exact spares the paths of decisions the way through a ServeMux, which costs as much as the
// decision of an embedded store.
type exact struct {
	paths map[string]http.Handler
	rest  http.Handler
}

// ServeHTTP implements http.Handler.
func (e exact) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := e.paths[r.URL.Path]; h != nil {
		h.ServeHTTP(w, r)
		return
	}
	e.rest.ServeHTTP(w, r)
}

func (v *server) openMetrics(listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", local(listener, &v.flags.metrics, v.engine.Metrics.Handler()))
	v.health(mux, listener, &v.flags.metrics)
	server := newHTTPServer(listener, mux, apiBodies, v.count(&v.flags.metrics), v.log)
	v.frontEnds = append(v.frontEnds, server.frontEnd("metrics"))
	return nil
}

func (v *server) health(mux *http.ServeMux, listener net.Listener, l *listenerFlags) {
	mux.Handle("/livez", local(listener, l, v.engine.Metrics.Live()))
	mux.Handle("/readyz", local(listener, l, v.engine.Metrics.Ready()))
}

// local refuses other host names than localhost on a private listener. Otherwise a web page could
// read the names of rules by DNS rebinding: its own host name resolves to 127.0.0.1.
func local(listener net.Listener, l *listenerFlags, next http.Handler) http.Handler {
	if _, tcp := listener.Addr().(*net.TCPAddr); !tcp || !private(listener, l) {
		return next
	}
	return (&web.Access{Config: web.Config{Loopback: true}}).Guard(next)
}

func (v *server) openRESP(listener net.Listener) error {
	opts := []resp.Option{
		resp.WithPathForm(v.engine.Form),
		resp.WithMaxConns(v.flags.resp.connections),
	}
	if v.secrets.password != "" {
		opts = append(opts, resp.WithPassword("", v.secrets.password))
	}
	if v.flags.respFailOpen {
		opts = append(opts, resp.WithFailOpen())
	}
	v.count(&v.flags.resp)
	server, err := resp.New(v.engine.Gate, v.engine.Counts, opts...)
	if err != nil {
		return err
	}
	v.frontEnds = append(v.frontEnds, frontEnd{name: "resp",
		serve: func() error {
			if err := server.Serve(listener); !errors.Is(err, resp.ErrClosed) {
				return err
			}
			return nil
		},
		drain: func() {},
		shutdown: func(ctx context.Context) (cut int) {
			if server.Shutdown(ctx) != nil {
				return 1 // at least
			}
			return 0
		},
		cut: server.Close})
	return nil
}
