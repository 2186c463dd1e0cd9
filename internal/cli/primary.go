package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	text   []byte // of a single file; nil for a directory, a URL and --limit
	static bool   // it does not change
}

// open makes the primary source and reads it.
func (f *sourceFlags) open(ctx context.Context, s *System) (*primary, error) {
	p := &primary{name: f.config, Layer: ruleset.Layer{Name: "config", AllowEmpty: f.allowEmpty}}
	var err error
	switch {
	case len(f.limits) > 0:
		p.Name, p.name = "limit", "--limit"
		p.file, err = quickRules(f.limits)
		return p.still(), err
	case f.config == "":
		p.Name, p.name, p.file = "none", "", &rules.File{}
		return p.still(), nil
	case isURL(f.config):
		p.Source, err = urlsource.New(f.config, f.urlOptions()...)
	case f.config == "-" || isPipe(f.config):
		p.name, p.text, err = readRules(s, f.config)
		if err == nil {
			p.file, err = rules.Parse(p.name, p.text, rules.WithSets())
		}
		return p.still(), err
	default:
		p.Source, err = filesource.New(f.config, filesource.WithPoll(f.poll), filesource.WithSets(),
			filesource.WithCompiler(f.compiler))
	}
	if err != nil {
		return nil, err
	}
	if p.file, err = f.first(ctx, p.Source); err != nil {
		return nil, err
	}
	if !isURL(f.config) && !isDir(f.config) { // for the warnings of weir check
		_, p.text, _ = readRules(s, f.config)
	}
	return p, nil
}

func (f *sourceFlags) urlOptions() []urlsource.Option {
	opts := []urlsource.Option{urlsource.WithInterval(f.poll)}
	if f.tokenFile != "" {
		opts = append(opts, urlsource.WithTokenFile(f.tokenFile))
	}
	return opts
}

func (p *primary) still() *primary {
	p.Source, p.static, p.AllowEmpty = staticSource{p.file}, true, true
	return p
}

// first reads a source for the first time. It waits for a URL that is down; a mistake in the rules
// and a missing file are returned at once.
func (f *sourceFlags) first(ctx context.Context, from ruleset.Source) (*rules.File, error) {
	patient := isURL(f.config) && f.wait > 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if patient {
		ctx, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	news, ended := make(chan ruleset.Update), make(chan error, 1)
	go func() { ended <- from.Run(ctx, news) }()
	var last error
	for {
		select {
		case n := <-news:
			if last = n.Err; last == nil || n.Revision != "" || !patient {
				cancel()
				<-ended
				return n.File, f.missing(last)
			}
		case err := <-ended:
			if last == nil {
				last = errors.Join(err, ctx.Err())
			}
			return nil, fmt.Errorf("%s could not be read within %v: %w", f.config, f.wait, last)
		}
	}
}

func (f *sourceFlags) missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no such file: %s", f.config)
	}
	return err
}

func isURL(config string) bool { return strings.Contains(config, "://") }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// isPipe reports whether a path can be read only once, such as the shell's <(command).
func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// A staticSource is a source of constant rules.
type staticSource struct{ file *rules.File }

// Run implements ruleset.Source.
func (s staticSource) Run(ctx context.Context, news chan<- ruleset.Update) error {
	news <- ruleset.Update{File: s.file, Revision: "start"}
	<-ctx.Done()
	return nil
}
