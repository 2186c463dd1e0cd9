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
	"github.com/weirproject/weir/doors/admin"
	"github.com/weirproject/weir/doors/forwardauth"
	"github.com/weirproject/weir/doors/httpapi"
	"github.com/weirproject/weir/doors/resp"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
)

// apiBodies is how long a request of the API may take to be read, and its answer to be
// written. Nothing there streams.
const apiBodies = 30 * time.Second

// A server is one serve.
type server struct {
	system  *System
	flags   *serveFlags
	law     *law
	secrets secrets
	log     *slog.Logger
	seldom  *seldom
	store   weir.Store
	state   *state // nil: it is not kept
	stack   *stack // nil: limits are counted in this process
	gate    *gate.Gate
	metrics *observe.Metrics
	live    *live
	ledger  *adminLedger
	doors   []running
	open    []net.Listener // listeners that no door has yet
	where   []place
}

// A place is where a door listens, as the banner tells it.
type place struct{ door, address string }

// serve is the command, from its flags to its end.
func serve(ctx context.Context, s *System, f *serveFlags, flags *pflag.FlagSet, signals, hup <-chan os.Signal) error {
	log, err := newLog(s.Err, f.format, f.level)
	if err != nil {
		return err
	}
	warn := func(text string) { log.Warn(text) }
	for _, text := range s.strangers(knownVariables(flags)) {
		warn(text)
	}
	v := &server{system: s, flags: f, log: log, seldom: &seldom{log: log}}
	collectAsUsual := collectLess()
	defer collectAsUsual()
	if v.law, err = f.law.read(ctx, s, flags, warn); err != nil {
		return err
	}
	if slices.ContainsFunc(f.onLine, func(url string) bool { return masked(url) != url }) {
		warn("every user of this machine can see the password in --store, --rules or --ledger: write the URL into WEIR_STORE, WEIR_RULES or WEIR_LEDGER, or that of the store into the file of rules")
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
	l := &lifecycle{doors: v.doors, drain: f.drain, timeout: f.shutdown, unready: v.metrics.Stopping, log: log}
	err = l.run(signals)
	if v.state != nil {
		err = errors.Join(err, v.state.close())
	}
	return err
}

// collectLess is for the start: what reading many rules leaves behind is garbage all at once,
// when they are in force. Collecting it on the way takes a quarter of the time, and saves a
// quarter of the memory. Whoever has set GOGC knows better.
func collectLess() (asUsual func()) {
	const usual, less = 100, 400
	if old := debug.SetGCPercent(less); old != usual {
		debug.SetGCPercent(old)
		return func() {}
	}
	return sync.OnceFunc(func() { debug.SetGCPercent(usual) })
}

// start opens everything, the listeners first: an address that is taken should be told
// before Redis is waited for.
func (v *server) start(ctx context.Context, given func(flag string) bool, signals <-chan os.Signal) error {
	if err := v.flags.complete(); err != nil {
		return err
	}
	v.fitFiles(given)
	listeners, err := v.listen()
	if err != nil {
		return err
	}
	sources, err := v.flags.law.layers(ctx, v.law.primary, &v.law.store)
	if err != nil {
		return err
	}
	if sources, err = v.flags.law.addSets(ctx, v.law, sources); err != nil {
		return err
	}
	if sources, err = v.openLedger(ctx, sources); err != nil {
		return err
	}
	store, err := openStore(ctx, v.law.store, v.log)
	if err != nil {
		return err
	}
	v.store = store // to be closed
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
	if v.gate, err = gate.New(v.store, v.law.set, opts...); err != nil {
		return err
	}
	v.live = &live{log: v.log, gate: v.gate, stack: v.stack, metrics: v.metrics, law: v.law, given: given}
	if v.flags.law.ledger == "" {
		v.live.optional = ledgerLayer
	}
	if err := v.live.start(sources, v.flags.law.wait, signals); err != nil {
		return err
	}
	return v.openDoors(listeners)
}

// budget is what a whole decision may take: as long as one call of Redis.
func (v *server) budget() time.Duration {
	if v.law.store.url == memory {
		return 0
	}
	return v.law.store.timeout
}

// openState restores what was counted in memory before.
func (v *server) openState(store weir.Store) (err error) {
	local, ok := store.(*memstore.Store)
	if v.flags.state == "" {
		return nil
	}
	if !ok {
		return usagef("--state saves what is counted in memory, and --store %s is no memory: Redis keeps it by itself; leave --state out", masked(v.law.store.url))
	}
	if v.state, err = openState(v.flags.state, local, v.log); err == nil {
		v.state.keep(v.metrics)
	}
	return err
}

// layers are what the gate asks, and the local store that stands in for it. What is counted in
// this process needs no layers, and nobody stands in for it.
func (v *server) layers(store weir.Store) (top, local weir.Store, err error) {
	if v.law.store.url == memory {
		top = v.metrics.Store(store)
		return top, top, nil
	}
	if v.stack, err = newStack(store, v.law.store, v.metrics, v.log); err != nil {
		return store, nil, err
	}
	v.stack.follow(v.law.set)
	return v.stack.Store, v.stack.Local, nil
}

func (v *server) openDoors(listeners listeners) error {
	for _, build := range []struct {
		listener net.Listener
		open     func(net.Listener) error
	}{{listeners.http, v.openHTTP}, {listeners.gateway, v.openGateway}, {listeners.resp, v.openRESP}, {listeners.metrics, v.openMetrics}} {
		if build.listener == nil {
			continue
		}
		if err := build.open(build.listener); err != nil {
			return err
		}
	}
	return nil
}

// abandon closes what start had opened when it failed.
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
	forward, err := forwardauth.New(v.gate, v.law.clients, v.byRules(counts)...)
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
	v.doors = append(v.doors, newHTTPDoor(listener, frequent, apiBodies, counts, v.log).running("http"))
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
	v.doors = append(v.doors, newHTTPDoor(listener, mux, apiBodies, v.count(&v.flags.metrics), v.log).running("metrics"))
	return nil
}

