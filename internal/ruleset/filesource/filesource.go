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
	"time"

	"github.com/fsnotify/fsnotify"
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

// A Source is a file or a directory of rules. It is a ruleset.Source and a ruleset.Reloader.
type Source struct {
	path    string
	poll    time.Duration
	reloads ruleset.ReloadQueue
	disk    disk
	parse   []rules.Option
	cache   cache          // owned by Run
	seen    ruleset.Update // the result of the last texts
	notify  func() (*notifier, error)

	compiler *rules.Compiler
}

// An Option changes how a Source works.
type Option func(*Source)

// WithPoll sets the interval at which everything is read without a sign of a change, 100 ms to 24 h,
// instead of 30 seconds.
func WithPoll(every time.Duration) Option { return func(s *Source) { s.poll = every } }

// WithSets accepts lists that name sets in Redis (rules.WithSets). It is for programs that read
// these sets with redissource.Sets: a set that is not read is an empty list.
func WithSets() Option { return func(s *Source) { s.parse = append(s.parse, rules.WithSets()) } }

// WithCompiler shares a compiler with others, such as the ruleset.Keeper, which then need not compile
// the rules again. The default is a compiler of its own.
func WithCompiler(c *rules.Compiler) Option { return func(s *Source) { s.compiler = c } }

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
	s := &Source{path: whole, poll: pollTime, reloads: ruleset.NewReloadQueue(), cache: make(cache), notify: newNotifier}
	s.disk.name = path
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

// Reload reads at once, and waits until the rules are in force: see ruleset.Reloader. It does not
// confirm errors by a second reading: the caller knows that the files are complete.
func (s *Source) Reload(ctx context.Context) (revision string, err error) {
	return s.reloads.Reload(ctx)
}

// Run sends the rules, and again after each change: see ruleset.Source.
func (s *Source) Run(ctx context.Context, updates chan<- ruleset.Update) error {
	r := &reader{Source: s, ctx: ctx, updates: updates, due: time.NewTimer(0)}
	defer r.due.Stop()
	var events <-chan fsnotify.Event
	var lost <-chan error
	if n, err := s.notify(); err == nil {
		defer n.close()
		r.watch, events, lost = &watch{notifier: n}, n.events, n.lost
	} else {
		r.warnUnwatched(err)
	}
	tick := time.NewTicker(s.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if r.watch.concerns(e) {
				r.changed()
			}
		case <-lost: // events were lost, so anything may have changed
			r.changed()
		case <-r.due.C:
			r.look(nil)
		case <-tick.C:
			r.look(nil)
		case c := <-s.reloads.Requests():
			r.look(s.reloads.Drain(c))
		}
	}
}

// A reader is the state of one Run.
type reader struct {
	*Source
	ctx     context.Context
	updates chan<- ruleset.Update
	watch   *watch   // nil: there is none
	lists   []string // named by the rules

	due     *time.Timer    // the next reading
	since   time.Time      // the first change since the last reading; zero: none
	again   bool           // the next reading is the second one of an error
	last    ruleset.Update // sent last
	sent    bool
	warning error // for the next update
	warned  bool
}

// changed schedules a reading for the time when the changes seem finished.
func (r *reader) changed() {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	r.due.Reset(max(0, min(quietTime, maxQuiet-now.Sub(r.since))))
}

// warnUnwatched warns, once, that changes are found by polling only.
func (r *reader) warnUnwatched(err error) {
	if !r.warned {
		r.warned = true
		r.warning = fmt.Errorf("changes of %s are found by reading it every %v, not at once: "+
			"it cannot be watched: %w", r.disk.name, r.poll, err)
	}
}

// look reads everything, and sends it if it has changed or has waiters. It sets watches first, so
// that a change during the reading is an event.
func (r *reader) look(waiters []ruleset.Waiter) {
	r.since = time.Time{}
	r.follow()
	n := r.read()
	r.rewatch()
	same := r.sent && n.Revision == r.last.Revision && (n.Err == nil) == (r.last.Err == nil)
	if len(waiters) == 0 && same {
		r.again = false
		return
	}
	if len(waiters) == 0 && n.Err != nil && !r.again {
		r.again = true
		r.due.Reset(secondLook)
		return
	}
	r.again = false
	r.send(n, waiters)
}

// follow updates the watches.
func (r *reader) follow() {
	if r.watch == nil {
		return
	}
	if err := r.watch.follow(r.path, r.lists...); err != nil {
		r.warnUnwatched(err)
	}
}

// rewatch watches lists that are named for the first time. They were read before they were watched,
// so they are read once more.
func (r *reader) rewatch() {
	lists := slices.Sorted(maps.Keys(r.cache.lists()))
	if slices.Equal(lists, r.lists) {
		return
	}
	r.lists = lists
	r.follow()
	r.due.Reset(0)
}

// read returns the current rules. A text that was read before is not parsed again.
func (r *reader) read() ruleset.Update {
	texts, err := r.disk.read(r.path)
	if err != nil {
		return ruleset.Update{Err: err}
	}
	r.cache.fill(texts, r.compiler, r.parse...)
	lists := r.cache.lists()
	if len(lists) > 0 { // they may be newer than the text that names them
		if err := unchangedTexts(texts); err != nil {
			return ruleset.Update{Err: err}
		}
	}
	revision := revisionOf(texts, lists)
	if revision != r.seen.Revision {
		file, err := r.cache.parse(r.disk.name, texts, r.compiler)
		r.seen = ruleset.Update{File: file, Err: err, Revision: revision}
	}
	return r.seen
}

func (r *reader) send(n ruleset.Update, waiters []ruleset.Waiter) {
	r.last, r.sent = n, true
	n.Warning, r.warning = r.warning, nil
	n.Done = ruleset.Answer(waiters, n.Revision)
	select {
	case r.updates <- n:
	case <-r.ctx.Done():
		n.Done(context.Cause(r.ctx))
	}
}
