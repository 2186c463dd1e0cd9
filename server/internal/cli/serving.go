package cli

import (
	"cmp"
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

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
	"github.com/weirproject/weir/server/internal/api"
	"github.com/weirproject/weir/server/internal/console"
	"github.com/weirproject/weir/server/internal/forwardauth"
	"github.com/weirproject/weir/server/internal/gateway"
	"github.com/weirproject/weir/server/internal/resp"
	"github.com/weirproject/weir/server/internal/web"
)

// apiBodies is the timeout for reading a request of the API, and for writing its answer. The API
// has no streams.
const apiBodies = 30 * time.Second

// flushTime is the maximum time for traces and metrics that are left at the end.
const flushTime = 3 * time.Second

// A server is the state of one weir serve.
type server struct {
	system *System
	asked  bool // a flag names a rule source
	envoyService
	engine    *engine.Engine
	secrets   secrets
	listeners      // open or nil
	apart     bool // /metrics is not at http
	access    accessLog
	level     *slog.LevelVar
	life      *lifecycle
	tracing
	notify    *notifier
	optional  bool // http may be left out
	log       *slog.Logger
	repeated  *repeatedLog
	upstreams *gateway.Upstreams
	frontEnds []frontEnd
	where     []endpoint
	opened    bool // the engine
}

// An endpoint is a front end with its address, for the banner.
type endpoint struct{ name, address string }

// serve is the command, from its flags to its end.
func serve(ctx context.Context, s *System, f *ruleFlags, signals, hup <-chan os.Signal) error {
	given, err := f.given(s)
	if err != nil {
		return err
	}
	var first rules.Server // without those of the file
	given(&first)
	first.Complete()
	level := new(slog.LevelVar)
	log := newLog(s.Err, first.LogFormat, first.LogLevel, level)
	warn := func(text string) { log.Warn(text) }
	for _, text := range append(s.unknownVariables(knownVariables()), f.notes...) {
		warn(text)
	}
	collectAsUsual := collectLess()
	defer collectAsUsual()
	c, err := f.configOf(s, warn)
	if err != nil {
		return err
	}
	c.Log = log
	service := newEnvoyService()
	c.Envoy = service.limits.Source
	e, err := engine.Read(ctx, c)
	if err != nil {
		return err
	}
	log = newLog(s.Err, e.LogFormat, e.LogLevel, level)
	takeLog(log)
	e.Log = log
	if slices.ContainsFunc(f.onLine(), func(url string) bool { return engine.Masked(url) != url }) {
		warn("the command line shows a password in a URL to every user of this machine: use a variable such as " +
			"WEIR_STORE, or the file")
	}
	v := &server{system: s, asked: f.asked(s), envoyService: service, optional: f.optional, engine: e, log: log,
		level: level, repeated: &repeatedLog{log: log}, notify: s.notifier(log)}
	v.life = &lifecycle{unready: v.stopping, log: log}
	v.life.set(&e.Server)
	e.Changed = v.changed
	if v.secrets, err = s.secretsOf(&e.Server, warn); err != nil {
		return err
	}
	if err := v.start(ctx, signals); err != nil {
		v.abandon()
		return err
	}
	collectAsUsual()
	v.announce()
	living, end := context.WithCancel(ctx)
	defer end()
	go v.notify.run(living, v.engine.Metrics.IsReady, v.engine.Metrics.Stuck)
	go v.reloadOn(hup)
	v.life.frontEnds = v.frontEnds
	err = v.life.run(signals)
	flush := flushTime
	if errors.Is(err, errTwice) {
		flush = 0
	}
	return errors.Join(err, v.close(flush, signals))
}

// close closes the resources of the front ends.
func (v *server) close(flush time.Duration, signals <-chan os.Signal) error {
	most := closeTime
	if v.engine.Metrics.Stuck() {
		most = closeTimeStuck
	}
	return bounded(func() error {
		v.closeOTLP(flush)
		v.access.end()
		defer v.upstreams.Close()
		return v.engine.Close()
	}, most, signals)
}

