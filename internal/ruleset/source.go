// Package ruleset reads the rules of a running server from their sources.
//
// A [Source] sends its complete set of rules, at first and after each change: a file, a directory, a
// URL, Redis. A [Keeper] receives from several sources, merges their files, compiles the result, and
// puts it in force with one call. A request sees the old rule set or the new one, never a mixture.
//
// An update with an error changes nothing: the last good rule set stays in force, and an [Event]
// reports the error. [Diff] says, before a change is made, which counts it resets.
package ruleset

import (
	"context"
	"errors"

	"github.com/weirproject/weir/rules"
)

// A Source provides rules.
//
// Run sends the current rules and then, until ctx is done, all rules again after each change. Before
// the first set it may send an error. When ctx is done, Run stops everything that it started and
// returns; the result is then ignored. Run retries temporary failures, such as a lost connection,
// itself. It returns other errors, and is called again after a pause. Run is never called
// concurrently. The receiver accepts updates promptly as long as Run runs, so sends need not select
// on ctx.
type Source interface {
	Run(ctx context.Context, updates chan<- Update) error
}

// A Reloader is a source that can read its rules on request, without waiting for a sign of a change:
// on SIGHUP, or POST /-/reload. Reload waits until the rules it found are in force, and returns
// their revision, or the reason why they are not. It waits for a Run that has not begun until ctx is
// done. It is safe for concurrent use.
type Reloader interface {
	Reload(ctx context.Context) (revision string, err error)
}

// An Update is the state of a source at one time: its rules, or an error.
type Update struct {
	// File is the complete set, which rules.Compile accepts by itself. It must not be changed after
	// it was sent. It is nil if Err is set. (A file that does not compile is refused, but good files
	// that came just before it, and were not tried yet, are then dropped.)
	File *rules.File
	// Err is the reason why there is no set: the text has mistakes, or it cannot be read.
	Err error
	// Revision names the content, such as a hash of the text: equal for equal sets. An Update with
	// Err and no Revision means that the source cannot be read (Down).
	Revision string
	// Warning is a problem that the owner should know of although the rules are good, or nil.
	Warning error
	// LeftOut is the number of rules that are not in force as the source has them now, because each
	// has mistakes. Warning lists them.
	LeftOut int
	// Done, if non-nil, is called once: with nil when this update or a later one of the source is in
	// force, or with the reason why it is not. It must not block.
	Done func(error)
}

func (n *Update) finish(err error) {
	if n.Done != nil {
		n.Done(err)
	}
}

// ErrEmpty is the (wrapped) reason for refusing an empty set from a source that had rules: see
// Layer.AllowEmpty.
var ErrEmpty = errors.New("it has no rules any more")

// A Layer is a source and its position among the others: the rules of a later layer replace rules of
// the same name in earlier ones.
type Layer struct {
	Name   string // name in events, unique
	Source Source
	// AllowEmpty accepts an empty set from a source that had rules. Otherwise its last rules stay in
	// force, because a truncated file and a flushed database look the same.
	AllowEmpty bool
}
