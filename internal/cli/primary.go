package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
	"github.com/weirproject/weir/rules/source/filesource"
	"github.com/weirproject/weir/rules/source/urlsource"
)

// A primary is the source that may say, beside rules, where limits are counted and whom to
// believe: what a start needs.
type primary struct {
	source.Layer
	name   string // as people call it
	file   *rules.File
	text   []byte // of a file that is not a directory and no URL; nil: it is none
	static bool   // it does not change
}

// open makes the primary source and reads it.
func (f *sourceFlags) open(ctx context.Context, s *System) (*primary, error) {
	p := &primary{name: f.config, Layer: source.Layer{Name: "config", AllowEmpty: f.allowEmpty}}
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
		p.Source, err = filesource.New(f.config, filesource.WithPoll(f.poll), filesource.WithSets(), filesource.WithCompiler(f.compiler))
	}
	if err != nil {
		return nil, err
	}
	if p.file, err = f.first(ctx, p.Source); err != nil {
		return nil, err
	}
	if !isURL(f.config) && !isDir(f.config) { // for what weir check would warn of
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

// first is what a source says first. What is down may come up in time; what is wrong is told
// at once, and so is a file that is not there, which no start should wait for.
func (f *sourceFlags) first(ctx context.Context, from source.Source) (*rules.File, error) {
	patient := isURL(f.config) && f.wait > 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if patient {
		ctx, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	news, ended := make(chan source.News), make(chan error, 1)
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
		return fmt.Errorf("there is no file %s", f.config)
	}
	return err
}

func isURL(config string) bool { return strings.Contains(config, "://") }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// isPipe reports whether a path can be read only once, such as one that a shell made of
// <(command).
func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// A still is a source of rules that do not change.
type staticSource struct{ file *rules.File }

// Run implements source.Source.
func (s staticSource) Run(ctx context.Context, news chan<- source.News) error {
	news <- source.News{File: s.file, Revision: "start"}
	<-ctx.Done()
	return nil
}
