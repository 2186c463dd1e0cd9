// Package source is where rules come from while a server runs.
//
// A [Source] tells its whole set first and then each change of it, always whole: a file, a
// directory, a URL, a Redis. A [Keeper] listens to several, lays their rules over one
// another, compiles and checks the outcome as one law, and puts it in force with one call.
// A request sees the old law or the new one, never a mixture.
//
// Bad update change nothing: the last good law stays in force, and an [Event] says so.
// [Diff] says beforehand what a change does to the counts that are under way.
package source

import (
	"context"
	"errors"

	"github.com/weirproject/weir/rules"
)

// A Source tells of its rules.
//
// Run sends what the source says now, and then, until ctx is over, the whole of it again
// each time that it changed. Before the first set it may send a failure. When ctx is over
// it ends all that it started and returns; what it returns then is not looked at. It
// mends by itself what time can mend, such as a network that is gone; what it cannot mend
// it returns, and it is run again after a while. It is never run twice at once. Sends are
// received promptly as long as Run runs; they need not look at ctx.
type Source interface {
	Run(ctx context.Context, updates chan<- Update) error
}

// A Reloader is a source that can be told to look at once, without waiting for its own
// signs of change: on SIGHUP, or POST /-/reload. Reload waits until what it found is in
// force, and returns its revision, or says why it is not. It waits for a Run that has not
// begun, as long as ctx allows, and it may be called by many at once.
type Reloader interface {
	Reload(ctx context.Context) (revision string, err error)
}

// News is all that a source says at one time: a set of rules, or that there is none.
type Update struct {
	// File is the whole set, one that rules.Compile accepts by itself: what rules.Parse
	// returned, or what the source has checked. Nobody may change it any more. It is nil
	// where Err is set. (Files that do not compile are refused too, but good ones that came
	// just before them, and were not tried yet, are then forgotten.)
	File *rules.File
	// Err says why there is no set: the text has mistakes, or it cannot be read at all.
	Err error
	// Revision is what the source calls what it read, such as a hash of the text: equal for
	// equal sets. Bad update without one mean that the source cannot be read: it is down.
	Revision string
	// Warning is what the owner should know although the rules are good; nil: nothing.
	Warning error
	// LeftOut is how many rules are not in force as the source has them now, because something is
	// wrong with them alone: Warning lists them.
	LeftOut int
	// Done, if not nil, is called once: with nil when this update, or what the source said
	// after it, is in force, or with why it is not. It must not block.
	Done func(error)
}

func (n *Update) finish(err error) {
	if n.Done != nil {
		n.Done(err)
	}
}

// ErrEmpty is (wrapped) why update without rules are refused where there were some: see
// Layer.AllowEmpty.
var ErrEmpty = errors.New("it has no rules any more")

// A Layer is a source and its place among others: a later one's rules replace those of the
// same name of earlier ones.
type Layer struct {
	Name   string // what events call it, unique
	Source Source
	// AllowEmpty believes a source that has no rules any more. Otherwise its last rules stay
	// in force: a file cut short and a database that was flushed look alike.
	AllowEmpty bool
}
