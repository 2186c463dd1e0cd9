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

// openRedisLedger opens the ledger in Redis, which connects on first use. By default it is the store's
// own and no other: own is redissource.Own for a server, redissource.Look for commands.
func (l *Setup) openRedisLedger(ctx context.Context, own redissource.Claim) (*redissource.Ledger, error) {
	at, claim := l.Ledger, redissource.Anyones
	switch at {
	case "":
		at, claim = l.Store, own
	case InStore:
		if at, claim = l.Store, redissource.Take; at == Memory {
			return nil, l.noStore("Ledger")
		}
	}
	opts := append(l.redisOptions(l.LedgerName, l.LedgerName), redissource.WithClaim(claim))
	opened, err := redissource.OpenLedger(at, opts...)
	if err == nil && l.Ledger != "" {
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", l.field("Ledger"), Masked(at), err)
	}
	return opened, nil
}

func (l *Setup) redisOptions(prefix, channel string) []redissource.Option {
	opts := []redissource.Option{
		redissource.WithPrefix(prefix),
		redissource.WithChannel(channel),
		redissource.WithRefresh(l.Refresh),
		redissource.WithCompiler(l.compiler),
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

// NamesRedis reports whether given fields name a Redis. Only an engine uses the store that a file names.
func (l *Setup) NamesRedis() bool { return l.Given["Store"] && l.Store != Memory || len(l.Hashes) > 0 }

// Gather reads all sources once, and sets the merged rules. The own ledger of a given Store is read as an engine
// reads it, and nothing is written there.
func (l *Setup) Gather(ctx context.Context) error {
	layers, err := l.layers(ctx)
	own := l.Ledger == "" && l.Given["Store"] && l.Store != Memory
	switch {
	case err != nil || l.Ledger == "" && !own || l.Ledger == NoLedger || l.Ledger == Memory:
	case inProcess(l.Ledger):
		var book *ledger.Memory
		if book, err = ledger.ReadMemory(l.Ledger); err == nil {
			layers = append(layers, ruleset.Layer{Name: LedgerLayer, Source: book.Source(), AllowEmpty: true})
		}
	default:
		var redis *redissource.Ledger
		if redis, err = l.openRedisLedger(ctx, redissource.Look); err == nil {
			defer redis.Close()
			layers = append(layers, ruleset.Layer{Name: LedgerLayer, Source: redis.Source(), AllowEmpty: true})
		}
	}
	if err == nil && len(l.Set.SetNames()) > 0 && l.NamesRedis() {
		layers, err = l.addSets(ctx, layers)
	}
	if err != nil || len(layers) == 1 {
		return err
	}
	keeper, err := ruleset.NewManager(layers, func(*rules.Set) error { return nil },
		ruleset.WithCompile(l.Compile), ruleset.WithStartWithin(l.StartWithin))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	err = keeper.Wait(ctx)
	cancel()
	<-ended
	if inForce := keeper.Status().RuleSet; err == nil {
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
