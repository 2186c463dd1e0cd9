package coalesce

import (
	"context"
	"fmt"

	"github.com/weirproject/weir"
)

// Parts of the text of ErrUnavailable.
const (
	notExecuted     = "the call was not executed"
	perhapsExecuted = "it is unknown whether the call was executed"
)

func unavailable(executed string, err error) error {
	return fmt.Errorf("%w (%s): %w", weir.ErrUnavailable, executed, err)
}

// A waiter is one caller's position in a batch.
type waiter struct {
	shard         *shard
	batch         *batch
	group, ticket int
}

// wait returns when the batch is decided or the context has ended.
func (at waiter) wait(ctx context.Context, decisions []weir.Decision) (int64, error) {
	if ctx.Done() == nil { // a select would cost the callers of a hot key a fifth more
		<-at.batch.done
		return at.answer(decisions)
	}
	select {
	case <-at.batch.done:
		return at.answer(decisions)
	case <-ctx.Done():
	}
	if at.shard.leave(at) {
		return 0, unavailable(notExecuted, ctx.Err())
	}
	select {
	case <-at.batch.done: // decided meanwhile, perhaps charged
		return at.answer(decisions)
	default:
		at.batch.release()
		return 0, unavailable(perhapsExecuted, ctx.Err())
	}
}

// answer returns the caller's own part of the batch's results.
func (at waiter) answer(decisions []weir.Decision) (granted int64, err error) {
	g := &at.batch.groups[at.group]
	r := &at.batch.requests[g.request]
	place := g.place(at.ticket)
	if err = r.Err; err == nil {
		copy(decisions, r.Decisions[place*len(decisions):])
		granted = min(1, max(0, r.Granted-int64(place)))
	}
	at.batch.release()
	return granted, err
}
