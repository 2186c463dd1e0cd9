package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
)

// serverSection begins the path of a setting in --set and in messages.
const serverSection = "server."

// ruleFlags are the flags that name rules, and that set fields of the section server. Its table has the flags' texts.
type ruleFlags struct {
	config   string
	limits   []string
	sets     []string
	fields   []*fieldFlag
	usual    []assignment // in place of defaults; variables have precedence
	notes    []string     // warnings about them
	optional bool         // the API may be left out, where its address is in use
	local    bool         // the command is no server: it uses a store only if it is told to
}

// A fieldFlag is a flag of a field of the section server.
type fieldFlag struct {
	setting rules.Setting
	values  []string
}

// String implements pflag.Value.
func (f *fieldFlag) String() string { return "" }

// Set implements pflag.Value. The values are checked with values of other origin.
func (f *fieldFlag) Set(text string) error {
	f.values = append(f.values, text)
	return nil
}

// Type implements pflag.Value.
func (f *fieldFlag) Type() string {
	if f.setting.Bool {
		return "bool"
	}
	return "VALUE"
}

// flagOf is the flag of a setting, if it has one: --trusted-proxies for trusted_proxies.
func flagOf(path string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(path) }

// add adds the flags of all commands that read rules, and of some settings.
func (f *ruleFlags) add(flags *pflag.FlagSet, paths ...string) {
	flags.StringVarP(&f.config, "config", "c", "",
		"`FILE` with rules and settings, directory of such files, or https:// URL of one")
	flags.StringArrayVar(&f.limits, "limit", nil,
		"instead of --config: a `LIMIT` per client address, such as \"5/10s\",\nor \"100/1m per "+
			"header.X-Api-Key\"; repeatable")
	f.addFields(flags, paths...)
}

func (f *ruleFlags) addFields(flags *pflag.FlagSet, paths ...string) {
	flags.StringArrayVar(&f.sets, "set", nil,
		"`server.FIELD=VALUE`: a setting of the file, such as server.store.timeout=20ms; repeatable")
	for _, setting := range rules.Settings() {
		if slices.Contains(paths, setting.Path) {
			one := &fieldFlag{setting: setting}
			f.fields = append(f.fields, one)
			flags.Var(one, flagOf(setting.Path), wrapped(setting.About+" (default: "+setting.Default+")"))
			if setting.Bool {
				flags.Lookup(flagOf(setting.Path)).NoOptDefVal = "true"
			}
		}
	}
}

// wrapped breaks the text of a flag into lines.
func wrapped(text string) string {
	const width = 80
	var b strings.Builder
	line := 0
	for word := range strings.FieldsSeq(text) {
		if line > 0 && line+1+len(word) > width {
			b.WriteByte('\n')
			line = 0
		} else if line > 0 {
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}

// An assignment sets a field of the section server.
type assignment struct {
	path, source string
	values       []string
}

// assignments are the settings in the environment, in --set and in flags; later ones have precedence.
func (f *ruleFlags) assignments(s *System) (list []assignment, err error) {
	list = slices.Clone(f.usual)
	for _, setting := range rules.Settings() {
		name := variable(setting.Path)
		if value := s.lookup(name); value != "" {
			list = append(list, assignment{setting.Path, name, []string{value}})
		}
	}
	for _, text := range f.sets {
		path, value, ok := strings.Cut(strings.TrimPrefix(text, serverSection), "=")
		if !ok || !strings.HasPrefix(text, serverSection) {
			return nil, program.Usagef(
				"--set is %.80q; allowed: server.FIELD=VALUE, such as server.store.timeout=20ms", text)
		}
		list = append(list, assignment{path, "--set", []string{value}})
	}
	for _, one := range f.fields {
		if len(one.values) > 0 {
			list = append(list, assignment{one.setting.Path, "--" + flagOf(one.setting.Path), one.values})
		}
	}
	for _, a := range list {
		if err := new(rules.Server).Set(a.path, a.values...); err != nil {
			return nil, program.Usagef("%s: %w", a.source, err)
		}
	}
	return list, nil
}

// asked reports whether a flag, a variable or --set names a rule source.
func (f *ruleFlags) asked(s *System) bool {
	list, _ := f.assignments(s)
	return f.config != "" || len(f.limits) > 0 || slices.ContainsFunc(list, func(a assignment) bool {
		path, _, _ := strings.Cut(a.path, ".")
		return path == "rules" || path == "ledger"
	})
}

// onLine are the URLs in the command line, which other users of the machine can read.
func (f *ruleFlags) onLine() (list []string) {
	for _, one := range f.fields {
		list = append(list, one.values...)
	}
	return append(list, f.sets...)
}

// given returns the assignments with precedence over the settings of the file.
func (f *ruleFlags) given(s *System) (func(*rules.Server), error) {
	list, err := f.assignments(s)
	return f.over(list), err
}

func (f *ruleFlags) over(list []assignment) func(*rules.Server) {
	return func(server *rules.Server) {
		if f.local {
			localOnly(server)
		}
		for _, a := range list {
			_ = server.Set(a.path, a.values...) // it was checked
		}
	}
}

// localOnly leaves out what reaches other machines, secrets, and what only a server does.
func localOnly(server *rules.Server) {
	server.Hashes, server.Ledger, server.State, server.HashKeyFile = nil, "", "", ""
	server.XDSServer = ""
	server.Telemetry, server.StateDir, server.Audit, server.AuditKeys = "off", "", nil, ""
	server.Alerts, server.AlertWebhookFile, server.AlertSecretFile = "off", "", ""
}

// configOf completes the configuration of an engine.
func (f *ruleFlags) configOf(s *System, warn func(string)) (c engine.Config, err error) {
	if f.config != "" && len(f.limits) > 0 {
		return c, program.Usagef("both --config and --limit are given; write the limit into %s", f.config)
	}
	c = engine.Config{Rules: f.config, Limits: f.limits, Stdin: s.In, Version: number(), Locate: locate,
		Envoy: newEnvoyService().limits.Source}
	c.Secret = func(setting, file string) (string, error) { return s.secret(serverSection+setting, file, warn) }
	if f.local {
		c.Secret = func(setting, file string) (string, error) {
			if setting != "hash_key_file" {
				return "", nil
			}
			return s.secret(serverSection+setting, file, warn)
		}
	}
	list, err := f.assignments(s)
	c.StoreGiven = slices.ContainsFunc(list, func(a assignment) bool {
		return a.path == "store" || a.path == "store.url"
	})
	c.Given = f.over(list)
	return c, err
}

// read reads --config.
func (f *ruleFlags) read(ctx context.Context, s *System, warn func(string)) (*engine.Engine, error) {
	c, err := f.configOf(s, warn)
	if err != nil {
		return nil, err
	}
	return engine.Read(ctx, c)
}

// moved says which setting an unknown flag is; "" if it is no setting. Commands without --set have no settings.
func moved(flags *pflag.FlagSet, flag string) string {
	if flags.Lookup("set") == nil {
		return ""
	}
	for _, setting := range rules.Settings() {
		if flagOf(setting.Path) == flag {
			return fmt.Sprintf("--%s is the setting server.%s: write it in the file of --config, or give "+
				"--set server.%[2]s=…", flag, setting.Path)
		}
	}
	return ""
}
