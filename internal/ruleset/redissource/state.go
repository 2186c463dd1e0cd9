package redissource

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/rules"
)

// A state is a layout of rules in Redis, and what was read of it. One goroutine at a time uses it;
// fetches run in another, one at a time.
type state interface {
	// all reports whether a message requires a fetch of everything.
	all(message string) bool
	// receive applies any other message, and reports whether it changed anything. Mistakes in the
	// message are in the next contents.
	receive(message string) bool
	// begin makes a fetch of everything.
	begin() fetch
	// take accepts the result of a fetch, or returns a *refusal.
	take(fetch) error
	// contents returns the rules in force. It reports mistakes of messages once.
	contents() contents
}

// A fetch reads everything.
type fetch interface {
	// run returns errors of the connection, or a *refusal.
	run(ctx context.Context, client rueidis.Client) error
}

// contents are the rules in force.
type contents struct {
	file     *rules.File
	revision string // equal for equal rules
	warning  error
	leftOut  int // rules that are not in force as they were read last
}

// A refusal is the reason for not accepting what was read over a good connection.
type refusal struct {
	revision string // of the refused contents
	err      error
}

func refuse(revision, format string, args ...any) *refusal {
	return &refusal{revision, fmt.Errorf(format, args...)}
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }
