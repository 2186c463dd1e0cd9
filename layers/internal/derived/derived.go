// Package derived keeps limits that are made of other limits and a number: to make one takes
// longer than to decide by it.
package derived

import (
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir"
)

// most is how many are kept; when there are more, all are made anew, as they are asked for.
// Rules that were replaced leave theirs behind, and nobody says which.
const most = 1 << 16

// Limits are limits by those that they are made of. They are safe for concurrent use.
type Limits struct {
	make  func(limit *weir.Limit, by float64) *weir.Limit
	kept  atomic.Pointer[sync.Map] // *weir.Limit: *one
	count atomic.Int64
}

type one struct {
	by    float64
	limit *weir.Limit
}

// New keeps what make makes, also where that is nil.
func New(make func(limit *weir.Limit, by float64) *weir.Limit) *Limits {
	l := &Limits{make: make}
	l.kept.Store(new(sync.Map))
	return l
}

// Of is the one made of limit by a number; it keeps the last of each limit. Of what is no limit
// it is nil: a store will say so.
func (l *Limits) Of(limit *weir.Limit, by float64) *weir.Limit {
	if kept, ok := l.kept.Load().Load(limit); ok && kept.(*one).by == by {
		return kept.(*one).limit
	}
	if limit == nil || limit.Algorithm() == 0 {
		return nil
	}
	made := &one{by, l.make(limit, by)}
	if _, again := l.kept.Load().Swap(limit, made); !again && l.count.Add(1) > most {
		l.kept.Store(new(sync.Map))
		l.count.Store(0)
	}
	return made.limit
}
