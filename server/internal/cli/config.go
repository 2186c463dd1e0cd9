package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/server/internal/geosource"
)

// A ruleFlags are the flags of the rules, and of the settings that a rule file may contain too.
// All commands that read rules share them.
type ruleFlags struct {
	engine.Config
	hashKeyFile string
	geo         []string
}

func (f *ruleFlags) add(flags *pflag.FlagSet) {
	f.Config = engine.Defaults()
	f.addSources(flags)
	flags.StringVar(&f.Store, "store", f.Store,
		"store of the counts: memory, or a `URL` such as redis://host:6379/0")
	flags.DurationVar(&f.Timeout, "store-timeout", f.Timeout, "timeout `TIME` of a Redis call")
	flags.IntVar(&f.Nodes, "nodes", f.Nodes,
		"`NUMBER` of processes that share the store: while it is down, each grants its share of a limit")
	flags.StringSliceVar(&f.Without, "without", nil,
		"layers in front of Redis to disable, comma-separated `WORDS`:\n"+strings.Join(layers.Names, ", "))
	flags.IntVar(&f.MaxKeys, "max-keys", f.MaxKeys, "maximum `NUMBER` of keys in memory")
	flags.Int64Var(&f.MaxBytes, "max-bytes", f.MaxBytes,
		"maximum `NUMBER` of bytes of keys, logs and leases in memory")
	flags.IntVar(&f.FallbackKeys, "fallback-keys", f.FallbackKeys,
		"maximum `NUMBER` of keys of rules with on_store_error: local that\nare also counted in memory while Redis "+
			"responds")
	flags.StringSliceVar(&f.TrustedProxies, "trusted-proxies", nil,
		"comma-separated `NETWORKS` and addresses of proxies whose headers\nare trusted; unix: peers on a Unix socket")
	flags.StringSliceVar(&f.geo, "geo", nil,
		"`FILE`s with the country or the autonomous system of addresses, in MaxMind's format (.mmdb), for rules\n"+
			"with country, asn, client.country or client.asn; reloaded when they change")
	flags.StringVar(&f.CountryHeader, "country-header", "",
		"`NAME` of the header with the client's country, such as CF-IPCountry, set by trusted proxies")
	flags.StringVar(&f.ClientHeader, "client-header", f.ClientHeader,
		"`NAME` of the header with the client address, set by trusted proxies:\nX-Forwarded-For, Forwarded, "+
			"X-Real-IP or CF-Connecting-IP")
	flags.StringVar(&f.hashKeyFile, "hash-key-file", "",
		"`FILE` with the secret for hashing long keys, the same on all nodes (or WEIR_HASH_KEY)")
	flags.BoolVar(&f.AnyMethod, "any-method", false, "accept HTTP methods that are not registered or not in capitals")
	flags.StringSliceVar(&f.PathForm, "path-form", nil,
		"form in which paths are matched and forwarded, comma-separated `WORDS`:\n"+strings.Join(pathform.Words(),
			", "))
}

func (f *ruleFlags) addSources(flags *pflag.FlagSet) {
	flags.StringVarP(&f.Rules, "config", "c", "",
		"rule `FILE`, directory of rule files, or https:// URL of a rule file")
	flags.StringVar(&f.RulesToken, "config-token-file", "", "`FILE` with the bearer token for a URL in --config")
	flags.DurationVar(&f.Poll, "config-poll", f.Poll,
		"`TIME` between reads of --config without a change notification")
	flags.StringArrayVar(&f.Limits, "limit", nil,
		"instead of --config: a `LIMIT` per client address, such as \"5/10s\",\nor \"100/1m per "+
			"header.X-Api-Key\"; repeatable")
	flags.StringArrayVar(&f.Hashes, "rules", nil,
		"`URL` of a Redis with a hash for each rule, or redis for that of --store;\nrepeatable, later ones "+
			"override earlier ones")
	flags.StringVar(&f.Prefix, "rules-prefix", f.Prefix, "prefix `TEXT` of the keys of those hashes")
	flags.StringVar(&f.Channel, "rules-channel", f.Channel,
		"`NAME` of the channel that announces changes of those hashes")
	flags.StringVar(&f.Ledger, "ledger", "",
		"store of operators' rules and exceptions, which override other sources: `URL` of a Redis, redis for\n"+
			"that of --store, a file, memory, or none (default: the store's own, or memory without Redis)")
	flags.StringVar(&f.LedgerName, "ledger-name", f.LedgerName,
		"`NAME` of the ledger, a prefix of its keys and channel")
	flags.DurationVar(&f.Refresh, "rules-refresh", f.Refresh,
		"`TIME` between reads of rules in Redis without a change notification")
	flags.DurationVar(&f.StartWithin, "rules-wait", f.StartWithin,
		"`TIME` that the start waits for rule sources that cannot be read")
	flags.BoolVar(&f.AllowEmpty, "allow-empty", false,
		"accept an empty rule set (default: keep the last non-empty one)")
}

