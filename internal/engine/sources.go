package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/rules"
)

// layers are the sources in ascending precedence. Hashes in Redis, which operators change during
// an attack, override the file; the ledger, which records authors and can be rolled back,
// overrides hashes, which any program may have written.
func (e *Engine) layers(ctx context.Context) ([]ruleset.Layer, error) {
	layers := []ruleset.Layer{e.primary.Layer}
	if e.Envoy != nil {
		source, err := e.Envoy(&e.Config)
		if err != nil {
			return nil, err
		}
		if source != nil {
			layers = append(layers, ruleset.Layer{Name: EnvoyLayer, Source: source, AllowEmpty: true})
		}
	}
	for i, at := range e.Hashes {
		name := "redis"
		if i > 0 {
			name = fmt.Sprint("redis-", i+1)
		}
		layer, err := e.redis(ctx, name, at)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// EnvoyLayer is the name of the layer of configurations of envoyproxy/ratelimit. No resources, or domains without
// limits, are a configuration, and not a file that was cut short.
const EnvoyLayer = "envoy"

// LedgerLayer is the name of the layer that operators change.
const LedgerLayer = "ledger"

// An openedLedger is a ledger with its layer.
type openedLedger struct {
	*ledger.Ledger
	layer ruleset.Layer
	close func()
}

func newLedger(l *ledger.Ledger, from ruleset.Source, shut func()) *openedLedger {
	return &openedLedger{l, ruleset.Layer{Name: LedgerLayer, Source: from, AllowEmpty: true, Kept: true}, shut}
}

// openLedger opens the ledger; nil: there is no ledger. By default it is kept in the Redis of the store, because a
// block on one node alone would not stop an attack on the others. Without Config.Ledger only a ledger made by such
// engines is used, since a foreign one would change the rules here; and an engine is ready without it, even if Redis is
// down or denies access to it.
func (e *Engine) openLedger(ctx context.Context) (*openedLedger, error) {
	at, claim := e.Ledger, redissource.Anyones
	switch {
	case at == NoLedger, e.ReadLedger && (at == Memory || at == "" && e.Store == Memory):
		return nil, nil
	case at == Memory, at == "" && e.Store == Memory:
		return openMemory(ledger.NewMemory(""))
	case inProcess(at) && e.ReadLedger:
		return openMemory(ledger.ReadMemory(at))
	case inProcess(at):
		return openMemory(ledger.NewMemory(at))
	case at == "" && e.ReadLedger:
		at, claim = e.Store, redissource.Look
	case at == "":
		at, claim = e.Store, redissource.Own
	case at == InStore && e.Store == Memory:
		return nil, e.noStore("server.ledger")
	case at == InStore && e.ReadLedger:
		at = e.Store
	case at == InStore:
		at, claim = e.Store, redissource.Take
	}
	opts := append(e.redisOptions(e.LedgerName, e.LedgerName), redissource.WithClaim(claim))
	opened, err := redissource.OpenLedger(at, opts...) // it connects on first use
	if err == nil && e.Ledger != "" {
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("server.ledger: %s: %w", Masked(at), err)
	}
	return newLedger(opened.Ledger, opened.Source(), opened.Close), nil
}

func openMemory(m *ledger.Memory, err error) (*openedLedger, error) {
	if err != nil {
		return nil, err
	}
	return newLedger(ledger.New(m), m.Source(), func() { m.Close() }), nil
}

func (e *Engine) redisOptions(prefix, channel string) []redissource.Option {
	opts := []redissource.Option{
		redissource.WithPrefix(prefix),
		redissource.WithChannel(channel),
		redissource.WithRefresh(e.Refresh),
		redissource.WithCompiler(e.compiler),
		redissource.WithoutUsers(e.WithoutUsers),
	}
	if e.AllowEmpty {
		opts = append(opts, redissource.WithAllowEmpty())
	}
	return opts
}

// redis is a layer of rules in Redis. AllowEmpty leaves the check for an empty rule set to the
// source, which can tell a disabled rule from a Redis that lost its data.
func (e *Engine) redis(ctx context.Context, name, at string) (ruleset.Layer, error) {
	layer := ruleset.Layer{Name: name, AllowEmpty: true, Kept: true}
	if at == InStore && e.Store == Memory {
		return layer, e.noStore("server.rules")
	}
	if at == InStore {
		at = e.Store
	}
	if !strings.Contains(at, "://") {
		return layer, wrong("server.rules is %q; allowed: the URL of a Redis that has rules in hashes; a rule file is "+
			"given with --config", at)
	}
	from, err := redissource.New(at, e.redisOptions(e.HashPrefix, e.HashChannel)...)
	if err == nil {
		err = probe(ctx, at)
	}
	if err != nil {
		return layer, fmt.Errorf("server.rules: %s: %w", Masked(at), err)
	}
	layer.Source = from
	return layer, nil
}

// noStore is the error of a field that stands for the Redis of Store, if Store is not a Redis.
func (e *Engine) noStore(field string) error {
	return wrong("%s is redis, which stands for the Redis of server.store, but that is %s; give the URL of a Redis",
		field, Memory)
}

// probe returns the permanent errors of a Redis, such as a wrong password.
func probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	client, err := redisconn.OpenClient(ctx, url, redisconn.Config{})
	if err == nil {
		client.Close()
	}
	if err != nil && !passes(err) {
		return err
	}
	return nil
}

// Gather reads all sources once, and sets the merged rules. The own ledger of a given Store is read as an engine reads
// it, and not written.
func (e *Engine) Gather(ctx context.Context) error {
	e.ReadLedger = true
	layers, err := e.layers(ctx)
	own := e.Ledger == "" && e.StoreGiven && e.Store != Memory
	if err == nil && (own || e.Ledger != "") {
		var opened *openedLedger
		if opened, err = e.openLedger(ctx); opened != nil {
			defer opened.close()
			layers = append(layers, opened.layer)
		}
	}
	if err != nil || len(layers) == 1 {
		return err
	}
	manager, err := ruleset.NewManager(layers, func(*rules.Set) error { return nil },
		ruleset.WithCompile(e.Compile), ruleset.WithStartWithin(e.StartWithin))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	err = manager.Wait(ctx)
	cancel()
	<-ended
	if inForce := manager.Status().RuleSet; err == nil {
		e.File, e.Set = inForce.File, inForce.Set
		if own && slices.Contains(inForce.From, LedgerLayer) {
			e.Source = strings.TrimPrefix(e.Source+" + "+Masked(e.Store), " + ")
		}
	}
	return err
}

// shown is the name of the rule sources in messages; "" if there are no sources.
func (e *Engine) shown() string {
	var names []string
	if e.primary.name != "" {
		names = append(names, e.primary.name)
	}
	for _, one := range append([]string{e.EnvoyConfig, e.XDSServer}, append(slices.Clone(e.Hashes), e.Ledger)...) {
		if one == InStore {
			one = e.Store
		}
		if one != "" {
			names = append(names, Masked(one))
		}
	}
	return strings.Join(names, " + ")
}

// inProcess reports whether a ledger belongs to this process: in memory, or in a file.
func inProcess(ledger string) bool {
	return ledger != "" && ledger != InStore && ledger != NoLedger && !strings.Contains(ledger, "://")
}
