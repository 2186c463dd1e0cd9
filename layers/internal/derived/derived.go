// Package derived keeps limits that are made of other limits: to make one takes longer than to
// decide by it.
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
	make  func(*weir.Limit) *weir.Limit
	kept  atomic.Pointer[sync.Map] // *weir.Limit: *weir.Limit
	count atomic.Int64
}

// New keeps what make makes, also where that is nil.
func New(make func(*weir.Limit) *weir.Limit) *Limits {
	l := &Limits{make: make}
	l.kept.Store(new(sync.Map))
	return l
}

// Of is the one made of limit. Of what is no limit it is nil: a store will say so.
func (l *Limits) Of(limit *weir.Limit) *weir.Limit {
	if made, ok := l.kept.Load().Load(limit); ok {
		return made.(*weir.Limit)
	}
	if limit == nil || limit.Algorithm() == 0 {
		return nil
	}
	made := l.make(limit)
	if l.count.Add(1) > most {
		l.kept.Store(new(sync.Map))
		l.count.Store(1)
	}
	kept, _ := l.kept.Load().LoadOrStore(limit, made)
	return kept.(*weir.Limit)
}
