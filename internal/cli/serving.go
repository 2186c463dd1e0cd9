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

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/server/admin"
	"github.com/weirproject/weir/internal/server/api"
	"github.com/weirproject/weir/internal/server/forwardauth"
	"github.com/weirproject/weir/internal/server/resp"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
)

// apiBodies is the timeout for reading a request of the API, and for writing its answer. Nothing
// in the API streams.
const apiBodies = 30 * time.Second

// A server is the state of one weir serve.
type server struct {
	system    *System
	flags     *serveFlags
	setup     *setup
	secrets   secrets
	log       *slog.Logger
	repeated  *repeatedLog
	store     weir.Store
	state     *state // nil: no --state
	stack     *stack // nil: limits are counted in memory
	gate      *gate.Gate
	metrics   *observe.Metrics
	live      *live
	ledger    *adminLedger
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
	if v.setup, err = f.rules.read(ctx, s, flags, warn); err != nil {
		return err
	}
	if slices.ContainsFunc(f.onLine, func(url string) bool { return masked(url) != url }) {
		warn("the command line shows the password in --store, --rules or --ledger to every user of this machine: " +
			"use WEIR_STORE, WEIR_RULES or WEIR_LEDGER, or store in the rule file")
	}
	if v.secrets, err = f.readSecrets(s, warn); err != nil {
		return err
	}
	if err := v.start(ctx, flags.Changed, signals); err != nil {
		v.abandon()
		return err
	}
	collectAsUsual()
	defer v.store.Close()
	if v.ledger != nil {
		defer v.ledger.close()
	}
	defer v.live.close()
	v.announce()
	go v.live.reloadOn(hup)
	l := &lifecycle{frontEnds: v.frontEnds, drain: f.drain, timeout: f.shutdown, unready: v.metrics.Stopping, log: log}
	err = l.run(signals)
	if v.state != nil {
		err = errors.Join(err, v.state.close())
	}
	return err
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
// wait for Redis.
func (v *server) start(ctx context.Context, given func(flag string) bool, signals <-chan os.Signal) error {
	if err := v.flags.complete(); err != nil {
		return err
	}
	v.fitFiles(given)
	listeners, err := v.listen()
	if err != nil {
		return err
	}
	sources, err := v.flags.rules.layers(ctx, v.setup.primary, &v.setup.store)
	if err != nil {
		return err
	}
	if sources, err = v.flags.rules.addSets(ctx, v.setup, sources); err != nil {
		return err
	}
	if sources, err = v.openLedger(ctx, sources); err != nil {
		return err
	}
	store, err := openStore(ctx, v.setup.store, v.log)
	if err != nil {
		return err
	}
	v.store = store // abandon closes it
	v.metrics = observe.New(number())
	if err := v.openState(store); err != nil {
		return err
	}
	var local weir.Store
	if v.store, local, err = v.layers(store); err != nil {
		return err
	}
	opts := []gate.Option{gate.WithLocal(local), gate.WithBudget(v.budget()), gate.WithObserver(v.metrics.Verdict),
		gate.WithObserver((&outage{log: v.log}).verdict)}
	if register, shared := store.(gate.Register); shared {
		opts = append(opts, gate.WithRegister(register))
	}
	if v.gate, err = gate.New(v.store, v.setup.set, opts...); err != nil {
		return err
	}
	v.live = &live{log: v.log, gate: v.gate, stack: v.stack, metrics: v.metrics, setup: v.setup, given: given}
	if v.flags.rules.ledger == "" {
		v.live.optional = ledgerLayer
	}
	if err := v.live.start(sources, v.flags.rules.wait, signals); err != nil {
		return err
	}
	return v.openFrontEnds(listeners)
}

// budget is the timeout of a whole decision: that of one Redis call.
func (v *server) budget() time.Duration {
	if v.setup.store.url == memory {
		return 0
	}
	return v.setup.store.timeout
}

// openState restores the counts of --state.
func (v *server) openState(store weir.Store) (err error) {
	local, ok := store.(*memstore.Store)
	if v.flags.state == "" {
		return nil
	}
	if !ok {
		return usagef("--state saves counts in memory, but --store is %s, which keeps its counts itself; leave "+
			"--state out",
			masked(v.setup.store.url))
	}
	if v.state, err = openState(v.flags.state, local, v.log); err == nil {
		v.state.keep(v.metrics)
	}
	return err
}

// layers returns the store of the gate and the local fallback store. A store in memory has no
// layers, and is its own fallback.
func (v *server) layers(store weir.Store) (top, local weir.Store, err error) {
	if v.setup.store.url == memory {
		top = v.metrics.Store(store)
		return top, top, nil
	}
	if v.stack, err = newStack(store, v.setup.store, v.metrics, v.log); err != nil {
		return store, nil, err
	}
	v.stack.follow(v.setup.set)
	return v.stack.Store, v.stack.Local, nil
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
	if v.live != nil {
		v.live.close()
	}
	if v.ledger != nil {
		v.ledger.close()
	}
	if v.state != nil {
		v.state.close()
	}
	if v.store != nil {
		v.store.Close()
	}
}

func (v *server) openHTTP(listener net.Listener) error {
	api, err := v.api(listener)
	if err != nil {
		return err
	}
	counts := v.count(&v.flags.http)
	forward, err := forwardauth.New(v.gate, v.setup.clients, v.byRules(counts)...)
	if err != nil {
		return err
	}
	operators, err := v.openAdmin(listener)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/v1/forward-auth", forward)
	mux.Handle(admin.Prefix, operators)
	mux.Handle("/-/reload", v.reload(listener))
	if !v.flags.apart {
		mux.Handle("/metrics", local(listener, &v.flags.http, v.metrics.Handler()))
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
	mux.Handle("/metrics", local(listener, &v.flags.metrics, v.metrics.Handler()))
	v.health(mux, listener, &v.flags.metrics)
	server := newHTTPServer(listener, mux, apiBodies, v.count(&v.flags.metrics), v.log)
	v.frontEnds = append(v.frontEnds, server.frontEnd("metrics"))
	return nil
}

func (v *server) health(mux *http.ServeMux, listener net.Listener, l *listenerFlags) {
	mux.Handle("/livez", local(listener, l, v.metrics.Live()))
	mux.Handle("/readyz", local(listener, l, v.metrics.Ready()))
}

// local refuses other host names than localhost on a private listener. Otherwise a web page could
// read the names of rules by DNS rebinding: its own host name resolves to 127.0.0.1.
func local(listener net.Listener, l *listenerFlags, next http.Handler) http.Handler {
	if _, tcp := listener.Addr().(*net.TCPAddr); !tcp || !private(listener, l) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownName(r.Host) {
			http.Error(w, "host not allowed; allowed: localhost, 127.0.0.1, ::1", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (v *server) api(listener net.Listener) (http.Handler, error) {
	opts := []api.Option{api.WithPathForm(v.setup.form)}
	switch {
	case v.secrets.token != "" || v.secrets.readToken != "":
		opts = append(opts, api.WithTokens(some(v.secrets.readToken), some(v.secrets.token)))
	case private(listener, &v.flags.http):
		// against DNS rebinding, as in local
		opts = append(opts, api.WithHosts("localhost", "127.0.0.1", "::1"))
	}
	return api.New(v.gate, opts...)
}

// some returns the texts that are not empty.
func some(texts ...string) (list []string) {
	for _, text := range texts {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

func (v *server) openRESP(listener net.Listener) error {
	opts := []resp.Option{
		resp.WithPathForm(v.setup.form),
		resp.WithLimits(resp.Limits{Conns: v.flags.resp.connections}),
	}
	if v.secrets.password != "" {
		opts = append(opts, resp.WithPassword("", v.secrets.password))
	}
	if v.flags.respFailOpen {
		opts = append(opts, resp.WithFailOpen())
	}
	v.count(&v.flags.resp)
	server, err := resp.New(v.gate, v.store, opts...)
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
