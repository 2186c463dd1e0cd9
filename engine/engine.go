// Package engine is the server's rate limiter for Go programs: a store with its layers, rules that are reloaded when
// they change, a local store that decides while Redis does not respond, and metrics. [Open] assembles it from
// the parts of the command weir serve.
//
//	limits, err := engine.Open(ctx, engine.Config{Rules: "rules.yaml", Store: "redis://127.0.0.1:6379"})
//	if err != nil {
//		return err
//	}
//	defer limits.Close()
//	limited, err := limits.Middleware(nil)
package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/rules"
)

// A Config says where rules come from and where counts are kept. The zero value of a field is the setting of the rule
// file, whose section server has these fields too, or else its default. Messages name the setting of the file.
//
// In Rules, Hashes and Ledger, "redis" stands for the Redis of Store.
type Config struct {
	// Rules is a rule file, a directory of rule files, the https:// URL of a rule file, or the URL of a Redis with a
	// hash for each rule. Changes are in force within a second, or at the next announcement in Redis.
	Rules string
	// RulesTokenFile is a file with the bearer token for a URL in Rules.
	RulesTokenFile string
	// Hashes are the URLs of Redis with a hash for each rule, which override Rules, and each other in this order.
	Hashes []string
	// Ledger is the Redis with the rules and exceptions of operators, which override all others. The default is the
	// Redis of Store, where weir serve writes them; "none" switches it off. An Engine only reads it.
	Ledger string
	// Refresh is the time between reads of sources that announced no change; the default is 30 seconds.
	Refresh time.Duration
	// StartWithin is the time that Open waits for sources that cannot be read; the default is 10 seconds.
	StartWithin time.Duration
	// AllowEmpty accepts an empty rule set where there were rules. Otherwise the last rules stay in force, because a
	// truncated file and a flushed database look the same.
	AllowEmpty bool

	// Store is "memory", the default, or the URL of a Redis.
	Store string
	// Timeout bounds a Redis call; the default is 50 ms. Then on_store_error of each rule decides.
	Timeout time.Duration
	// Nodes is the number of processes that share the store. While it is down, each grants its share of a limit.
	Nodes int
	// Without are the layers to leave out: breaker, coalesce, recall, warm.
	Without []string
	// MaxKeys is the maximum of keys in memory.
	MaxKeys int
	// State is a file that preserves the counts in memory across restarts.
	State string

	// TrustedProxies are addresses and networks of trusted proxies: their ClientHeader (X-Forwarded-For) is read;
	// "unix" is every peer on a Unix socket.
	TrustedProxies []string
	ClientHeader   string
	// Geo finds the country and the autonomous system of an address, for rules that name them. The server has one that
	// reads files in MaxMind's format.
	Geo gate.Geo
	// CountryHeader is a header that has the client's country, set by every trusted proxy, such as CF-IPCountry.
	CountryHeader string
	// PathForm is the form of paths for matching, in words of a rule file's path_form.
	PathForm []string
	// HashKey is the secret for hashing long keys, the same on all nodes.
	HashKey string

	// Log receives changes of rules, their mistakes, and outages. The default is slog.Default.
	Log *slog.Logger
}

// An Engine decides requests until it is closed. It is safe for concurrent use.
type Engine struct {
	engine *engine.Engine
	close  func() error
}

// Open reads the rules, connects to the store, and watches both until Close. Mistakes in the rules, a missing file and
// a permanent failure, such as a wrong password, are errors.
//
// A Redis that does not respond is no error: until it does, on_store_error of each rule decides, and rules that lie
// there are missing. Status says so.
func Open(ctx context.Context, c Config) (*Engine, error) {
	e, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return &Engine{e, sync.OnceValue(e.Close)}, nil
}

