package engine

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/alert"
	"github.com/weirproject/weir/internal/telemetry/audit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// An Engine decides requests by rules that it keeps up to date, until Close.
type Engine struct {
	Config
	File    *rules.File // of Rules, or made from Limits; nil once it is open
	Set     *rules.Set  // of that file; likewise
	Source  string      // name of the rule sources in messages; "" if there are none
	Trusted []netip.Prefix
	Clients *clientaddr.Extractor
	Form    pathform.Form

	// Prepare, if non-nil, is called with each rule set before it is put in force, and use after that. An error refuses
	// the rule set. The calls are sequential.
	Prepare func(*rules.Set) (use func(), err error)
	// WithoutUsers says why no request has a user, so that rules of users in hashes are mistakes; "": some may have.
	WithoutUsers string
	// Settled, if non-nil, is called with a rule set that has been in force for a second, after it was checked for
	// warnings.
	Settled func(*rules.Set)
	// Changed, if non-nil, is called with the settings of a changed file; some of them need no restart.
	Changed func(*rules.Server)

	alerting alert.Settings
	primary  *primary
	compiler *rules.Compiler          // of each source, and of the merged file
	began    map[string][]string      // the settings of the start
	pending  atomic.Pointer[[]string] // changed settings that need a restart

	Gate    *gate.Gate
	Counts  weir.Store // the store with its layers
	Local   weir.Store // decides by itself while the store does not answer
	Metrics *servermetrics.Metrics
	Book    *ledger.Ledger // nil: none

	stack    *stack        // nil: limits are counted in memory
	state    *state        // nil: none is kept
	opened   *openedLedger // nil: none
	manager  *ruleset.Manager
	store    weir.Store // without layers
	outage   *outage
	conn     inspector              // of the store; nil: in memory
	policy   atomic.Pointer[string] // what is wrong with Redis' eviction policy; nil: not looked at
	watcher  *watcher               // nil: no telemetry
	audit    *audit.Log             // nil: none
	alerts   *alert.Manager         // nil: none
	webhook  *alert.Webhook         // nil: none
	markers  []func(telemetry.Mark)
	optional string // a layer that was not asked for: the engine is ready without it
	stop     context.CancelFunc
	ended    sync.WaitGroup

	// Used by the manager's goroutine alone.
	complete bool // each source was in force once
	loaded   bool // some rules were
	failing  bool // some rules of a source were not in force at the last event

	settler *time.Timer // nil: none is due
	settled atomic.Pointer[rules.Set]
	linting sync.Mutex // guards what follows, and primary.linted
	warned  []string   // warnings of weir check, as logged last
}

// Open connects to the store, and begins to watch the sources. Until Wait returns, rules may be missing.
func (e *Engine) Open(ctx context.Context) error {
	err := e.start(ctx)
	if err != nil {
		e.Close()
	}
	return err
}

func (e *Engine) start(ctx context.Context) error {
	layers, err := e.layers(ctx)
	if err == nil {
		e.opened, err = e.openLedger(ctx)
	}
	if err != nil {
		return err
	}
	if source, ok := e.Located.(ruleset.Source); ok {
		layers = append(layers, ruleset.Layer{Name: geoLayer, Source: source, AllowEmpty: true})
	}
	if e.opened != nil {
		e.Book = e.opened.Ledger
		e.Book.Reverted = e.markReverted
		layers = append(layers, e.opened.layer)
	}
	if e.Ledger == "" {
		e.optional = LedgerLayer
	}
	store, conn, err := openStore(ctx, &e.Config)
	if err != nil {
		return err
	}
	e.store, e.Counts = store, store // Close closes it
	e.conn, _ = conn.(inspector)
	e.Metrics = servermetrics.New(e.Version)
	if err := e.openState(store); err != nil {
		return err
	}
	if err := e.openAudit(ctx); err != nil {
		return err
	}
	if e.Local, err = e.addLayers(store); err != nil {
		return err
	}
	e.outage = &outage{log: e.Log, mark: e.Mark}
	e.openRecorder(ctx)
	use, err := e.prepared(e.Set)
	if err != nil {
		return err
	}
	if e.Gate, err = gate.New(e.Counts, e.Set, e.options(store)...); err != nil {
		return err
	}
	use()
	if err := e.prepare(layers); err != nil {
		return err
	}
	e.newAlerts()
	if err := e.openHistory(store); err != nil {
		return err
	}
	e.File, e.Set, e.primary.file = nil, nil, nil // the gate and the manager have them, until they change
	e.run()
	if e.alerts != nil {
		e.alerts.Start()
	}
	return nil
}

