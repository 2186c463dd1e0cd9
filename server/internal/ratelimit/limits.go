package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/filesource"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/xdssource"
)

// Limits are the configurations of a server: a source of rules, and what the service shows of them. The zero Limits are
// ready to use, for one source. They are safe for concurrent use.
type Limits struct {
	read, now     atomic.Pointer[configuration] // the last one, and the one in force; nil: there is none
	loaded, wrong atomic.Uint64
}

// A configuration is all files or resources together.
type configuration struct {
	configs []*ratelimitconf.Config
	values  bool              // of some limit
	limits  map[string]*limit // by the name of the rule
	dump    string
}

// A limit is a descriptor with a rate limit.
type limit struct {
	key      string // domain.key_value.key, as the service names its counts
	domain   string
	path     []*ratelimitconf.Descriptor
	detailed bool
	values   bool // the name of a count depends on the values of a request
}

// Domains is the number of configurations in force.
func (l *Limits) Domains() int {
	if c := l.now.Load(); c != nil {
		return len(c.configs)
	}
	return 0
}

// Loaded reports whether a configuration was read.
func (l *Limits) Loaded() bool { return l.read.Load() != nil }

// InForce says that the rules of the last configuration are in force: from now on the service shows that one.
func (l *Limits) InForce() { l.now.Store(l.read.Load()) }

// Source opens the source of configurations that the settings name; nil: they name none.
func (l *Limits) Source(c *engine.Config) (ruleset.Source, error) {
	switch {
	case c.XDSServer != "":
		return l.fromServer(c)
	case c.EnvoyConfig != "":
		return l.fromFiles(c)
	}
	return nil, nil
}

// fromServer opens the source over xDS.
func (l *Limits) fromServer(c *engine.Config) (ruleset.Source, error) {
	source, err := xdssource.New(xdssource.Config{Server: c.XDSServer, Node: c.XDSNode, Metadata: c.XDSMetadata,
		Headers: c.XDSHeaders, TLS: c.XDSTLS, CA: c.XDSCA, Cert: c.XDSCert, Key: c.XDSKey, ServerName: c.XDSServerName,
		Backoff: c.XDSBackoff, MaxBackoff: c.XDSBackoffMax, MaxMessage: c.XDSMaxMessage,
		Optional: !slices.Contains(c.EnvoyHealth, "config"), Convert: l.Convert(c), Version: c.Version, Log: c.Log})
	if err != nil {
		return nil, fmt.Errorf("server.envoy.xds: %w", err)
	}
	return source, nil
}

// fromFiles opens the source of a directory.
func (l *Limits) fromFiles(c *engine.Config) (ruleset.Source, error) {
	if !engine.IsDir(c.EnvoyConfig) {
		return nil, fmt.Errorf("server.envoy.config: %.200q is no directory; it has configurations of "+
			"envoyproxy/ratelimit (RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY)", c.EnvoyConfig)
	}
	convert := l.Convert(c)
	return filesource.New(c.EnvoyConfig, filesource.WithPoll(c.ConfigPoll),
		filesource.WithFormat(c.EnvoyDotFiles, func(texts []filesource.Text) (*rules.File, error) {
			configs, err := parse(texts)
			if err != nil {
				l.wrong.Add(1)
				return nil, err
			}
			return convert(configs)
		}))
}

// parse reads all files, or lists the mistakes of all.
func parse(texts []filesource.Text) (configs []*ratelimitconf.Config, err error) {
	all := new(rules.Error)
	for _, t := range texts {
		config, err := ratelimitconf.Parse(t.Name, t.Body)
		var list *rules.Error
		switch {
		case errors.As(err, &list):
			all.Problems = append(all.Problems, list.Problems...)
			all.Omitted += list.Omitted
		case err != nil:
			return nil, err
		}
		configs = append(configs, config)
	}
	if len(all.Problems) > 0 {
		return nil, all
	}
	return configs, nil
}

