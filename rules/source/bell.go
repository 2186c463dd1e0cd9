package source

import (
	"context"
	"fmt"
)

// A Bell has a source look at once and brings back what came of it: most of a [Reloader].
// Whoever rings waits in Ring; Run receives from Rings, gathers all that ring meanwhile
// with Callers, looks once, and sends news whose Done is Answer.
type Bell struct{ rings chan Caller }

// A Caller waits for an answer. Each is answered once, which never blocks.
type Caller chan<- outcome

type outcome struct {
	revision string
	err      error
}

// NewBell makes a bell.
func NewBell() Bell { return Bell{make(chan Caller)} }

// Ring waits until it is heard and answered, or ctx is over.
func (b Bell) Ring(ctx context.Context) (revision string, err error) {
	answers := make(chan outcome, 1)
	select {
	case b.rings <- answers:
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

// Rings is for Run to receive from.
func (b Bell) Rings() <-chan Caller { return b.rings }

// Callers are all that ring already, with the first of them: one look answers them all.
func (b Bell) Callers(first Caller) []Caller {
	all := []Caller{first}
	for {
		select {
		case c := <-b.rings:
			all = append(all, c)
		default:
			return all
		}
	}
}

// Answer makes the Done of news that callers wait for.
func Answer(callers []Caller, revision string) func(error) {
	return func(err error) {
		for _, c := range callers {
			c <- outcome{revision, err}
		}
	}
}
