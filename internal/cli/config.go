package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/netaddr"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// A ruleFlags are the flags of the rules, and of the settings that a rule file may contain too.
// All commands that read rules share them.
type ruleFlags struct {
	sourceFlags
	store        storeConfig
	proxies      []string
	clientHeader string
	hashKeyFile  string
	forms        []string
	anyMethod    bool
}

func (f *ruleFlags) add(flags *pflag.FlagSet) {
	f.sourceFlags.add(flags)
	flags.StringVar(&f.store.url, "store", memory,
		"store of the counts: memory, or a `URL` such as redis://host:6379/0")
	flags.DurationVar(&f.store.timeout, "store-timeout", 50*time.Millisecond, "timeout `TIME` of a Redis call")
	flags.IntVar(&f.store.nodes, "nodes", 1,
		"`NUMBER` of processes that share the store: while it is down, each grants its share of a limit")
	flags.StringSliceVar(&f.store.without, "without", nil,
		"layers in front of Redis to disable, comma-separated `WORDS`:\n"+strings.Join(layers.Names, ", "))
	flags.IntVar(&f.store.maxKeys, "max-keys", memstore.DefaultMaxKeys, "maximum `NUMBER` of keys in memory")
	flags.Int64Var(&f.store.maxBytes, "max-bytes", memstore.DefaultMaxBytes,
		"maximum `NUMBER` of bytes of keys, logs and leases in memory")
	flags.IntVar(&f.store.fallbackKeys, "fallback-keys", memstore.DefaultMaxKeys,
		"maximum `NUMBER` of keys of rules with on_store_error: local that\nare also counted in memory while Redis "+
			"responds")
	flags.StringSliceVar(&f.proxies, "trusted-proxies", nil,
		"comma-separated `NETWORKS` and addresses of proxies whose headers\nare trusted; unix: peers on a Unix socket")
	flags.StringVar(&f.clientHeader, "client-header", "X-Forwarded-For",
		"`NAME` of the header with the client address, set by trusted proxies:\nX-Forwarded-For, Forwarded, "+
			"X-Real-IP or CF-Connecting-IP")
	flags.StringVar(&f.hashKeyFile, "hash-key-file", "",
		"`FILE` with the secret for hashing long keys, the same on all nodes (or WEIR_HASH_KEY)")
	flags.BoolVar(&f.anyMethod, "any-method", false, "accept HTTP methods that are not registered or not in capitals")
	flags.StringSliceVar(&f.forms, "path-form", nil,
		"form in which paths are matched and forwarded, comma-separated `WORDS`:\n"+strings.Join(pathform.Words(),
			", "))
}

// A setup is the result of the flags, the environment and --config.
type setup struct {
	file    *rules.File // of --config, or made from --limit
	set     *rules.Set  // of that file
	source  string      // name of the rule sources in messages; "" if there are none
	primary *primary
	hashKey string
	sets    *redissource.Sets // nil: no sets are read
	setless bool              // there is no Redis to read sets from

	compiler *rules.Compiler // of each source, and of the merged file
	serving  atomic.Bool
	store    storeConfig
	trusted  []netip.Prefix
	clients  *clientaddr.Extractor
	form     pathform.Form
	methods  []httplimit.Option // accepted methods
}

// read reads --config. Settings of the file apply where neither flags nor environment set them.
func (f *ruleFlags) read(ctx context.Context, s *System, flags *pflag.FlagSet, warn func(string)) (*setup, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	l := &setup{store: f.store}
	var err error
	if l.hashKey, err = s.secret("hash-key-file", f.hashKeyFile, warn); err != nil {
		return nil, err
	}
	l.compiler = rules.NewCompiler(rules.WithHashKey([]byte(l.hashKey)), rules.WithRest(l.rest))
	f.compiler = l.compiler
	if l.primary, err = f.open(ctx, s); err != nil {
		return nil, err
	}
	l.file = l.primary.file
	if err := f.settleForm(flags, l); err != nil {
		return nil, err
	}
	if l.set, err = l.compiler.Compile(l.file); err != nil {
		return nil, f.blame(err)
	}
	if err := f.settle(flags, l); err != nil {
		return nil, err
	}
	l.source = f.shown(l.primary, &l.store)
	return l, nil
}

// blame reports mistakes in --limit like those of other flags, without lines of a file.
func (f *ruleFlags) blame(err error) error {
	var list *rules.Error
	if len(f.limits) == 0 || !errors.As(err, &list) {
		return err
	}
	var wrong []string
	for i := range list.Problems {
		wrong = append(wrong, list.Problems[i].Message)
	}
	return usagef("--limit: %s", strings.Join(wrong, "; "))
}

// compile compiles the merged file of all sources, with the members of its sets.
func (l *setup) compile(file *rules.File) (*rules.Set, error) {
	file = l.formed(file)
	if l.sets != nil {
		file = l.sets.Complete(file)
	} else if err := noRedis(file); l.setless && err != nil {
		return nil, err
	}
	return l.compiler.Compile(file)
}

// yieldTime is how long the compilation of rules pauses after each millisecond or so.
const yieldTime = 500 * time.Microsecond

// rest pauses the compilation of rules in favour of requests, once the server serves.
func (l *setup) rest() {
	if l.serving.Load() {
		time.Sleep(yieldTime)
	}
}

