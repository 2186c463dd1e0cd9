package redisstore

import (
	"context"
	"sync"

	"github.com/weirproject/weir"
)

// DecideBatch implements weir.Batcher.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	var wait sync.WaitGroup
	for i := range requests {
		wait.Go(func() { s.decideOne(ctx, &requests[i]) })
	}
	wait.Wait()
}

// decideOne decides a request by itself.
func (s *Store) decideOne(ctx context.Context, r *weir.Request) {
	r.Granted = 0
	if s.closed.Load() {
		r.Err = weir.ErrClosed
		return
	}
	if r.Err = r.Check(); r.Err != nil {
		return
	}
	c := call{op: opTimes, claims: r.Claims, times: r.Times, decisions: r.Decisions, each: r.Decisions != nil}
	if r.Times == 1 {
		c.op = opTake
	}
	if s.oneSlot(r.Claims) {
		s.run(ctx, &c)
		r.Granted, r.Err = c.granted, c.err
		return
	}
	r.Granted, r.Err = s.decideSlots(ctx, &c)
}