func open(ctx context.Context, c Config) (*engine.Engine, error) {
	full := engine.Config{Given: c.given, Rules: c.file(), ReadLedger: true, HashKey: c.HashKey,
		Log: cmp.Or(c.Log, slog.Default()), Version: version()}
	if c.Geo != nil {
		full.Located = geo{c.Geo}
	}
	e, err := engine.Read(ctx, full)
	if err == nil {
		err = e.Open(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := e.Wait(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// given sets the settings that c states.
func (c Config) given(s *rules.Server) {
	s.Telemetry, s.Alerts, s.Audit = "off", "off", nil
	s.Hashes, s.Geo = c.Hashes, nil
	if inRedis(c.Rules) {
		s.Hashes = slices.Concat([]string{c.Rules}, c.Hashes)
	}
	s.Ledger, s.State = c.Ledger, c.State
	s.ConfigToken = cmp.Or(c.RulesTokenFile, s.ConfigToken)
	s.Refresh = cmp.Or(c.Refresh, s.Refresh)
	s.ConfigPoll = cmp.Or(c.Refresh, s.ConfigPoll)
	s.StartWithin = cmp.Or(c.StartWithin, s.StartWithin)
	s.AllowEmpty = s.AllowEmpty || c.AllowEmpty
	s.Store = cmp.Or(c.Store, s.Store)
	s.StoreTimeout = cmp.Or(c.Timeout, s.StoreTimeout)
	s.Nodes = cmp.Or(c.Nodes, s.Nodes)
	s.MaxKeys = cmp.Or(c.MaxKeys, s.MaxKeys)
	s.ClientHeader = cmp.Or(c.ClientHeader, s.ClientHeader)
	s.CountryHeader = cmp.Or(c.CountryHeader, s.CountryHeader)
	for _, list := range []struct{ given, setting *[]string }{{&c.Without, &s.Without},
		{&c.TrustedProxies, &s.TrustedProxies}, {&c.PathForm, &s.PathForm}} {
		if len(*list.given) > 0 {
			*list.setting = *list.given
		}
	}
}

// file is Rules, unless they are in a Redis.
func (c Config) file() string {
	if inRedis(c.Rules) {
		return ""
	}
	return c.Rules
}

// A geo is a look-up that may know everything.
type geo struct{ gate.Geo }

func (geo) Has() (country, asn bool) { return true, true }

// inRedis reports whether rules lie in hashes of a Redis.
func inRedis(rules string) bool {
	scheme, _, url := strings.Cut(rules, "://")
	return rules == engine.InStore || url && scheme != "https" && scheme != "http"
}

// version is the version of this module in the program.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	for _, module := range append(build.Deps, &build.Main) {
		if module.Path == "github.com/weirproject/weir" && module.Version != "" {
			return module.Version
		}
	}
	return "(devel)"
}

// Middleware makes middleware that decides each request by the rules in force: httplimit.ByRules, with the accepted
// methods, the form of paths, the trusted proxies and the country of the engine where the options, which may be nil,
// leave them out.
func (e *Engine) Middleware(options *httplimit.RuleOptions) (func(http.Handler) http.Handler, error) {
	own, o := e.engine.HTTPOptions(), httplimit.RuleOptions{}
	if options != nil {
		o = *options
	}
	o.Clients, o.PathForm = cmp.Or(o.Clients, own.Clients), cmp.Or(o.PathForm, own.PathForm)
	o.RegisteredMethods = o.RegisteredMethods || own.RegisteredMethods
	if o.Country == nil {
		o.Country = own.Country
	}
	return httplimit.ByRules(e.engine.Gate, &o)
}

// Decide decides a request of another protocol than HTTP: see [gate.Gate.Decide].
func (e *Engine) Decide(ctx context.Context, r *rules.Request, ask gate.Ask, v *gate.Verdict) error {
	return e.engine.Gate.Decide(ctx, r, ask, v)
}

// Gate is the gate of the engine, to settle, renew and release what Decide granted. Do not swap its rules.
func (e *Engine) Gate() *gate.Gate { return e.engine.Gate }

// Metrics are the metrics of weir serve, without the metrics of the Go runtime and the process.
func (e *Engine) Metrics() prometheus.Collector { return e.engine.Metrics.Registry() }

// Reload reads all sources now, and waits until their rules are in force. The error lists the sources that failed.
func (e *Engine) Reload(ctx context.Context) error { return e.engine.Reload(ctx) }

// Close saves the state and closes the store, once. Call it after the last request.
func (e *Engine) Close() error { return e.close() }

// A Status is a snapshot of the rules in force and their sources.
type Status struct {
	Rules   int       // number of rules in force
	Loaded  time.Time // when they were put in force; zero: only those of the start are
	Sources []Source  // in ascending precedence
}

// A Source is the state of one source of rules.
type Source struct {
	Name     string // config, redis, redis-2, …, sets, geo, ledger
	Revision string // of its rules in force
	Rules    int    // of them in force
	LeftOut  int    // invalid rules, which are not in force as they are written; Err lists them
	Err      error  // why its newest content is not in force; nil: it is
}

// Status returns the current status.
func (e *Engine) Status() Status {
	s := Status{Rules: len(e.engine.Gate.Rules().Rules())}
	now := e.engine.Status()
	if now.RuleSet != nil {
		s.Loaded = now.RuleSet.Loaded
	}
	for _, y := range now.Layers {
		s.Sources = append(s.Sources, Source{y.Name, y.Revision, y.Rules, y.LeftOut, cmp.Or(y.Err, y.Warning)})
	}
	return s
}
