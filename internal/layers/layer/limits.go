package layer

import (
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir"
)

// most bounds the cache. Beyond it the whole cache is dropped, because nothing reports which limits belong to
// replaced rules.
const most = 1 << 16

// Limits is a cache of limits that are computed from another limit and a number, because computing one takes longer
// than deciding with it. It is safe for concurrent use.
type Limits struct {
	make  func(limit *weir.Limit, by float64) *weir.Limit
	kept  atomic.Pointer[sync.Map] // *weir.Limit: *one
	count atomic.Int64
}

type one struct {
	by    float64
	limit *weir.Limit
}

// NewLimits returns a cache of the results of make, including nil.
func NewLimits(make func(limit *weir.Limit, by float64) *weir.Limit) *Limits {
	l := &Limits{make: make}
	l.kept.Store(new(sync.Map))
	return l
}

// Of returns the limit derived from limit and by. It caches the last one for each limit. For nil and the zero
// Limit it returns nil, and the store reports the error.
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
