package source

import (
	"context"
	"fmt"
)

// A ReloadQueue has a source look at once and brings back what came of it: most of a [Reloader].
// Whoever requests waits in Reload; Run receives from Requests, gathers all that ring meanwhile
// with Drain, looks once, and sends update whose Done is Answer.
type ReloadQueue struct{ requests chan Waiter }

// A Waiter waits for an answer. Each is answered once, which never blocks.
type Waiter chan<- outcome

type outcome struct {
	revision string
	err      error
}

// NewReloadQueue makes a bell.
func NewReloadQueue() ReloadQueue { return ReloadQueue{make(chan Waiter)} }

// Reload waits until it is heard and answered, or ctx is over.
func (b ReloadQueue) Reload(ctx context.Context) (revision string, err error) {
	answers := make(chan outcome, 1)
	select {
	case b.requests <- answers:
	case <-ctx.Done():
		return "", fmt.Errorf("the source is not running: %w", context.Cause(ctx))
	}
	select {
	case a := <-answers:
		return a.revision, a.err
	case <-ctx.Done():
		return "", fmt.Errorf("the source did not finish in time: %w", context.Cause(ctx))
	}
}

// Requests is for Run to receive from.
func (b ReloadQueue) Requests() <-chan Waiter { return b.requests }

// Drain are all that ring already, with the first of them: one look answers them all.
func (b ReloadQueue) Drain(first Waiter) []Waiter {
	all := []Waiter{first}
	for {
		select {
		case c := <-b.requests:
			all = append(all, c)
		default:
			return all
		}
	}
}

// Answer makes the Done of update that callers wait for.
func Answer(callers []Waiter, revision string) func(error) {
	return func(err error) {
		for _, c := range callers {
			c <- outcome{revision, err}
		}
	}
}
