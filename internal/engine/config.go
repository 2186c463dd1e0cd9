// Package engine wires the parts of a rate limiter: the store and its layers, the sources of rules, the gate, and the
// metrics. The command weir serve and the public package of the same name are built on it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A Config has the settings and parts of an engine.
type Config struct {
	rules.Server // what Given sets; from Read on all settings, those of the file included

	// Given, if non-nil, sets fields that take precedence over the settings of the file.
	Given func(*rules.Server)
	// Secret, if non-nil, reads the secret of a setting, which may name a file with it.
	Secret func(setting, file string) (string, error)

	Rules      string   // file, directory, URL of a file, or - for Stdin; "": none
	Limits     []string // instead of Rules: limits per client address
	Stdin      io.Reader
	StoreGiven bool   // not by the file alone: Gather reads its own ledger
	ReadLedger bool   // never write to the ledger of the store
	HashKey    string // for long keys

	// Locate, if non-nil, opens the files of server.geo as Located.
	Locate  func(files []string, poll time.Duration) (Geo, error)
	Located Geo // countries and autonomous systems of addresses; nil: unknown

	Webhook     string // URL for alerts; "": none
	AlertSecret string // signs messages; "": they are not signed

	// Trace, if non-nil, is called with each verdict and the context of its decision.
	Trace func(context.Context, *gate.Verdict)

	// Envoy, if non-nil, opens the source of configurations of envoyproxy/ratelimit; nil: the settings name none.
	Envoy func(*Config) (ruleset.Source, error)

	Version string // in the metrics
	Log     *slog.Logger
}

// Special values of a Config.
const (
	Memory   = "memory" // of Store and Ledger
	InStore  = "redis"  // of Hashes and Ledger: the URL of Store
	NoLedger = "none"
)

// A ConfigError is a value of a Config that cannot be used.
type ConfigError struct{ text string }

// Error names the field, the value, and the allowed values.
func (e *ConfigError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &ConfigError{fmt.Sprintf(format, args...)} }

// Read reads Config.Rules for the first time, and determines the settings of the start. Open does the rest.
func Read(ctx context.Context, c Config) (*Engine, error) {
	e := &Engine{Config: c}
	if err := e.read(ctx); err != nil {
		return nil, err
	}
	var err error
	if e.Set, err = e.Compile(e.File); err != nil {
		return nil, e.inLimits(err)
	}
	e.began = e.Values()
	if err := e.settle(); err != nil {
		return nil, err
	}
	e.Source = e.shown()
	return e, nil
}

// read reads the file. A few settings change how a file is read: a file that sets one of them is read a second time.
func (e *Engine) read(ctx context.Context) (err error) {
	e.Server = e.over(rules.Server{})
	for range 2 {
		if err := e.Check(); err != nil {
			return wrong("%v", err)
		}
		if err := e.readSecrets(); err != nil {
			return err
		}
		e.compiler = rules.NewCompiler(rules.WithHashKey([]byte(e.HashKey)))
		if IsURL(e.Rules) && e.ConfigPoll < time.Second {
			return wrong("server.config.poll is %v; allowed for a URL: 1s to 24h", e.ConfigPoll)
		}
		if e.primary == nil || !e.primary.static {
			if e.primary, err = e.open(ctx); err != nil {
				return err
			}
		}
		before := e.Server
		e.File, e.Server = e.primary.file, e.over(e.primary.file.Server)
		if e.HashKeyFile == before.HashKeyFile && e.ConfigPoll == before.ConfigPoll {
			break
		}
	}
	return e.readSecrets()
}

// over completes the settings of a file.
func (e *Engine) over(s rules.Server) rules.Server {
	if e.Given != nil {
		e.Given(&s)
	}
	s.Complete()
	return s
}

func (e *Engine) readSecrets() (err error) {
	if e.Secret == nil {
		return nil
	}
	for _, one := range []struct {
		setting, file string
		secret        *string
	}{
		{"hash_key_file", e.HashKeyFile, &e.HashKey},
		{"alert.webhook_file", e.AlertWebhookFile, &e.Webhook},
		{"alert.secret_file", e.AlertSecretFile, &e.AlertSecret},
	} {
		if *one.secret, err = e.Secret(one.setting, one.file); err != nil {
			return err
		}
	}
	return nil
}

// inLimits reports mistakes in Limits like mistakes in other fields, without lines of a file.
func (e *Engine) inLimits(err error) error {
	var list *rules.Error
	if len(e.Limits) == 0 || !errors.As(err, &list) {
		return err
	}
	var texts []string
	for i := range list.Problems {
		texts = append(texts, list.Problems[i].Message)
	}
	return wrong("--limit: %s", strings.Join(texts, "; "))
}

// Compile compiles the merged file of all sources by the settings of the start: front ends keep these.
func (e *Engine) Compile(file *rules.File) (*rules.Set, error) {
	other := *file
	other.Server = e.Server
	return e.compiler.Compile(&other)
}

// settle checks what one setting says about another.
func (e *Engine) settle() error {
	e.Form = e.Set.PathForm()
	for _, check := range []func() error{e.checkWithout, e.checkTelemetry, e.checkAudit, e.checkAlerts,
		e.settleProxies, e.settleGeo} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) settleProxies() (err error) {
	opts := []clientaddr.Option{clientaddr.WithHeader(e.ClientHeader)}
	if slices.Contains(e.TrustedProxies, "unix") {
		opts = append(opts, clientaddr.WithTrustedUnix())
	}
	e.Trusted = e.Set.TrustedProxies()
	if e.Clients, err = clientaddr.New(e.Trusted, opts...); err != nil {
		return wrong("server.trusted_proxies, server.client_header: %v", err)
	}
	return nil
}

// HTTPOptions are the settings of middleware by rules: accepted methods, the form of paths, and the client address.
func (e *Engine) HTTPOptions() *httplimit.RuleOptions {
	o := &httplimit.RuleOptions{PathForm: &e.Form, Clients: e.Clients, RegisteredMethods: !e.AnyMethod}
	if e.CountryHeader != "" {
		o.Country = e.countryOf
	}
	return o
}

// CheckSettings checks what one setting says about another, apart from secrets.
func CheckSettings(s rules.Server) error {
	e := &Engine{Config: Config{Server: s, HashKey: "unread"}}
	for _, check := range []func() error{e.checkWithout, e.checkTelemetry, e.checkAudit, e.checkAlerts} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
