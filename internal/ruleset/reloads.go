package ruleset

import (
	"context"
	"fmt"
)

// A ReloadQueue passes reload requests to Run and answers back: most of a [Reloader]. Callers wait
// in Reload. Run receives from Requests, collects all other waiting requests with Drain, reads once,
// and sends an update with Answer as Done.
type ReloadQueue struct{ requests chan Waiter }

// A Waiter is a caller that waits for an answer. It is answered once, which never blocks.
type Waiter chan<- outcome

type outcome struct {
	revision string
	err      error
}

// NewReloadQueue makes an empty queue.
func NewReloadQueue() ReloadQueue { return ReloadQueue{make(chan Waiter)} }

// Reload waits until Run has answered, or ctx is done.
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

// Requests is the channel that Run receives from.
func (b ReloadQueue) Requests() <-chan Waiter { return b.requests }

// Drain returns all waiting requests together with the first: one reading answers them all.
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

// Answer returns an Update.Done that answers waiters.
func Answer(callers []Waiter, revision string) func(error) {
	return func(err error) {
		for _, c := range callers {
			c <- outcome{revision, err}
		}
	}
}
