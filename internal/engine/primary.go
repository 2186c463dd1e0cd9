package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/filesource"
	"github.com/weirproject/weir/internal/ruleset/urlsource"
	"github.com/weirproject/weir/rules"
)

// A primary is the source of --config or --limit. Beside rules it may contain settings that the
// start needs, such as the store and the trusted proxies.
type primary struct {
	ruleset.Layer
	name   string // in messages
	file   *rules.File
	text   []byte // of a single file, until it is checked for warnings; nil for a directory, a URL and --limit
	linted string // revision of a file that was checked for warnings last; "": changes are not checked
	static bool   // it does not change
}

// open makes the primary source and reads it.
func (e *Engine) open(ctx context.Context) (*primary, error) {
	p := &primary{name: e.Rules, Layer: ruleset.Layer{Name: "config", AllowEmpty: e.AllowEmpty}}
	var err error
	switch {
	case len(e.Limits) > 0:
		p.Name, p.name = "limit", "--limit"
		p.file = limitRules(e.Limits, p.name)
		return p.fixed(), nil
	case e.Rules == "":
		p.Name, p.name, p.file = "none", "", &rules.File{}
		return p.fixed(), nil
	case IsURL(e.Rules):
		p.Source, err = urlsource.New(e.Rules, e.urlOptions()...)
	case e.Rules == "-" || IsPipe(e.Rules):
		p.name, p.text, err = ReadFile(e.Stdin, e.Rules)
		if err == nil {
			p.file, err = rules.Parse(p.name, p.text)
		}
		return p.fixed(), err
	default:
		p.Source, err = filesource.New(e.Rules, filesource.WithPoll(e.ConfigPoll), filesource.WithCompiler(e.compiler))
	}
	if err != nil {
		return nil, err
	}
	var revision string
	if p.file, revision, err = e.first(ctx, p.Source); err != nil {
		return nil, err
	}
	if !IsURL(e.Rules) && !IsDir(e.Rules) { // for the warnings of weir check
		_, p.text, _ = ReadFile(e.Stdin, e.Rules)
		p.linted = revision
	}
	return p, nil
}

// ReadOnce reads a directory, or a URL without waiting for it.
func ReadOnce(ctx context.Context, name string) (*rules.File, error) {
	e := &Engine{Config: Config{Rules: name}}
	e.Complete()
	e.StartWithin = 0
	p, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	return p.file, nil
}

func (e *Engine) urlOptions() []urlsource.Option {
	opts := []urlsource.Option{urlsource.WithInterval(e.ConfigPoll)}
	if e.ConfigToken != "" {
		opts = append(opts, urlsource.WithTokenFile(e.ConfigToken))
	}
	if e.ConfigPlainHTTP {
		opts = append(opts, urlsource.WithPlainHTTP())
	}
	return opts
}

func (p *primary) fixed() *primary {
	p.Source, p.static, p.AllowEmpty = ruleset.Fixed(p.file), true, true
	return p
}

// first reads a source for the first time. It waits for a URL that is down; a mistake in the rules
// and a missing file are returned at once.
func (e *Engine) first(ctx context.Context, from ruleset.Source) (file *rules.File, revision string, err error) {
	patient := IsURL(e.Rules) && e.StartWithin > 0
	if patient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.StartWithin)
		defer cancel()
	}
	defer from.Close()
	var last error
	for {
		n := from.Load(ctx, false)
		switch {
		case ctx.Err() != nil:
			last = cmp.Or(last, n.Err, ctx.Err())
			return nil, "", fmt.Errorf("%s could not be read within %v: %w", e.Rules, e.StartWithin, last)
		case n.Err == nil || n.Revision != "" || !patient:
			return n.File, n.Revision, e.missing(n.Err)
		}
		last = n.Err
		from.Wait(ctx)
	}
}

func (e *Engine) missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no such file: %s", e.Rules)
	}
	return err
}

// IsURL reports whether Config.Rules is a URL.
func IsURL(config string) bool { return strings.Contains(config, "://") }

// IsDir reports whether a path is a directory.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// IsPipe reports whether a path can be read only once, such as the shell's <(command).
func IsPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// ReadFile reads a rule file; - is stdin. It reads at most one byte more than
// rules.Parse accepts. shown is the name of the file in messages.
func ReadFile(stdin io.Reader, name string) (shown string, text []byte, err error) {
	in := stdin
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

// limitRules makes rules of Limits: "LIMIT" or "LIMIT per COMPONENT, …".
func limitRules(limits []string, name string) *rules.File {
	file := &rules.File{Name: name}
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
	return file
}

// ListOptions allow lists to use files next to the rule file. The standard input has no files next to it.
func ListOptions(name string) []rules.Option {
	if name == "-" || IsPipe(name) {
		return nil
	}
	return []rules.Option{rules.WithFiles(filesource.Lists(name))}
}
