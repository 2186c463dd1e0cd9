package ruleset

import (
	"context"
	"fmt"
	"sync"
)

// A Follower loads a source at first, after each change, and on request.
type Follower struct {
	source  Source
	deliver func(Update, func(error))

	mu      sync.Mutex
	waiting []chan<- error
	hurry   context.CancelFunc // ends the wait for a change; nil: none is under way
}

// Follow makes a follower. It calls deliver with each update that differs from the one before, or
// was requested. deliver must call done (if non-nil) once: with nil when the update or a later one
// is in force, or with the reason why it is not.
func Follow(source Source, deliver func(n Update, done func(error))) *Follower {
	return &Follower{source: source, deliver: deliver}
}

// Run runs until ctx is done, and closes the source then.
func (f *Follower) Run(ctx context.Context) {
	defer f.source.Close()
	var last *Update
	for {
		waiting := f.take()
		var n Update
		if ctx.Err() == nil {
			n = f.source.Load(ctx, len(waiting) > 0)
		}
		if ctx.Err() != nil { // an error would be the shutdown's
			answer(waiting)(context.Cause(ctx))
			return
		}
		switch {
		case len(waiting) > 0:
			f.deliver(n, answer(waiting))
		case last == nil || !n.same(last):
			f.deliver(n, nil)
		}
		last = &n
		f.wait(ctx)
	}
}

// wait returns when the source may have changed, or a reload is requested.
func (f *Follower) wait(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.hurry = cancel
	requested := len(f.waiting) > 0
	f.mu.Unlock()
	if !requested {
		f.source.Wait(ctx)
	}
}

func (f *Follower) take() []chan<- error {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.waiting
	f.waiting, f.hurry = nil, nil
	return waiting
}

func answer(waiting []chan<- error) func(error) {
	return func(err error) {
		for _, c := range waiting {
			c <- err
		}
	}
}

// Reload has the source read now, and waits until the rules found are in force. It returns the
// reason if they are not. Requests that wait at the same time share one reading. It is safe for
// concurrent use.
func (f *Follower) Reload(ctx context.Context) error {
	answers := make(chan error, 1)
	f.mu.Lock()
	f.waiting = append(f.waiting, answers)
	if f.hurry != nil {
		f.hurry()
	}
	f.mu.Unlock()
	select {
	case err := <-answers:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the source was not read in time: %w", context.Cause(ctx))
	}
}
