package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/ledger"
	"github.com/weirproject/weir/rules/source"
	"github.com/weirproject/weir/rules/source/redissource"
)

// A sourceFlags says where rules are from.
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

	compiler *rules.Compiler // of all sources and what puts them together; nil: each has its own
}

const configPoll = 30 * time.Second

// inStore is the URL that means the store's.
const inStore = "redis"

// none is no ledger at all.
const none = "none"

func (f *sourceFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.config, "config", "c", "", "the `FILE` of rules, a directory of such files, or an https:// URL of one")
	flags.StringVar(&f.tokenFile, "config-token-file", "", "`FILE` with the token that the URL in --config asks for")
	flags.DurationVar(&f.poll, "config-poll", configPoll, "the `TIME` after which --config is read again although nothing was heard")
	flags.StringArrayVar(&f.limits, "limit", nil, "instead of --config: a `LIMIT` such as \"5/10s\", of each client's address,\nor \"100/1m per header.X-Api-Key\"; again for more")
	flags.StringArrayVar(&f.hashes, "rules", nil, "`URL` of a Redis with a hash for each rule, or redis for the store's;\nagain for more, of which the later ones win")
	flags.StringVar(&f.prefix, "rules-prefix", "rate_limit_config:", "the `TEXT` that the keys of those hashes begin with")
	flags.StringVar(&f.channel, "rules-channel", "rate_limit_config", "the `NAME` of the channel where their changes are announced")
	flags.StringVar(&f.listsChannel, "lists-channel", "weir:lists", "the `NAME` of the channel where changes of sets are announced that lists name")
	flags.StringVar(&f.ledger, "ledger", "", "where rules and exceptions of operators lie: `URL` of a Redis, redis for the store's, a file,\nmemory, or none; it beats the others (default: the store's own, or memory without Redis)")
	flags.StringVar(&f.ledgerName, "ledger-name", "weir:rules", "the `NAME` of the ledger: of its keys and its channel")
	flags.DurationVar(&f.refresh, "rules-refresh", 30*time.Second, "the `TIME` after which rules in Redis are read again although nothing was heard")
	flags.DurationVar(&f.wait, "rules-wait", 10*time.Second, "the `TIME` that the start waits for rules that cannot be read yet")
	flags.BoolVar(&f.allowEmpty, "allow-empty", false, "believe a source that has no rules any more, instead of keeping the last ones")
}

// asked reports whether there are to be rules at all.
func (f *sourceFlags) asked() bool {
	return f.config != "" || len(f.limits)+len(f.hashes) > 0 || f.ledger != ""
}

func (f *sourceFlags) check() error {
	switch {
	case f.config != "" && len(f.limits) > 0:
		return usagef("--config and --limit are both given; write the limit into %s", f.config)
	case f.tokenFile != "" && !isURL(f.config):
		return usagef("--config-token-file is for a --config that is a URL")
	case f.wait <= 0:
		return usagef("--rules-wait is %v; allowed: more than 0", f.wait)
	}
	return nil
}

// layers are the sources in the order of precedence, the last of which wins: what operators
// change in Redis while an attack lasts beats the file that was there before, and what the
// ledger has, with an author and a way back, beats hashes that anything may have written.
func (f *sourceFlags) layers(ctx context.Context, p *primary, store *storeConfig) ([]source.Layer, error) {
	layers := []source.Layer{p.Layer}
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

// openRedisLedger is the ledger in Redis, which connects when it is used. Where none was named it is
// the store's own, and no other.
func (f *sourceFlags) openRedisLedger(ctx context.Context, store *storeConfig) (*redissource.Ledger, error) {
	at, claim := f.ledger, redissource.Anyones
	switch at {
	case "":
		at, claim = store.url, redissource.Own
	case inStore:
		if at, claim = store.url, redissource.Take; at == memory {
			return nil, usagef("--ledger redis means the store's, and the store is %s; give the URL of a Redis", memory)
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
	opts := []redissource.Option{redissource.WithPrefix(prefix), redissource.WithChannel(channel), redissource.WithRefresh(f.refresh),
		redissource.WithCompiler(f.compiler)}
	if f.allowEmpty {
		opts = append(opts, redissource.WithAllowEmpty())
	}
	return opts
}

// redis is a layer of rules in Redis. Its source knows better than a Keeper when to believe
// that it is empty.
func (f *sourceFlags) redis(ctx context.Context, name, at string, store *storeConfig) (source.Layer, error) {
	layer := source.Layer{Name: name, AllowEmpty: true}
	if at == inStore && store.url == memory {
		return layer, usagef("--rules redis means the store's, and the store is %s; give the URL of a Redis", memory)
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

// probe says what is wrong with a Redis that waiting does not mend, such as its password.
func probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	client, err := redisstore.Client(ctx, url)
	if err == nil {
		client.Close()
	}
	if err != nil && !passes(err) {
		return err
	}
	return nil
}

// gather is the law of all sources as they stand now.
func (f *ruleFlags) gather(ctx context.Context, l *setup) error {
	layers, err := f.layers(ctx, l.primary, &l.store)
	switch {
	case err != nil || f.ledger == "" || f.ledger == none || f.ledger == memory:
	case inProcess(f.ledger):
		var book *ledger.Memory
		if book, err = ledger.ReadMemory(f.ledger); err == nil {
			layers = append(layers, source.Layer{Name: ledgerLayer, Source: book.Source(), AllowEmpty: true})
		}
	default:
		var redis *redissource.Ledger
		if redis, err = f.openRedisLedger(ctx, &l.store); err == nil {
			defer redis.Close()
			layers = append(layers, source.Layer{Name: ledgerLayer, Source: redis.Source(), AllowEmpty: true})
		}
	}
	if err == nil && len(l.set.SetNames()) > 0 && f.namesRedis() {
		layers, err = f.addSets(ctx, l, layers)
	}
	if err != nil || len(layers) == 1 {
		return err
	}
	keeper, err := source.NewKeeper(layers, func(*rules.Set) error { return nil },
		source.WithCompile(l.compile), source.WithStartWithin(f.wait))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	err = keeper.Wait(ctx)
	cancel()
	<-ended
	if inForce := keeper.Status().Law; err == nil {
		l.file, l.set = inForce.File, inForce.Set
	}
	return err
}

// shown is what to call where the rules are from; "" if there are none.
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

// urls are those that flags name.
func (f *ruleFlags) urls(flags *pflag.FlagSet) (list []string) {
	if flags.Changed("store") {
		list = append(list, f.store.url)
	}
	return append(append(list, f.hashes...), f.ledger)
}
