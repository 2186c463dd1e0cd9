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
func (l *Setup) layers(ctx context.Context) ([]ruleset.Layer, error) {
	layers := []ruleset.Layer{l.primary.Layer}
	for i, at := range l.Hashes {
		name := "redis"
		if i > 0 {
			name = fmt.Sprint("redis-", i+1)
		}
		layer, err := l.redis(ctx, name, at)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// LedgerLayer is the name of the layer that operators change.
const LedgerLayer = "ledger"

// An openedLedger is a ledger with its layer.
type openedLedger struct {
	*ledger.Ledger
	layer ruleset.Layer
	close func()
}

func newLedger(l *ledger.Ledger, from ruleset.Source, shut func()) *openedLedger {
	return &openedLedger{l, ruleset.Layer{Name: LedgerLayer, Source: from, AllowEmpty: true}, shut}
}

// openLedger opens the ledger; nil: there is none. By default it is kept in the Redis of the store, because a block on
// one node alone would not stop an attack on the others. Without Config.Ledger only a ledger made by such engines is
// used, since a foreign one would change the rules here; and an engine is ready without it, even if Redis is down or
// denies access to it.
func (l *Setup) openLedger(ctx context.Context) (*openedLedger, error) {
	at, claim := l.Ledger, redissource.Anyones
	switch {
	case at == NoLedger, l.ReadLedger && (at == Memory || at == "" && l.Store == Memory):
		return nil, nil
	case at == Memory, at == "" && l.Store == Memory:
		return openMemory(ledger.NewMemory(""))
	case inProcess(at) && l.ReadLedger:
		return openMemory(ledger.ReadMemory(at))
	case inProcess(at):
		return openMemory(ledger.NewMemory(at))
	case at == "" && l.ReadLedger:
		at, claim = l.Store, redissource.Look
	case at == "":
		at, claim = l.Store, redissource.Own
	case at == InStore && l.Store == Memory:
		return nil, l.noStore("Ledger")
	case at == InStore && l.ReadLedger:
		at = l.Store
	case at == InStore:
		at, claim = l.Store, redissource.Take
	}
	opts := append(l.redisOptions(l.LedgerName, l.LedgerName), redissource.WithClaim(claim))
	opened, err := redissource.OpenLedger(at, opts...) // it connects on first use
	if err == nil && l.Ledger != "" {
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", l.field("Ledger"), Masked(at), err)
	}
	return newLedger(opened.Ledger, opened.Source(), opened.Close), nil
}

func openMemory(m *ledger.Memory, err error) (*openedLedger, error) {
	if err != nil {
		return nil, err
	}
	return newLedger(ledger.New(m), m.Source(), func() { m.Close() }), nil
}

func (l *Setup) redisOptions(prefix, channel string) []redissource.Option {
	opts := []redissource.Option{
		redissource.WithPrefix(prefix),
		redissource.WithChannel(channel),
		redissource.WithRefresh(l.Refresh),
		redissource.WithCompiler(l.compiler),
		redissource.WithoutUsers(l.WithoutUsers),
	}
	if l.AllowEmpty {
		opts = append(opts, redissource.WithAllowEmpty())
	}
	return opts
}

// redis is a layer of rules in Redis. AllowEmpty leaves the check for an empty rule set to the
// source, which can tell a disabled rule from a Redis that lost its data.
func (l *Setup) redis(ctx context.Context, name, at string) (ruleset.Layer, error) {
	layer := ruleset.Layer{Name: name, AllowEmpty: true}
	if at == InStore && l.Store == Memory {
		return layer, l.noStore("Hashes")
	}
	if at == InStore {
		at = l.Store
	}
	if !strings.Contains(at, "://") {
		return layer, wrong("%s is %q; allowed: the URL of a Redis that has rules in hashes; a rule file is given "+
			"with %s", l.field("Hashes"), at, l.field("Rules"))
	}
	from, err := redissource.New(at, l.redisOptions(l.Prefix, l.Channel)...)
	if err == nil {
		err = probe(ctx, at)
	}
	if err != nil {
		return layer, fmt.Errorf("%s: %s: %w", l.field("Hashes"), Masked(at), err)
	}
	layer.Source = from
	return layer, nil
}

// noStore is the error of a field that stands for the Redis of Store, if that is none.
func (l *Setup) noStore(field string) error {
	return wrong("%[1]s redis stands for the Redis of %[2]s, but %[2]s is %[3]s; give the URL of a Redis",
		l.field(field), l.field("Store"), Memory)
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

// Gather reads all sources once, and sets the merged rules. The own ledger of a given Store is read as an engine
// reads it, and nothing is written there.
func (l *Setup) Gather(ctx context.Context) error {
	l.ReadLedger = true
	layers, err := l.layers(ctx)
	own := l.Ledger == "" && l.Given["Store"] && l.Store != Memory
	if err == nil && (own || l.Ledger != "") {
		var opened *openedLedger
		if opened, err = l.openLedger(ctx); opened != nil {
			defer opened.close()
			layers = append(layers, opened.layer)
		}
	}
	if err != nil || len(layers) == 1 {
		return err
	}
	manager, err := ruleset.NewManager(layers, func(*rules.Set) error { return nil },
		ruleset.WithCompile(l.Compile), ruleset.WithStartWithin(l.StartWithin))
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
		l.File, l.Set = inForce.File, inForce.Set
		if own && slices.Contains(inForce.From, LedgerLayer) {
			l.Source = strings.TrimPrefix(l.Source+" + "+Masked(l.Store), " + ")
		}
	}
	return err
}

// shown is the name of the rule sources in messages; "" if there are none.
func (l *Setup) shown() string {
	var names []string
	if l.primary.name != "" {
		names = append(names, l.primary.name)
	}
	for _, one := range append(l.Hashes[:len(l.Hashes):len(l.Hashes)], l.Ledger) {
		if one == InStore {
			one = l.Store
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
