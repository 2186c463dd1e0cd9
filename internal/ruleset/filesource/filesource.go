// Package filesource reads rules from a file, or from all files of a directory, and again after each
// change.
//
// It watches directories, not files: editors replace a file by a new one, and Kubernetes changes a
// link (..data) on the path of a mounted file. It watches every directory and link on the path, so
// it does not matter which one is replaced. Changes that no watch reports, such as those made by
// another machine on a network file system, are found by reading everything every 30 seconds. Only
// the content counts: a file that was touched has not changed.
//
// Files of values that lists name (see rules.WithFiles) are read and watched like the rules. They,
// and the targets of links to them, must be in the directory of the file that names them, or below.
//
// A file that is written in place can be read half-written. Errors right after a change are
// therefore confirmed by a second reading. But half a file may be a valid one with fewer rules; the
// only protection is to write a new file beside it and rename it.
package filesource

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Delays: until a change seems finished, but at most maxQuiet; before the second reading of an
// error; between readings without a sign of a change.
const (
	quietTime  = 20 * time.Millisecond
	maxQuiet   = 200 * time.Millisecond
	secondLook = 100 * time.Millisecond
	pollTime   = 30 * time.Second
)

// A Source is a file or a directory of rules. It is a ruleset.Source.
type Source struct {
	path     string
	poll     time.Duration
	disk     disk
	compiler *rules.Compiler
	notify   func() (*notifier, error)

	cache     cache
	seen      ruleset.Update // the result of the last texts
	last      ruleset.Update // the result of the last Load
	watch     *watch         // nil: there is none
	lists     []string       // named by the rules
	again     bool           // lists were read before they were watched
	unwatched error          // why changes are found by polling alone; nil: they are not
}

// An Option changes how a Source works.
type Option func(*Source)

// WithPoll sets the interval at which everything is read without a sign of a change, 100 ms to 24 h,
// instead of 30 seconds.
func WithPoll(every time.Duration) Option { return func(s *Source) { s.poll = every } }

// WithCompiler shares a compiler with others, such as the ruleset.Manager, which then need not compile the rules again.
// The default is a compiler of this source alone.
func WithCompiler(c *rules.Compiler) Option { return func(s *Source) { s.compiler = c } }

// WithFormat has parse make the rules of all files of a directory and of its folders, in the order of their paths. It
// leaves out files and folders with names that begin with two dots, which are behind a mounted ConfigMap, and unless
// dots is set, with one.
func WithFormat(dots bool, parse func([]Text) (*rules.File, error)) Option {
	named := func(name string) bool {
		return !strings.HasPrefix(name, "..") && (dots || !strings.HasPrefix(name, "."))
	}
	return func(s *Source) { s.disk.format = format{named, parse} }
}

// A Text is the content of a file.
type Text struct {
	Name string // in errors
	Body []byte
}

// New makes a source of the rules in the file path. If path is a directory, all files in it that end
// in .yaml or .yml, and do not begin with a dot, are one rule set, in the order of their names; a
// rule or field in two of them is a mistake. The path is examined at each reading, not here.
func New(path string, opts ...Option) (*Source, error) {
	if path == "" {
		return nil, &weir.InputError{Field: "path", Given: path, Allowed: "a file or a directory"}
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("filesource: %w", err)
	}
	s := &Source{path: whole, poll: pollTime, cache: make(cache), notify: newNotifier, disk: disk{name: path}}
	for _, opt := range opts {
		opt(s)
	}
	if s.compiler == nil {
		s.compiler = rules.NewCompiler()
	}
	if s.poll < 100*time.Millisecond || s.poll > 24*time.Hour {
		return nil, &weir.InputError{Field: "poll", Given: s.poll, Allowed: "100ms to 24h"}
	}
	return s, nil
}

// Load implements ruleset.Source. An error is confirmed by a second reading, except on a reload: its
// caller knows that the files are complete.
func (s *Source) Load(ctx context.Context, reload bool) ruleset.Update {
	before := s.last
	n := s.look()
	if n.Err != nil && !reload && (before.Err == nil || n.Revision != before.Revision) {
		select {
		case <-time.After(secondLook):
		case <-ctx.Done():
		}
		n = s.look()
	}
	s.last = n
	return n
}

// look reads everything. It sets watches first, so that a change during the reading is an event.
// Lists that are named for the first time were read before they were watched, so they are read once
// more.
func (s *Source) look() ruleset.Update {
	if s.watch == nil && s.unwatched == nil {
		n, err := s.notify()
		if s.watch = (&watch{notifier: n, format: s.disk.format}); err != nil {
			s.watch = nil
			s.warn(err)
		}
	}
	s.follow()
	n := s.read()
	s.again = false
	if lists := slices.Sorted(maps.Keys(s.cache.lists())); !slices.Equal(lists, s.lists) {
		s.lists, s.again = lists, true
		s.follow()
	}
	n.Warning = s.unwatched
	return n
}

// follow updates the watches.
func (s *Source) follow() {
	if s.watch == nil {
		return
	}
	s.unwatched = nil
	if err := s.watch.follow(s.path, s.lists...); err != nil {
		s.warn(err)
	}
}

func (s *Source) warn(err error) {
	s.unwatched = fmt.Errorf("changes of %s are found by reading it every %v, not at once: "+
		"it cannot be watched: %w", s.disk.name, s.poll, err)
}

// read returns the current rules. A text that was read before is not parsed again.
func (s *Source) read() ruleset.Update {
	texts, err := s.disk.read(s.path)
	if err != nil {
		return ruleset.Update{Err: err}
	}
	if s.disk.format.parse != nil {
		return s.foreign(texts)
	}
	s.cache.fill(texts, s.compiler)
	lists := s.cache.lists()
	if len(lists) > 0 { // they may be newer than the text that names them
		if err := unchangedTexts(texts); err != nil {
			return ruleset.Update{Err: err}
		}
	}
	if revision := revisionOf(texts, lists); revision != s.seen.Revision {
		file, err := s.cache.parse(s.disk.name, texts, s.compiler)
		s.seen = ruleset.Update{File: file, Err: err, Revision: revision}
	}
	return s.seen
}

// foreign is read for files of another format.
func (s *Source) foreign(texts []text) ruleset.Update {
	revision := revisionOf(texts, nil)
	if revision == s.seen.Revision {
		return s.seen
	}
	list := make([]Text, len(texts))
	for i, t := range texts {
		list[i] = Text{t.name, t.body}
	}
	file, err := s.disk.format.parse(list)
	s.seen = ruleset.Update{File: file, Err: err, Revision: revision}
	return s.seen
}

// Wait implements ruleset.Source: it waits until changes seem finished, or for the next poll.
func (s *Source) Wait(ctx context.Context) {
	if s.again {
		return
	}
	w := s.watch
	if w == nil {
		w = &watch{notifier: new(notifier)} // reports nothing
	}
	timer := time.NewTimer(s.poll)
	defer timer.Stop()
	for since := (time.Time{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case e := <-w.events:
			if !w.concerns(e) {
				continue
			}
		case <-w.lost: // events were lost, so anything may have changed
		}
		if since.IsZero() {
			since = time.Now()
		}
		timer.Reset(max(0, min(quietTime, maxQuiet-time.Since(since))))
	}
}

// Close implements ruleset.Source.
func (s *Source) Close() {
	if s.watch != nil {
		s.watch.close()
	}
	s.watch, s.unwatched, s.lists = nil, nil, nil
}