// settle gives flags, which include the environment, precedence over the file.
func (f *ruleFlags) settle(flags *pflag.FlagSet, l *setup) error {
	if set := l.set.Store(); set != "" && !flags.Changed("store") {
		l.store.url = set
	}
	if set := l.set.Nodes(); set != 0 && !flags.Changed("nodes") {
		l.store.nodes = set
	}
	if l.store.nodes < 1 || l.store.nodes > rules.MaxSharing {
		return usagef("--nodes is %d; allowed: 1 to %d", l.store.nodes, rules.MaxSharing)
	}
	if err := checkWithout(l.store.without); err != nil {
		return err
	}
	if set := l.set.FallbackKeys(); set != 0 && !flags.Changed("fallback-keys") {
		l.store.fallbackKeys = set
	}
	if l.store.fallbackKeys < 1 {
		return usagef("--fallback-keys is %d; allowed: 1 or more", l.store.fallbackKeys)
	}
	if l.store.maxKeys < 1 {
		return usagef("--max-keys is %d; allowed: 1 or more", l.store.maxKeys)
	}
	if l.store.maxBytes < 1 {
		return usagef("--max-bytes is %d; allowed: 1 or more", l.store.maxBytes)
	}
	if l.store.timeout <= 0 {
		return usagef("--store-timeout is %v; allowed: more than 0", l.store.timeout)
	}
	if !f.anyMethod {
		l.methods = []httplimit.Option{httplimit.WithRegisteredMethods()}
	}
	return f.settleProxies(flags, l)
}

func (f *ruleFlags) settleProxies(flags *pflag.FlagSet, l *setup) (err error) {
	header := f.clientHeader
	if set := l.set.ClientHeader(); set != "" && !flags.Changed("client-header") {
		header = set
	}
	opts := []clientaddr.Option{clientaddr.WithHeader(header)}
	l.trusted = l.set.TrustedProxies()
	if flags.Changed("trusted-proxies") {
		l.trusted = nil
		for _, text := range f.proxies {
			if text == "unix" {
				opts = append(opts, clientaddr.WithTrustedUnix())
				continue
			}
			prefix, err := netaddr.Parse(strings.TrimSpace(text))
			var input *weir.InputError
			if errors.As(err, &input) {
				return usagef("--trusted-proxies has %.80q; allowed: %s; or unix", text, input.Allowed)
			}
			l.trusted = append(l.trusted, prefix)
		}
	}
	if l.clients, err = clientaddr.New(l.trusted, opts...); err == nil {
		return nil
	}
	var source string
	switch {
	case flags.Changed("trusted-proxies") && flags.Changed("client-header"):
		source = "--trusted-proxies, --client-header"
	case flags.Changed("trusted-proxies"):
		source = "--trusted-proxies"
	case flags.Changed("client-header"):
		source = "--client-header"
	default:
		source = "trusted_proxies of the file"
	}
	return usagef("%s: %v", source, err)
}

// settleForm takes the form of paths from the flag or the file. They must agree, since patterns
// of the file are put into that form.
func (f *ruleFlags) settleForm(flags *pflag.FlagSet, l *setup) (err error) {
	given, err := pathform.Parse(f.forms)
	if err != nil {
		var input *weir.InputError
		errors.As(err, &input)
		return usagef("--path-form has %s; allowed: %s", input.Given, input.Allowed)
	}
	inFile, err := pathform.Parse(l.file.PathForm)
	switch {
	case err != nil: // the compiler reports it
		return nil
	case !flags.Changed("path-form"):
		l.form = inFile
	case len(l.file.PathForm) > 0 && given != inFile:
		return usagef("--path-form is %v, but path_form of %s is %v; set only one of them", given, l.file.Name, inFile)
	default:
		l.form = given
	}
	l.file = l.formed(l.file)
	return nil
}

// formed returns the file with the path form of the start of this process: front ends keep that
// form until a restart.
func (l *setup) formed(file *rules.File) *rules.File {
	words := strings.Split(l.form.String(), ",")
	if slices.Equal(file.PathForm, words) || len(file.PathForm) == 0 && l.form == (pathform.Form{}) {
		return file
	}
	other := *file
	other.PathForm = words
	return &other
}

// readRules reads a rule file; - is the standard input. It reads at most one byte more than
// rules.Parse accepts. shown is the name of the file in messages.
func readRules(s *System, name string) (shown string, text []byte, err error) {
	in := s.In
	if name != "-" {
		file, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return name, nil, fmt.Errorf("no such file: %s", name)
		}
		if err != nil {
			return name, nil, err
		}
		defer file.Close()
		in = file
	} else {
		name = "stdin"
	}
	text, err = io.ReadAll(io.LimitReader(in, rules.MaxFile+1))
	return name, text, err
}

// quickRules makes rules of --limit flags: "LIMIT" or "LIMIT per COMPONENT, …".
func quickRules(limits []string) (*rules.File, error) {
	file := &rules.File{Name: "--limit"}
	for i, text := range limits {
		limit, per, ok := strings.Cut(text, " per ")
		key := []string{"client.ip"}
		if ok {
			key = strings.Split(per, ",")
			for i := range key {
				key[i] = strings.TrimSpace(key[i])
			}
		}
		if slices.Equal(key, []string{"all"}) {
			key = nil
		}
		name := "limit"
		if i > 0 {
			name = fmt.Sprint("limit-", i+1)
		}
		file.Rules = append(file.Rules, rules.Spec{Name: name, Key: key, Limit: []string{strings.TrimSpace(limit)}})
	}
	return file, nil
}
