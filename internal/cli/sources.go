package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/rules"
)

// A sourceFlags are the flags of the rule sources.
type sourceFlags struct {
	config, tokenFile  string
	poll               time.Duration
	limits             []string
	hashes             []string // URLs of Redis
	prefix, channel    string
	ledger, ledgerName string
	listsChannel       string
	refresh, wait      time.Duration
	allowEmpty         bool

	compiler *rules.Compiler // shared by all sources and by their merge; nil: each has its own
}

const configPoll = 30 * time.Second

// inStore is the URL that stands for the URL of --store.
const inStore = "redis"

// none disables the ledger.
const none = "none"

func (f *sourceFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.config, "config", "c", "",
		"rule `FILE`, directory of rule files, or https:// URL of a rule file")
	flags.StringVar(&f.tokenFile, "config-token-file", "", "`FILE` with the bearer token for a URL in --config")
	flags.DurationVar(&f.poll, "config-poll", configPoll,
		"`TIME` between reads of --config without a change notification")
	flags.StringArrayVar(&f.limits, "limit", nil,
		"instead of --config: a `LIMIT` per client address, such as \"5/10s\",\nor \"100/1m per "+
			"header.X-Api-Key\"; repeatable")
	flags.StringArrayVar(&f.hashes, "rules", nil,
		"`URL` of a Redis with a hash for each rule, or redis for that of --store;\nrepeatable, later ones "+
			"override earlier ones")
	flags.StringVar(&f.prefix, "rules-prefix", "rate_limit_config:", "prefix `TEXT` of the keys of those hashes")
	flags.StringVar(&f.channel, "rules-channel", "rate_limit_config",
		"`NAME` of the channel that announces changes of those hashes")
	flags.StringVar(&f.listsChannel, "lists-channel", "weir:lists",
		"`NAME` of the channel that announces changes of sets used by allow and deny lists")
	flags.StringVar(&f.ledger, "ledger", "",
		"store of operators' rules and exceptions, which override other sources: `URL` of a Redis, redis for\n"+
			"that of --store, a file, memory, or none (default: the store's own, or memory without Redis)")
	flags.StringVar(&f.ledgerName, "ledger-name", "weir:rules",
		"`NAME` of the ledger, a prefix of its keys and channel")
	flags.DurationVar(&f.refresh, "rules-refresh", 30*time.Second,
		"`TIME` between reads of rules in Redis without a change notification")
	flags.DurationVar(&f.wait, "rules-wait", 10*time.Second,
		"`TIME` that the start waits for rule sources that cannot be read")
	flags.BoolVar(&f.allowEmpty, "allow-empty", false,
		"accept an empty rule set (default: keep the last non-empty one)")
}

// asked reports whether any flag names a rule source.
func (f *sourceFlags) asked() bool {
	return f.config != "" || len(f.limits)+len(f.hashes) > 0 || f.ledger != ""
}

func (f *sourceFlags) check() error {
	switch {
	case f.config != "" && len(f.limits) > 0:
		return usagef("both --config and --limit are given; write the limit into %s", f.config)
	case f.tokenFile != "" && !isURL(f.config):
		return usagef("--config-token-file needs a URL in --config")
	case f.wait <= 0:
		return usagef("--rules-wait is %v; allowed: more than 0", f.wait)
	}
	return nil
}

