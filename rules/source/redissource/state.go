package redissource

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/rules"
)

// A state is how rules lie in Redis, and what is known of them. It is used by one goroutine
// at a time; only its readings run beside it, one at a time.
type state interface {
	// all reports whether a message asks for everything to be read.
	all(message string) bool
	// receive applies any other message, and reports whether it did. What was wrong with it is
	// announcedBefore with the next law.
	receive(message string) bool
	// begin makes a reading of everything that starts now.
	begin() fetch
	// take agrees with what was read, or returns a *refusal.
	take(fetch) error
	// law is what is in force, and announcedBefore of once.
	contents() contents
}

// A look is a reading of everything.
type fetch interface {
	// run reads. Its errors are those of the connection, but for a *refusal.
	run(ctx context.Context, client rueidis.Client) error
}

// A law is the rules that are in force.
type contents struct {
	file     *rules.File
	revision string // equal for equal rules
	warning  error
	leftOut  int // rules that are not in force as they were read last
}

// A refusal says why what was read is not believed, although the connection is good.
type refusal struct {
	revision string // what is not believed is called so
	err      error
}

func refuse(revision, format string, args ...any) *refusal {
	return &refusal{revision, fmt.Errorf(format, args...)}
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }
