package memstore

import (
	"context"

	"github.com/weirproject/weir"
)

// A Local limits keys in this process alone: a limiter of one or several limits on its own store. Errors that a
// program cannot handle are refusals. Make one with NewLocal; it is safe for concurrent use.
type Local struct{ limiter *weir.Limiter }

// NewLocal makes a Local, with room for as many keys as New has. It panics if a limit is wrong, since programs write
// limits as constants.
func NewLocal(specs ...weir.Spec) *Local {
	limiter, err := weir.New(New(), "local", specs...)
	if err != nil {
		panic(err)
	}
	return &Local{limiter}
}

// Allow reports whether one unit of each limit is left for key, and takes it. Without a key to tell callers apart, use
// any constant. It is false for a key that no store takes: an empty one, or one longer than weir.MaxKey.
func (l *Local) Allow(key string) bool {
	answer, err := l.limiter.Allow(context.Background(), key)
	return err == nil && answer.Allowed
}

// Wait waits until one unit is granted: see weir.Limiter.WaitN.
func (l *Local) Wait(ctx context.Context, key string) error { return l.limiter.Wait(ctx, key) }

// Limiter is the limiter, for answers, costs and leases.
func (l *Local) Limiter() *weir.Limiter { return l.limiter }