func (v *server) health(mux *http.ServeMux, listener net.Listener, door *doorFlags) {
	mux.Handle("/livez", local(listener, door, v.metrics.Live()))
	mux.Handle("/readyz", local(listener, door, v.metrics.Ready()))
}

// local answers only who calls this machine by its own names, where nobody else can reach the
// listener: by DNS a name of anybody's page can mean 127.0.0.1, and the page read names of rules.
func local(listener net.Listener, door *doorFlags, next http.Handler) http.Handler {
	if _, tcp := listener.Addr().(*net.TCPAddr); !tcp || !private(listener, door) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownName(r.Host) {
			http.Error(w, "this server is called localhost, 127.0.0.1 or ::1", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (v *server) api(listener net.Listener) (http.Handler, error) {
	opts := []httpapi.Option{httpapi.WithPathForm(v.law.form)}
	switch {
	case v.secrets.token != "" || v.secrets.readToken != "":
		opts = append(opts, httpapi.WithTokens(some(v.secrets.readToken), some(v.secrets.token)))
	case private(listener, &v.flags.http):
		// By DNS anybody's page can have a name of its own mean 127.0.0.1.
		opts = append(opts, httpapi.WithHosts("localhost", "127.0.0.1", "::1"))
	}
	return httpapi.New(v.gate, opts...)
}

// some is a list of what is not empty.
func some(texts ...string) (list []string) {
	for _, text := range texts {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

func (v *server) openRESP(listener net.Listener) error {
	opts := []resp.Option{resp.WithPathForm(v.law.form), resp.WithLimits(resp.Limits{Conns: v.flags.resp.connections})}
	if v.secrets.password != "" {
		opts = append(opts, resp.WithPassword("", v.secrets.password))
	}
	if v.flags.respFailOpen {
		opts = append(opts, resp.WithFailOpen())
	}
	v.count(&v.flags.resp)
	door, err := resp.New(v.gate, v.store, opts...)
	if err != nil {
		return err
	}
	v.doors = append(v.doors, running{name: "resp",
		serve: func() error {
			if err := door.Serve(listener); !errors.Is(err, resp.ErrClosed) {
				return err
			}
			return nil
		},
		drain: func() {},
		shutdown: func(ctx context.Context) (cut int) {
			if door.Shutdown(ctx) != nil {
				return 1 // or more: it does not say
			}
			return 0
		},
		cut: door.Close})
	return nil
}
