// Package filesource reads rules from a file, or from all files of a directory, and tells
// of each change.
//
// It watches directories, not files: editors put a new file in the place of the old one,
// and Kubernetes swaps a link (..data) that a mounted file leads through. Every directory
// and link on the way is watched, so it does not matter which of them is replaced. What no
// watch sees, such as a change made by another machine on a network's disk, is found by
// reading everything again every 30 seconds. What counts is the content: a file that was
// only touched is no updates.
//
// Files of values that lists name (see rules.WithFiles) are read and watched like the rules
// themselves: a change of one is a change of the rules. They are beside the file of rules
// that names them, or below, and so is what links lead to.
//
// A file that is written in place can be read when it is half written. What is wrong right
// after a change is therefore looked at a second time before it is sent. But half a file
// may be a good one with fewer rules; only a writer that puts a finished file in place (write
// a new one beside it, then rename it) is safe from that.
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
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// How long it waits: until a change seems finished, but never longer than most; before it
// looks a second time at what is wrong; and until it looks without being sent.
const (
	quietTime  = 20 * time.Millisecond
	maxQuiet   = 200 * time.Millisecond
	secondLook = 100 * time.Millisecond
	pollTime   = 30 * time.Second
)

// A Source is a file or a directory of rules. It is a source.Source and a source.Reloader.
type Source struct {
	path    string
	poll    time.Duration
	reloads source.ReloadQueue
	disk    disk
	parse   []rules.Option
	cache   cache         // Run's, as is
	seen    source.Update // what came of the last texts
	notify  func() (*notifier, error)

	compiler *rules.Compiler
}

// An Option changes how a Source works.
type Option func(*Source)

// WithPoll says how often all is read again although nothing was heard, 100 ms to 24 h,
// instead of every 30 seconds.
func WithPoll(every time.Duration) Option { return func(s *Source) { s.poll = every } }

// WithSets lets lists name sets in Redis (rules.WithSets). It is for programs that have these
// sets read, as redissource.Sets does: nobody is named by a set that is not.
func WithSets() Option { return func(s *Source) { s.parse = append(s.parse, rules.WithSets()) } }

// WithCompiler has the rules checked by a compiler that others use too, such as the
// source.Keeper: what was compiled here need not be compiled there. nil is one of its own.
func WithCompiler(c *rules.Compiler) Option { return func(s *Source) { s.compiler = c } }

// New makes a source of the rules in the file path. If it is a directory, all files in it
// that end in .yaml or .yml, and do not begin with a dot, are one law: in the order of their
// names, and what two of them say both is a mistake. What the path is, and whether it is
// there, is looked at when it is read.
func New(path string, opts ...Option) (*Source, error) {
	if path == "" {
		return nil, &weir.InputError{Field: "path", Given: path, Allowed: "a file or a directory"}
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("filesource: %w", err)
	}
	s := &Source{path: whole, poll: pollTime, reloads: source.NewReloadQueue(), cache: make(cache), notify: newNotifier}
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

// Reload looks at once, and waits until what is there is in force: see source.Reloader.
// Half-written files are not given a second look: the caller says that they are written.
func (s *Source) Reload(ctx context.Context) (revision string, err error) {
	return s.reloads.Reload(ctx)
}

// Run tells what is there, and then each change: see source.Source.
func (s *Source) Run(ctx context.Context, updates chan<- source.Update) error {
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
		case <-lost: // some events were, so anything may have changed
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

// A reader is one Run.
type reader struct {
	*Source
	ctx     context.Context
	updates chan<- source.Update
	watch   *watch   // nil: there is none
	lists   []string // that the rules name

	due     *time.Timer   // when it is looked at
	since   time.Time     // the first change that was not looked at; zero: there is none
	again   bool          // what is wrong is being given its second look
	last    source.Update // what was sent
	sent    bool
	warning error // to be sent with the next updates
	warned  bool
}

// changed waits until it is quiet.
func (r *reader) changed() {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	r.due.Reset(max(0, min(quietTime, maxQuiet-now.Sub(r.since))))
}

// warnUnwatched notes, once, that changes are found by polling only.
func (r *reader) warnUnwatched(err error) {
	if !r.warned {
		r.warned = true
		r.warning = fmt.Errorf("changes of %s are found by reading it every %v, not at once: it cannot be watched: %w", r.disk.name, r.poll, err)
	}
}

// look reads everything, and tells if it is updates or somebody waits for it. Watches are laid first:
// what changes during the reading is then an event.
func (r *reader) look(waiters []source.Waiter) {
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

// follow lays watches on what is read.
func (r *reader) follow() {
	if r.watch == nil {
		return
	}
	if err := r.watch.follow(r.path, r.lists...); err != nil {
		r.warnUnwatched(err)
	}
}

// rewatch watches lists that are named for the first time. They were read before they were
// watched, so they are read once more.
func (r *reader) rewatch() {
	lists := slices.Sorted(maps.Keys(r.cache.lists()))
	if slices.Equal(lists, r.lists) {
		return
	}
	r.lists = lists
	r.follow()
	r.due.Reset(0)
}

// read is what is there now. A text that was read before is not parsed again.
func (r *reader) read() source.Update {
	texts, err := r.disk.read(r.path)
	if err != nil {
		return source.Update{Err: err}
	}
	r.cache.fill(texts, r.compiler, r.parse...)
	lists := r.cache.lists()
	if len(lists) > 0 { // they may be newer than what names them
		if err := unchangedTexts(texts); err != nil {
			return source.Update{Err: err}
		}
	}
	revision := revisionOf(texts, lists)
	if revision != r.seen.Revision {
		file, err := r.cache.parse(r.disk.name, texts, r.compiler)
		r.seen = source.Update{File: file, Err: err, Revision: revision}
	}
	return r.seen
}

func (r *reader) send(n source.Update, waiters []source.Waiter) {
	r.last, r.sent = n, true
	n.Warning, r.warning = r.warning, nil
	n.Done = source.Answer(waiters, n.Revision)
	select {
	case r.updates <- n:
	case <-r.ctx.Done():
		n.Done(context.Cause(r.ctx))
	}
}
