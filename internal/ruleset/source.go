// Package ruleset keeps the rules of a running server up to date with their sources.
//
// A [Source] is loaded whenever it may have changed: a file, a directory, a URL, Redis. A [Manager]
// merges the files of several sources, compiles the result, and puts it in force with one call. A
// request sees the old rule set or the new one, never a mixture.
//
// A rule is in force after four steps: text, File, merged File, compiled Set. Each source is loaded by a separate
// goroutine, so that a slow one holds up no other; one goroutine does the rest.
//
// A source with an error does not change the rules: its last good rules stay in force, and an [Event] reports the
// error. [Diff] says, before a change is made, which counts it resets.
package ruleset

import (
	"context"
	"errors"

	"github.com/weirproject/weir/rules"
)

// A Source provides rules. Its methods are called by one goroutine at a time.
type Source interface {
	// Load returns the current rules, or the reason why there are no rules. It may return the result of the last call
	// if the rules have not changed. With reload it reads everything now, without waiting for a change to settle. It
	// ends early when ctx is done; the result is then ignored.
	Load(ctx context.Context, reload bool) Update
	// Wait returns when the rules may have changed since the last Load, when an attempt that failed
	// should be repeated, or when ctx is done.
	Wait(ctx context.Context)
	// Close ends everything that Load began, such as a connection. Load may be called again.
	Close()
}

// An Update is the state of a source at one time: its rules, or an error.
type Update struct {
	// File is the complete set, which rules.Compile accepts alone. It must not be changed after it was returned. It is
	// nil if Err is set.
	File *rules.File
	// Err is the reason why there is no set: the text has mistakes, or it cannot be read.
	Err error
	// Revision names the content, such as a hash of the text: equal for equal rules. (Exceptions may
	// differ under one revision.) An Update with Err and no Revision means that the source cannot be
	// read (Down).
	Revision string
	// Warning is a problem that the owner should know of although the rules are good, or nil.
	Warning error
	// LeftOut is the number of rules that are not in force as the source has them now, because each
	// has mistakes. Warning lists them.
	LeftOut int
}

// same reports whether two updates say the same.
func (n *Update) same(other *Update) bool {
	return n.File == other.File && n.Revision == other.Revision && n.LeftOut == other.LeftOut &&
		textOf(n.Err) == textOf(other.Err) && textOf(n.Warning) == textOf(other.Warning)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return "!" + err.Error()
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
	// Kept leaves the rules as they are, whatever the overlays of other layers say: operators' own.
	Kept bool
}

// Fixed is a source of rules that never change.
func Fixed(file *rules.File) Source { return fixed{file} }

type fixed struct{ file *rules.File }

func (f fixed) Load(context.Context, bool) Update { return Update{File: f.file, Revision: "start"} }
func (f fixed) Wait(ctx context.Context)          { <-ctx.Done() }
func (f fixed) Close()                            {}