// layers are the sources in ascending precedence. Hashes in Redis, which operators change during
// an attack, override the file; the ledger, which records authors and can be rolled back,
// overrides hashes, which any program may have written.
func (f *sourceFlags) layers(ctx context.Context, p *primary, store *storeConfig) ([]ruleset.Layer, error) {
	layers := []ruleset.Layer{p.Layer}
	for i, at := range f.hashes {
		name := "redis"
		if i > 0 {
			name = fmt.Sprint("redis-", i+1)
		}
		layer, err := f.redis(ctx, name, at, store)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// openRedisLedger opens the ledger in Redis, which connects on first use. Without --ledger it is the store's
// own and no other: own is redissource.Own for a server, redissource.Look for commands.
func (f *sourceFlags) openRedisLedger(ctx context.Context, store *storeConfig, own redissource.Claim) (*redissource.Ledger, error) {
	at, claim := f.ledger, redissource.Anyones
	switch at {
	case "":
		at, claim = store.url, own
	case inStore:
		if at, claim = store.url, redissource.Take; at == memory {
			return nil, usagef("--ledger redis stands for the Redis of --store, but --store is %s; give the URL of "+
				"a Redis", memory)
		}
	}
	opts := append(f.redisOptions(f.ledgerName, f.ledgerName), redissource.WithClaim(claim))
	opened, err := redissource.LateLedger(at, opts...)
	if err == nil && f.ledger != "" {
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("--ledger: %s: %w", masked(at), err)
	}
	return opened, nil
}

func (f *sourceFlags) redisOptions(prefix, channel string) []redissource.Option {
	opts := []redissource.Option{
		redissource.WithPrefix(prefix),
		redissource.WithChannel(channel),
		redissource.WithRefresh(f.refresh),
		redissource.WithCompiler(f.compiler),
	}
	if f.allowEmpty {
		opts = append(opts, redissource.WithAllowEmpty())
	}
	return opts
}

// redis is a layer of rules in Redis. AllowEmpty leaves the check for an empty rule set to the
// source, which can tell a disabled rule from a Redis that lost its data.
func (f *sourceFlags) redis(ctx context.Context, name, at string, store *storeConfig) (ruleset.Layer, error) {
	layer := ruleset.Layer{Name: name, AllowEmpty: true}
	if at == inStore && store.url == memory {
		return layer, usagef("--rules redis stands for the Redis of --store, but --store is %s; give the URL of a "+
			"Redis", memory)
	}
	if at == inStore {
		at = store.url
	}
	from, err := redissource.New(at, f.redisOptions(f.prefix, f.channel)...)
	if err == nil {
		err = probe(ctx, at)
	}
	if err != nil {
		return layer, fmt.Errorf("--rules: %s: %w", masked(at), err)
	}
	layer.Source = from
	return layer, nil
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

// gather reads all sources once, and sets the merged rules. live reports whether --store was given: the
// store's own ledger is then read as weir serve reads it, and nothing is written there.
func (f *ruleFlags) gather(ctx context.Context, l *setup, live bool) error {
	layers, err := f.layers(ctx, l.primary, &l.store)
	own := f.ledger == "" && live && l.store.url != memory
	switch {
	case err != nil || f.ledger == "" && !own || f.ledger == none || f.ledger == memory:
	case inProcess(f.ledger):
		var book *ledger.Memory
		if book, err = ledger.ReadMemory(f.ledger); err == nil {
			layers = append(layers, ruleset.Layer{Name: ledgerLayer, Source: book.Source(), AllowEmpty: true})
		}
	default:
		var redis *redissource.Ledger
		if redis, err = f.openRedisLedger(ctx, &l.store, redissource.Look); err == nil {
			defer redis.Close()
			layers = append(layers, ruleset.Layer{Name: ledgerLayer, Source: redis.Source(), AllowEmpty: true})
		}
	}
	if err == nil && len(l.set.SetNames()) > 0 && f.namesRedis() {
		layers, err = f.addSets(ctx, l, layers)
	}
	if err != nil || len(layers) == 1 {
		return err
	}
	keeper, err := ruleset.NewKeeper(layers, func(*rules.Set) error { return nil },
		ruleset.WithCompile(l.compile), ruleset.WithStartWithin(f.wait))
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
		l.file, l.set = inForce.File, inForce.Set
		if own && slices.Contains(inForce.From, ledgerLayer) {
			l.source = strings.TrimPrefix(l.source+" + "+masked(l.store.url), " + ")
		}
	}
	return err
}

// shown is the name of the rule sources in messages; "" if there are none.
func (f *sourceFlags) shown(p *primary, store *storeConfig) string {
	var names []string
	if p.name != "" {
		names = append(names, p.name)
	}
	for _, one := range append(f.hashes[:len(f.hashes):len(f.hashes)], f.ledger) {
		if one == inStore {
			one = store.url
		}
		if one != "" {
			names = append(names, masked(one))
		}
	}
	return strings.Join(names, " + ")
}

// urls are the URLs in the flags.
func (f *ruleFlags) urls(flags *pflag.FlagSet) (list []string) {
	if flags.Changed("store") {
		list = append(list, f.store.url)
	}
	return append(append(list, f.hashes...), f.ledger)
}
