package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Expire wraps the Run of a source whose updates have exceptions: it removes each exception when it
// ends, whether or not the source can be read then. Until is by this process' clock (ExceptionsOf),
// so that neither differences nor adjustments of clocks matter.
func Expire(ctx context.Context, run func(context.Context, chan<- ruleset.Update) error,
	updates chan<- ruleset.Update) error {
	inner, ended := make(chan ruleset.Update), make(chan error, 1)
	go func() { ended <- run(ctx, inner) }()
	last := ruleset.Update{File: new(rules.File)} // the last good update, with all exceptions
	sent := ""                                    // the revision that was passed on
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

// maxWait is the wait if no exception ends.
const maxWait = time.Hour

// next returns the time until the next exception ends.
func next(file *rules.File, now time.Time) time.Duration {
	wait := maxWait
	for i := range file.Exceptions {
		wait = min(wait, file.Exceptions[i].Until.Sub(now))
	}
	return wait
}

func ended(e rules.Exception, now time.Time) bool { return !e.Until.After(now) }

// current returns an update without the exceptions that have ended.
func current(n ruleset.Update, now time.Time) ruleset.Update {
	left := slices.DeleteFunc(slices.Clone(n.File.Exceptions), func(e rules.Exception) bool { return ended(e, now) })
	n.Revision = Ended(n.Revision, n.File.Exceptions, now)
	if len(left) < len(n.File.Exceptions) {
		file := *n.File
		file.Exceptions = left
		n.File = &file
	}
	return n
}

// Ended appends the number of ended exceptions to a revision, such as "12, 2 ended": without them
// the set is another, and a Keeper does not compare sets of one revision.
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

// ExceptionsOf returns the exceptions among entries, with Until by this process' clock, including
// ended ones, which Expire removes. read is the time of the reading by this process' clock, now by
// the ledger's.
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
