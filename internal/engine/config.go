// Package engine wires the parts of a rate limiter: the store and its layers, the sources of rules, the gate, and the
// metrics. The command weir serve and the public package of the same name are built on it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/netaddr"
	"github.com/weirproject/weir/internal/telemetry/alert"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// A Config says where rules come from and where counts are kept. Start with [Defaults].
type Config struct {
	Rules       string        // file, directory, URL of a file, or - for Stdin; "": none
	RulesToken  string        // file with the bearer token for a URL
	Poll        time.Duration // between reads of Rules without a change notification
	Stdin       io.Reader
	Limits      []string // instead of Rules: limits per client address
	Hashes      []string // URLs of Redis with a hash for each rule; InStore: that of Store
	Prefix      string   // of the keys of Hashes
	Channel     string   // announces changes of Hashes
	Ledger      string   // "": the store's own, or memory
	LedgerName  string   // prefix of the keys and the channel of the ledger
	ReadLedger  bool     // never write to the ledger of the store
	Refresh     time.Duration
	StartWithin time.Duration // for sources that cannot be read, at the start
	AllowEmpty  bool          // accept an empty rule set

	Store        string        // Memory, or the URL of a Redis
	Timeout      time.Duration // of a Redis call
	Nodes        int           // processes that share the store
	Without      []string      // disabled layers, of layers.Names
	MaxKeys      int           // of a store in memory
	MaxBytes     int64         // of a store in memory
	FallbackKeys int           // ceiling of keys that are counted locally too, for when Redis is down
	State        string        // file that preserves the counts in memory; "": none

	TrustedProxies []string // networks and addresses; unix: peers on a Unix socket
	ClientHeader   string
	Geo            Geo    // countries and autonomous systems of addresses; nil: unknown
	CountryHeader  string // with the client's country, from trusted proxies; "": none
	PathForm       []string
	AnyMethod      bool
	HashKey        string // for long keys

	Node  string // name of this process in records; "": the host's
	Audit Audit

	Alerts    Alerts
	Telemetry string // TelemetryOn, TelemetryHidden or TelemetryOff
	StateDir  string // folder for the history of telemetry, where counts are in memory; "": none

	// Trace, if non-nil, is called with each verdict and the context of its decision.
	Trace func(context.Context, *gate.Verdict)

	// Given are the fields that override the settings of a rule file.
	Given map[string]bool
	// Names are the names of fields in messages, where they differ.
	Names   map[string]string
	Version string // in the metrics
	Log     *slog.Logger
}

// Special values of a Config.
const (
	Memory   = "memory" // of Store and Ledger
	InStore  = "redis"  // of Hashes and Ledger: the URL of Store
	NoLedger = "none"
)

// Defaults are the values of a Config that is not given anything.
func Defaults() Config {
	return Config{
		Poll:         30 * time.Second,
		Prefix:       "rate_limit_config:",
		Channel:      "rate_limit_config",
		LedgerName:   "weir:rules",
		Refresh:      30 * time.Second,
		StartWithin:  10 * time.Second,
		Store:        Memory,
		Timeout:      50 * time.Millisecond,
		Nodes:        1,
		MaxKeys:      memstore.DefaultMaxKeys,
		MaxBytes:     1 << 30, // as a memstore
		FallbackKeys: memstore.DefaultMaxKeys,
		ClientHeader: "X-Forwarded-For",
		Telemetry:    TelemetryOff,
		Audit:        Audit{Keep: 100_000, Size: 100},
	}
}

// A ConfigError is a value of a Config that cannot be used.
type ConfigError struct{ text string }

// Error names the field, the value, and what is allowed.
func (e *ConfigError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &ConfigError{fmt.Sprintf(format, args...)} }

// field is the name of a field in messages.
func (c *Config) field(name string) string {
	if shown, ok := c.Names[name]; ok {
		return shown
	}
	return name
}

// A Setup is a Config, and the rules of its file when it was read first. Settings of the file are applied.
type Setup struct {
	Config
	File    *rules.File // of Rules, or made from Limits; nil once an Engine is open
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

	alerting alert.Settings
	primary  *primary
	compiler *rules.Compiler // of each source, and of the merged file
	serving  atomic.Bool
}

// Read reads Config.Rules for the first time.
func Read(ctx context.Context, c Config) (*Setup, error) {
	if c.StartWithin <= 0 {
		return nil, wrong("%s is %v; allowed: more than 0", c.field("StartWithin"), c.StartWithin)
	}
	if err := c.checkIntervals(); err != nil {
		return nil, err
	}
	l := &Setup{Config: c}
	l.compiler = rules.NewCompiler(rules.WithHashKey([]byte(c.HashKey)), rules.WithRest(l.rest))
	var err error
	if l.primary, err = l.open(ctx); err != nil {
		return nil, err
	}
	l.File = l.primary.file
	if err := l.settleForm(); err != nil {
		return nil, err
	}
	if l.Set, err = l.compiler.Compile(l.File); err != nil {
		return nil, l.inLimits(err)
	}
	if err := l.settle(); err != nil {
		return nil, err
	}
	l.Source = l.shown()
	return l, nil
}

// checkIntervals checks the times between reads of sources. A URL is read once a second at most.
func (c *Config) checkIntervals() error {
	poll := 100 * time.Millisecond
	if IsURL(c.Rules) {
		poll = time.Second
	}
	for _, t := range []struct {
		field        string
		given, least time.Duration
	}{{"Poll", c.Poll, poll}, {"Refresh", c.Refresh, 100 * time.Millisecond}} {
		if t.given < t.least || t.given > 24*time.Hour {
			return wrong("%s is %v; allowed: %v to 24h", c.field(t.field), t.given, t.least)
		}
	}
	return nil
}