// stopping makes the server not ready.
func (v *server) stopping() {
	v.notify.send("STOPPING=1")
	v.engine.Metrics.Stopping()
}

// changed puts the settings in force that need no restart.
func (v *server) changed(now *rules.Server) {
	v.level.Set(levels[now.LogLevel])
	v.life.set(now)
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

// manyRules is the number of rules that leave, when loaded, tens of megabytes of garbage.
const manyRules = 1000

// settled completes new rules.
func (v *server) settled(set *rules.Set) {
	giveBack(set)
	if !v.gateway.open() {
		return
	}
	hosts, err := uncovered(&v.engine.Gateway, set)
	if err == nil && len(hosts) > 0 { // the listener tells of files that it cannot use
		v.log.Warn("no certificate of the gateway covers these hosts of routes", "hosts", hosts)
	}
}

// giveBack returns that garbage to the operating system. A process that allocates little does not collect it for
// minutes.
func giveBack(set *rules.Set) {
	if len(set.Rules()) >= manyRules {
		debug.FreeOSMemory()
	}
}

// start opens everything, the listeners first: an address in use should be reported before the
// wait for Redis. A signal ends the wait for the rules.
func (v *server) start(ctx context.Context, signals <-chan os.Signal) error {
	e := v.engine
	v.apart = e.Server.Metrics.Listen != ""
	if err := completeListeners(&e.Server, e.Set, v.asked); err != nil {
		return err
	}
	v.fitFiles()
	v.listeners = listenersOf(&e.Server)
	v.http.optional = v.optional
	err := v.listen()
	if err != nil {
		return err
	}
	e.NodeName = cmp.Or(e.NodeName, v.nodeName())
	v.upstreams = gateway.NewUpstreams(e.UpstreamRequests, v.log)
	e.WithoutUsers = v.withoutUsers()
	e.Prepare = func(set *rules.Set) (use func(), err error) {
		switch err := v.checkKeys(set); {
		case err != nil:
			return nil, err
		case !v.gateway.open():
			return v.limits.InForce, nil
		}
		upstreams, err := v.upstreams.Prepare(set)
		return func() {
			upstreams()
			v.limits.InForce()
		}, err
	}
	e.Settled = v.settled
	if err = v.openOTLP(ctx); err != nil {
		return err
	}
	if err = e.Open(ctx); err != nil {
		return err
	}
	v.opened = true
	v.countLikeRatelimit()
	if err = v.sendMetrics(ctx); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() { ready <- v.engine.Wait(ctx) }()
	select {
	case <-ready:
		return v.openFrontEnds()
	case received := <-signals:
		v.log.Info("stopping before the rules were read", "signal", received.String())
		return &program.Exit{Code: program.Clean}
	}
}

// nodeName is the default name of this process: there may be several on one host.
func (v *server) nodeName() string {
	for _, l := range v.all() {
		if l.open() {
			if _, port, err := net.SplitHostPort(l.listener.Addr().String()); err == nil {
				return v.engine.Node() + ":" + port
			}
		}
	}
	return v.engine.Node()
}

// openFrontEnds opens the front ends with open listeners, in the order of listeners.all.
func (v *server) openFrontEnds() error {
	for i, open := range []func(*listener) error{v.openHTTP, v.openGateway, v.openRESP, v.openGRPC,
		v.openMetrics, v.openEnvoy, v.openDebug} {
		if l := v.all()[i]; l.open() {
			if err := open(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// abandon closes everything that a failed start opened.
func (v *server) abandon() {
	for _, l := range v.all() {
		if l.open() {
			l.listener.Close()
		}
	}
	v.closeOTLP(0)
	if v.opened {
		v.engine.Close()
		v.upstreams.Close()
	}
}

func (v *server) openHTTP(l *listener) error {
	callers, err := v.callers(l, "http")
	if err != nil {
		return err
	}
	api, err := api.New(v.engine.Gate, api.Config{Access: callers, Form: v.engine.Form})
	if err != nil {
		return err
	}
	counts := v.count(l)
	forward, err := forwardauth.New(v.engine.Gate, v.byRules(counts, v.engine.Clients.TrustsPeer))
	if err != nil {
		return err
	}
	access, err := v.operators(l)
	if err != nil {
		return err
	}
	operators, reload, err := v.openAdmin(access, callers)
	if err != nil {
		return err
	}
	pages, err := v.openConsole(access)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/v1/forward-auth", forward)
	mux.Handle(admin.Prefix, operators)
	mux.Handle(console.Path, pages)
	mux.Handle(console.Path+"/", pages)
	if access != nil {
		mux.Handle(console.SessionPath, pages)
	}
	mux.Handle("/-/reload", reload)
	if !v.apart {
		mux.Handle("/metrics", l.local(v.engine.Metrics.Handler()))
	}
	v.health(mux, l)
	frequent := exact{paths: map[string]http.Handler{"/v1/decide": api, "/v1/forward-auth": forward}, rest: mux}
	server := newHTTPServer(l.listener, frequent, apiBodies, counts, v.log).traced(v, l)
	v.frontEnds = append(v.frontEnds, server.frontEnd("http"))
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

func (v *server) openMetrics(l *listener) error {
	mux := http.NewServeMux()
	metrics := l.local(v.engine.Metrics.Handler())
	mux.Handle("/metrics", metrics)
	if path := v.engine.MetricsPath; path != "/metrics" {
		mux.Handle(path, metrics)
	}
	v.health(mux, l)
	server := newHTTPServer(l.listener, mux, apiBodies, v.count(l), v.log)
	v.frontEnds = append(v.frontEnds, server.frontEnd("metrics"))
	return nil
}

// The paths of the health checks.
const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

// health adds the health checks, which answer whatever the Host is: a balancer's plain check sends no Host. Where local
// refuses a name, they answer their status alone.
func (v *server) health(mux *http.ServeMux, l *listener) {
	mux.Handle(livePath, v.engine.Metrics.Live())
	full, alone := v.engine.Metrics.Ready(), v.engine.Metrics.ReadyAlone()
	mux.HandleFunc(readyPath, func(w http.ResponseWriter, r *http.Request) {
		if l.hidden() && !web.IsLoopback(r.Host) {
			alone.ServeHTTP(w, r)
			return
		}
		full.ServeHTTP(w, r)
	})
}

// local refuses other host names than localhost on a private listener. Otherwise a web page could
// read the names of rules by DNS rebinding: its own host name resolves to 127.0.0.1.
func (l *listener) local(next http.Handler) http.Handler {
	if !l.hidden() {
		return next
	}
	return (&web.Access{Config: web.Config{Loopback: true}}).Guard(next)
}

// hidden reports whether a listener is on a loopback address, which web pages can reach and others cannot.
func (l *listener) hidden() bool {
	_, tcp := l.listener.Addr().(*net.TCPAddr)
	return tcp && l.private()
}

func (v *server) openRESP(l *listener) error {
	opts := []resp.Option{
		resp.WithPathForm(v.engine.Form),
		resp.WithMaxConns(l.MaxConnections),
		resp.WithRefused(func() {
			l.counts.Refuse()
			v.repeated.warn("connection limit reached: new connections are closed",
				"address", l.listener.Addr().String(), "connections", l.MaxConnections)
		}),
	}
	if v.secrets.password != "" {
		opts = append(opts, resp.WithPassword("", v.secrets.password))
	}
	if v.engine.RESPFailOpen {
		opts = append(opts, resp.WithFailOpen())
	}
	v.count(l)
	server, err := resp.New(v.engine.Gate, v.engine.Counts, opts...)
	if err != nil {
		return err
	}
	v.frontEnds = append(v.frontEnds, frontEnd{name: "resp",
		serve: func() error {
			if err := server.Serve(l.listener); !errors.Is(err, resp.ErrClosed) {
				return err
			}
			return nil
		},
		drain: server.Drain,
		shutdown: func(ctx context.Context) (cut int) {
			if server.Shutdown(ctx) != nil {
				return 1 // at least
			}
			return 0
		},
		cut: server.Close})
	return nil
}