// Convert returns the function that makes rules of configurations by the settings.
func (l *Limits) Convert(c *engine.Config) func([]*ratelimitconf.Config) (*rules.File, error) {
	return func(configs []*ratelimitconf.Config) (*rules.File, error) {
		named := make(map[string]string)
		file, err := ratelimitconf.Compile(configs, ratelimitconf.Options{Merge: c.EnvoyMerge,
			Algorithm: func(_, _, unit string) string { return algorithmOf(c, unit) },
			Adjust: func(domain, path string, rule *rules.Spec) error {
				named[domain+"."+path] = rule.Name
				return nil
			}})
		if err != nil {
			l.wrong.Add(1)
			return nil, err
		}
		l.loaded.Add(1)
		l.read.Store(newConfiguration(configs, named))
		if c.Log != nil {
			ignored(c.Log, configs)
		}
		return file, nil
	}
}

// maxIgnored is the most fields without effect that are logged each time.
const maxIgnored = 20

// ignored logs the fields that the service accepts at places where they have no effect.
func ignored(log *slog.Logger, configs []*ratelimitconf.Config) {
	n := 0
	for _, config := range configs {
		for i := range config.Ignored {
			p := &config.Ignored[i]
			if n++; n <= maxIgnored {
				log.Warn("field without effect: "+p.Message, "file", p.File, "line", p.Line)
			}
		}
	}
	if n > maxIgnored {
		log.Warn("more fields without effect", "fields", n-maxIgnored)
	}
}

// algorithmOf is the setting of a unit, else the one of all, which stands first.
func algorithmOf(c *engine.Config, unit string) string {
	return cmp.Or(c.Algorithm[1+slices.Index(ratelimitconf.Units, unit)], c.Algorithm[0])
}

// newConfiguration walks the trees of descriptors. named are the names of rules by their keys.
func newConfiguration(configs []*ratelimitconf.Config, named map[string]string) *configuration {
	c := &configuration{configs: configs, limits: make(map[string]*limit)}
	var dump strings.Builder
	var walk func(domain, above string, path []*ratelimitconf.Descriptor, list []ratelimitconf.Descriptor)
	walk = func(domain, above string, path []*ratelimitconf.Descriptor, list []ratelimitconf.Descriptor) {
		for i := range list {
			d := &list[i]
			key, here := above+"."+d.Text(), append(path[:len(path):len(path)], d)
			if d.Limit != nil {
				describe(&dump, key, d)
				if name := named[key]; name != "" {
					one := newLimit(domain, key, here)
					c.limits[name], c.values = one, c.values || one.values
				}
			}
			walk(domain, key, here, d.Descriptors)
		}
	}
	for _, config := range configs {
		walk(config.Domain, config.Domain, nil, config.Descriptors)
	}
	c.dump = dump.String()
	return c
}

// describe writes a limit as /rlconfig of the service does.
func describe(to *strings.Builder, key string, d *ratelimitconf.Descriptor) {
	unit := strings.ToUpper(d.Limit.Unit)
	if unit == "" {
		unit = "UNKNOWN"
	}
	fmt.Fprintf(to, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", key, unit,
		d.Limit.RequestsPerUnit, d.ShadowMode, d.QuotaMode)
}

func newLimit(domain, key string, path []*ratelimitconf.Descriptor) *limit {
	l := &limit{key: key, domain: domain, path: path, detailed: path[len(path)-1].DetailedMetric}
	l.values = l.detailed
	for _, d := range path {
		l.values = l.values || d.ValueToMetric
	}
	return l
}

// maxKey is the most bytes of a name with values of a request.
const maxKey = 512

// keyOf is the name of the count of a descriptor with the values of a request. It reports whether there is such a name:
// the configuration says so, and it is not too long.
func (l *limit) keyOf(entries []*common.RateLimitDescriptor_Entry) (key string, ok bool) {
	if !l.values || len(entries) != len(l.path) {
		return "", false
	}
	var b strings.Builder
	b.WriteString(l.domain)
	for i, d := range l.path {
		value := d.Value
		switch own := !strings.Contains(d.Value, "*"); {
		case d.ShareThreshold: // its values have one count
		case l.detailed, d.ValueToMetric && (d.Value == "" || !own):
			value = entries[i].GetValue()
		}
		if b.Len()+len("._")+len(d.Key)+len(value) > maxKey {
			return "", false
		}
		b.WriteString("." + d.Key)
		if value != "" {
			b.WriteString("_" + value)
		}
	}
	return b.String(), true
}
