package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// Expire is the Run of a source whose updates have exceptions: it runs it, and takes each
// exception out of what it said when its time is over, whether the source can be read then
// or not. The source gives Until by this process' own clock (ExceptionsOf): then neither
// clocks that differ nor clocks that are set matter.
func Expire(ctx context.Context, run func(context.Context, chan<- source.Update) error, updates chan<- source.Update) error {
	inner, ended := make(chan source.Update), make(chan error, 1)
	go func() { ended <- run(ctx, inner) }()
	last := source.Update{File: new(rules.File)} // the last good updates, with all exceptions
	sent := ""                                   // the revision of what was passed on of them
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case n := <-inner:
			if n.File != nil {
				now := time.Now()
				last = n
				last.Done = nil
				n = current(n, now)
				sent = n.Revision
				timer.Reset(next(n.File, now))
			}
			updates <- n
		case <-timer.C:
			now := time.Now()
			n := current(last, now)
			timer.Reset(next(n.File, now))
			if n.Revision != sent {
				sent = n.Revision
				updates <- n
			}
		}
	}
}

// maxWait is how long to wait where nothing ends.
const maxWait = time.Hour

// next is when the next of some exceptions ends that are not over.
func next(file *rules.File, now time.Time) time.Duration {
	wait := maxWait
	for i := range file.Exceptions {
		wait = min(wait, file.Exceptions[i].Until.Sub(now))
	}
	return wait
}

func ended(e rules.Exception, now time.Time) bool { return !e.Until.After(now) }

// current is updates without the exceptions that are over.
func current(n source.Update, now time.Time) source.Update {
	left := slices.DeleteFunc(slices.Clone(n.File.Exceptions), func(e rules.Exception) bool { return ended(e, now) })
	n.Revision = Ended(n.Revision, n.File.Exceptions, now)
	if len(left) < len(n.File.Exceptions) {
		file := *n.File
		file.Exceptions = left
		n.File = &file
	}
	return n
}

// Ended is a revision that says how many of its exceptions are over, such as "12, 2 ended":
// without them it is another set, and what has one revision is not looked at twice.
func Ended(revision string, list []rules.Exception, now time.Time) string {
	n := 0
	for _, e := range list {
		if ended(e, now) {
			n++
		}
	}
	revision, _, _ = strings.Cut(revision, ",")
	if n > 0 {
		revision = fmt.Sprintf("%s, %d ended", revision, n)
	}
	return revision
}

// ExceptionsOf are those of some entries, with Until by this process' clock, also those that
// are over: Expire takes them out. read is when they were read, by that clock, and now by the
// ledger's.
func ExceptionsOf(entries []Change, now, read time.Time) (list []rules.Exception) {
	for _, c := range entries {
		if c.Exception == nil {
			continue
		}
		e := c.Exception.Exception
		e.Until, e.Why = read.Add(c.Exception.Until.Sub(now)), c.Exception.Author.Why
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b rules.Exception) int {
		return cmp.Or(a.Until.Compare(b.Until), slices.Compare(a.Values, b.Values))
	})
	return list
}
