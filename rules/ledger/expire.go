package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// Expire is the Run of a source whose news have exceptions: it runs it, and takes each
// exception out of what it said when its time is over, whether the source can be read then
// or not. The source gives Until by this process' own clock, such as time.Now plus what is
// left: then neither clocks that differ nor clocks that are set matter.
func Expire(ctx context.Context, run func(context.Context, chan<- source.News) error, news chan<- source.News) error {
	inner, ended := make(chan source.News), make(chan error, 1)
	go func() { ended <- run(ctx, inner) }()
	var last source.News // the last good news
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case n := <-inner:
			if n.File != nil {
				last = n
				last.Done = nil
				n = alive(n)
				timer.Reset(next(last.File))
			}
			news <- n
		case <-timer.C:
			if next(last.File) <= 0 {
				last = alive(last)
				news <- last
			}
			timer.Reset(next(last.File))
		}
	}
}

// idle is how long to wait where nothing ends.
const idle = time.Hour

// next is when the next exception ends.
func next(file *rules.File) time.Duration {
	wait := idle
	if file != nil {
		for i := range file.Exceptions {
			wait = min(wait, time.Until(file.Exceptions[i].Until))
		}
	}
	return wait
}

// alive is news without the exceptions that are over. It says so in the revision, since it
// is another set.
func alive(n source.News) source.News {
	over := func(e rules.Exception) bool { return time.Until(e.Until) <= 0 }
	left := slices.DeleteFunc(slices.Clone(n.File.Exceptions), over)
	gone := len(n.File.Exceptions) - len(left)
	if gone == 0 {
		return n
	}
	file := *n.File
	file.Exceptions = left
	n.File, n.Revision = &file, fmt.Sprintf("%s, %d ended", n.Revision, gone)
	return n
}

// InForce are the exceptions of some entries that are not over, with Until by this
// process' clock. read is when they were read, by that clock, and now by the ledger's.
func InForce(entries []Change, now, read time.Time) (list []rules.Exception) {
	for _, c := range entries {
		if c.Exception == nil || !c.Exception.Until.After(now) {
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