// asked reports whether any flag names a rule source.
func (f *ruleFlags) asked() bool {
	return f.Rules != "" || len(f.Limits)+len(f.Hashes) > 0 || f.Ledger != ""
}

func (f *ruleFlags) check() error {
	switch {
	case f.Rules != "" && len(f.Limits) > 0:
		return usagef("both --config and --limit are given; write the limit into %s", f.Rules)
	case f.RulesToken != "" && !engine.IsURL(f.Rules):
		return usagef("--config-token-file needs a URL in --config")
	}
	return nil
}

// fieldFlags are the flags of fields whose names differ.
var fieldFlags = map[string]string{
	"Limits":         "limit",
	"Rules":          "config",
	"Hashes":         "rules",
	"Ledger":         "ledger",
	"Poll":           "config-poll",
	"Refresh":        "rules-refresh",
	"StartWithin":    "rules-wait",
	"Store":          "store",
	"Timeout":        "store-timeout",
	"Nodes":          "nodes",
	"Without":        "without",
	"MaxKeys":        "max-keys",
	"MaxBytes":       "max-bytes",
	"FallbackKeys":   "fallback-keys",
	"State":          "state",
	"StateDir":       "state-dir",
	"Telemetry":      "telemetry",
	"TrustedProxies": "trusted-proxies",
	"ClientHeader":   "client-header",
	"Geo":            "geo",
	"CountryHeader":  "country-header",
	"PathForm":       "path-form",
	"HashKey":        "hash-key-file",
	"Audit":          "audit",
	"AuditKeys":      "audit-keys",
	"AuditKeep":      "audit-keep",
	"AuditSize":      "audit-file-size",
	"Alerts":         "alerts",
	"AlertFormat":    "alert-format",
	"AlertLanguage":  "alert-language",
	"AlertWebhook":   "alert-webhook-file",
}

// config completes the configuration of the flags.
func (f *ruleFlags) config(s *System, flags *pflag.FlagSet, warn func(string)) (c engine.Config, err error) {
	if err := f.check(); err != nil {
		return c, err
	}
	c = f.Config
	c.HashKey, err = s.secret("hash-key-file", f.hashKeyFile, warn)
	if err == nil && len(f.geo) > 0 {
		c.Geo, err = f.openGeo()
	}
	c.Stdin, c.Version = s.In, number()
	c.Given, c.Names = make(map[string]bool), make(map[string]string)
	for field, flag := range fieldFlags {
		c.Given[field], c.Names[field] = flags.Changed(flag), "--"+flag
	}
	return c, err
}

// openGeo reads the files of --geo for the first time.
func (f *ruleFlags) openGeo() (engine.Geo, error) {
	source, err := geosource.New(f.geo, f.Poll)
	if err != nil {
		return nil, fmt.Errorf("--geo: %w", err)
	}
	return source, nil
}

// read reads --config. Settings of the file apply where neither flags nor environment set them.
func (f *ruleFlags) read(ctx context.Context, s *System, flags *pflag.FlagSet, warn func(string)) (*engine.Setup,
	error) {
	c, err := f.config(s, flags, warn)
	if err != nil {
		return nil, err
	}
	return engine.Read(ctx, c)
}

// urls are the URLs in the flags.
func (f *ruleFlags) urls(flags *pflag.FlagSet) (list []string) {
	if flags.Changed("store") {
		list = append(list, f.Store)
	}
	return append(append(append(list, f.Hashes...), f.Audit.To...), f.Ledger)
}