// inLimits reports mistakes in Limits like those of other fields, without lines of a file.
func (l *Setup) inLimits(err error) error {
	var list *rules.Error
	if len(l.Limits) == 0 || !errors.As(err, &list) {
		return err
	}
	var texts []string
	for i := range list.Problems {
		texts = append(texts, list.Problems[i].Message)
	}
	return wrong("%s: %s", l.field("Limits"), strings.Join(texts, "; "))
}

// Compile compiles the merged file of all sources.
func (l *Setup) Compile(file *rules.File) (*rules.Set, error) {
	return l.compiler.Compile(l.withPathForm(file))
}

// yieldTime is how long the compilation of rules pauses after each millisecond or so.
const yieldTime = 500 * time.Microsecond

// rest pauses the compilation of rules in favour of requests, once the engine decides them.
func (l *Setup) rest() {
	if l.serving.Load() {
		time.Sleep(yieldTime)
	}
}

// settle applies the settings of the file, over which given fields have precedence, and checks the result.
func (l *Setup) settle() error {
	if set := l.Set.Store(); set != "" && !l.Given["Store"] {
		l.Store = set
	}
	if set := l.Set.Nodes(); set != 0 && !l.Given["Nodes"] {
		l.Nodes = set
	}
	if set := l.Set.FallbackKeys(); set != 0 && !l.Given["FallbackKeys"] {
		l.FallbackKeys = set
	}
	switch {
	case l.Nodes < 1 || l.Nodes > bounds.Sharing:
		return wrong("%s is %d; allowed: 1 to %d", l.field("Nodes"), l.Nodes, bounds.Sharing)
	case l.FallbackKeys < 1:
		return wrong("%s is %d; allowed: 1 or more", l.field("FallbackKeys"), l.FallbackKeys)
	case l.MaxKeys < 1:
		return wrong("%s is %d; allowed: 1 or more", l.field("MaxKeys"), l.MaxKeys)
	case l.MaxBytes < 1:
		return wrong("%s is %d; allowed: 1 or more", l.field("MaxBytes"), l.MaxBytes)
	case l.Timeout <= 0:
		return wrong("%s is %v; allowed: more than 0", l.field("Timeout"), l.Timeout)
	}
	if err := l.checkWithout(); err != nil {
		return err
	}
	if err := l.checkTelemetry(); err != nil {
		return err
	}
	if err := l.checkAudit(); err != nil {
		return err
	}
	if err := l.checkAlerts(); err != nil {
		return err
	}
	if err := l.settleProxies(); err != nil {
		return err
	}
	return l.settleGeo()
}

func (l *Setup) settleProxies() (err error) {
	if set := l.Set.ClientHeader(); set != "" && !l.Given["ClientHeader"] {
		l.ClientHeader = set
	}
	opts := []clientaddr.Option{clientaddr.WithHeader(l.ClientHeader)}
	l.Trusted = l.Set.TrustedProxies()
	if l.Given["TrustedProxies"] {
		l.Trusted = nil
		for _, text := range l.TrustedProxies {
			if text == "unix" {
				opts = append(opts, clientaddr.WithTrustedUnix())
				continue
			}
			prefix, err := netaddr.Parse(strings.TrimSpace(text))
			var input *weir.InputError
			if errors.As(err, &input) {
				return wrong("%s has %.80q; allowed: %s; or unix", l.field("TrustedProxies"), text, input.Allowed)
			}
			l.Trusted = append(l.Trusted, prefix)
		}
	}
	if l.Clients, err = clientaddr.New(l.Trusted, opts...); err == nil {
		return nil
	}
	var from []string
	for _, field := range []string{"TrustedProxies", "ClientHeader"} {
		if l.Given[field] {
			from = append(from, l.field(field))
		}
	}
	if from == nil {
		from = []string{"trusted_proxies of the file"}
	}
	return wrong("%s: %v", strings.Join(from, ", "), err)
}

// settleForm takes the form of paths from the config or the file. They must agree, since patterns
// of the file are put into that form.
func (l *Setup) settleForm() error {
	given, err := pathform.Parse(l.PathForm)
	if err != nil {
		var input *weir.InputError
		errors.As(err, &input)
		return wrong("%s has %s; allowed: %s", l.field("PathForm"), input.Given, input.Allowed)
	}
	inFile, err := pathform.Parse(l.File.FormOfPaths())
	switch {
	case err != nil: // the compiler reports it
		return nil
	case !l.Given["PathForm"]:
		l.Form = inFile
	case len(l.File.FormOfPaths()) > 0 && given != inFile:
		return wrong("%s is %v, but path_form of %s is %v; set only one of them",
			l.field("PathForm"), given, l.File.Name, inFile)
	default:
		l.Form = given
	}
	l.File = l.withPathForm(l.File)
	return nil
}

// withPathForm returns the file with the path form of the start of this process: front ends keep that
// form until a restart.
func (l *Setup) withPathForm(file *rules.File) *rules.File {
	words := strings.Split(l.Form.String(), ",")
	if slices.Equal(file.PathForm, words) || len(file.FormOfPaths()) == 0 && l.Form == (pathform.Form{}) {
		return file
	}
	other := *file
	other.PathForm = words
	return &other
}

// HTTPOptions are the settings of middleware by rules: accepted methods, the form of paths, and the client address.
func (l *Setup) HTTPOptions() *httplimit.RuleOptions {
	o := &httplimit.RuleOptions{PathForm: &l.Form, Clients: l.Clients, RegisteredMethods: !l.AnyMethod}
	if l.CountryHeader != "" {
		o.Country = l.countryOf
	}
	return o
}