// options are the options of the gate.
func (e *Engine) options(store weir.Store) []gate.Option {
	count, counting := e.Metrics.Verdict, e.Metrics.Counting
	if e.watcher != nil {
		count, counting = e.watcher.Observer(), e.watcher.Counting
	}
	opts := []gate.Option{gate.WithLocal(e.Local), gate.WithBudget(e.budget()), gate.WithTrace(e.Trace),
		gate.WithObserver(count), gate.WithObserver(e.outage.verdict), gate.WithCountObserver(counting)}
	if e.Located != nil {
		opts = append(opts, gate.WithGeo(e.Located))
	}
	if e.audit != nil {
		opts = append(opts, gate.WithObserver(e.audit.Verdict), gate.WithCountObserver(e.audit.Counting))
	}
	if register, shared := store.(gate.Register); shared {
		opts = append(opts, gate.WithRegister(register))
	}
	return opts
}

// budget is the timeout of a whole decision: the timeout of one Redis call.
func (e *Engine) budget() time.Duration {
	if e.Store == Memory {
		return 0
	}
	return e.StoreTimeout
}

// openState restores the counts of the state file.
func (e *Engine) openState(store weir.Store) (err error) {
	if e.State == "" {
		return nil
	}
	local, ok := store.(*memstore.Store)
	if !ok {
		return wrong("server.state saves counts in memory, but server.store is %s, which keeps its counts itself; "+
			"leave server.state out", Masked(e.Store))
	}
	if e.state, err = openState(e.State, "server.state", local, e.Log); err == nil {
		e.state.keep(e.Metrics)
	}
	return err
}

// addLayers puts the layers before the store, and returns the local fallback store. A store in memory has no
// layers, and is its own fallback.
func (e *Engine) addLayers(store weir.Store) (local weir.Store, err error) {
	if e.Store == Memory {
		e.Counts = e.Metrics.Store(e.Metrics.Watch(store))
		return e.Counts, nil
	}
	if e.stack, err = newStack(store, &e.Config, e.Metrics); err != nil {
		return nil, err
	}
	e.stack.follow(e.Set)
	e.Counts = e.stack.Store
	return e.stack.Local, nil
}

// prepare makes the manager, which keeps the rules up to date.
func (e *Engine) prepare(layers []ruleset.Layer) (err error) {
	e.manager, err = ruleset.NewManager(layers, e.swap, ruleset.WithCompile(e.Compile),
		ruleset.WithEvents(e.onEvent), ruleset.WithStartWithin(e.StartWithin))
	if err != nil {
		return err
	}
	e.Metrics.Sources(e.sources)
	e.Metrics.Degraded(e.degraded)
	e.exportPaths()
	e.Metrics.Reserved(e.reserved)
	if p := e.primary; p.text != nil {
		e.lint(p.name, p.text)
		p.text = nil
	}
	e.Metrics.Incomplete(true)
	return nil
}

// run begins to keep the rules up to date.
func (e *Engine) run() {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	e.ended.Go(func() { e.manager.Run(ctx) })
	e.Metrics.Probe(e.probe(ctx), e.Store == Memory)
	e.ended.Go(func() { e.lookForTrouble(ctx) })
	e.ended.Go(func() { e.watchPolicy(ctx) })
}

// Wait waits until the rules of all sources are in force, or for StartWithin: then the engine works without the missing
// rules and is not ready. The error is the context's.
func (e *Engine) Wait(ctx context.Context) error {
	e.manager.Wait(ctx) // missing rules were logged
	return ctx.Err()
}

// Reload reads all sources now, and waits until their rules are in force. The error lists the others.
func (e *Engine) Reload(ctx context.Context) error { return e.manager.Reload(ctx) }

// Status is the state of the rules in force, and of each source.
func (e *Engine) Status() *ruleset.Status { return e.manager.Status() }

// Close stops the sources, saves the state, and closes the store.
func (e *Engine) Close() (err error) {
	if e.stop != nil {
		e.stop()
	}
	e.ended.Wait()
	e.closeAlerts()
	if e.settler != nil {
		e.settler.Stop()
	}
	if e.watcher != nil {
		err = e.watcher.close()
	}
	if e.opened != nil {
		e.opened.close()
	}
	if e.audit != nil {
		e.audit.Close()
	}
	if e.state != nil {
		err = errors.Join(err, e.state.close())
	}
	return errors.Join(err, e.closeStore())
}

// closeStore logs that prefetched units stay used after an outage: this is no failure of the shutdown, and never admits
// too much.
func (e *Engine) closeStore() error {
	if e.Counts == nil {
		return nil
	}
	err := e.Counts.Close()
	if errors.Is(err, weir.ErrUnavailable) {
		e.Log.Warn("prefetched units were not given back and stay used, because the store is unavailable", "error", err)
		return nil
	}
	return err
}
