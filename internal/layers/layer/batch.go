package layer

import (
	"context"

	"github.com/weirproject/weir"
)

// A Batch is the part of a batch that a layer passes on; it copies the answers back. Call one method for each request
// of the whole batch, in order, then Decide. It may be reused.
type Batch struct {
	requests []weir.Request
	places   []int
	leader   leader // outcome of the last request without Follows
}

type leader uint8

const (
	asked leader = iota
	granted
	refused
)

// Void answers a request that follows a refused one, and reports whether it did.
func (b *Batch) Void(r *weir.Request) bool {
	if !r.Follows || b.leader != refused {
		return false
	}
	if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
		r.Err = weir.ErrNotAsked
	}
	return true
}

// Answered notes a request that the layer has answered.
func (b *Batch) Answered(r *weir.Request) {
	if r.Follows {
		return
	}
	b.leader = granted
	if r.Granted == 0 && r.Err == nil {
		b.leader = refused
	}
}

// Late notes a request that the layer decides after the others. Requests that follow it are passed on regardless.
func (b *Batch) Late(r *weir.Request) {
	if !r.Follows {
		b.leader = granted
	}
}

// Add passes on the request at an index of the whole batch, and returns the copy that is passed on.
func (b *Batch) Add(place int, r *weir.Request) *weir.Request {
	b.requests, b.places = append(b.requests, *r), append(b.places, place)
	last := &b.requests[len(b.requests)-1]
	if !r.Follows {
		b.leader = asked
	}
	last.Follows = r.Follows && b.leader == asked
	return last
}

// Decide decides the added requests, and copies the answers into the whole batch.
func (b *Batch) Decide(ctx context.Context, next weir.Store, whole []weir.Request) {
	if len(b.requests) > 0 {
		DecideBatch(ctx, next, b.requests)
	}
	for i, place := range b.places {
		whole[place].Granted, whole[place].Err = b.requests[i].Granted, b.requests[i].Err
	}
	clear(b.requests)
	b.requests, b.places, b.leader = b.requests[:0], b.places[:0], asked
}

// DecideBatch decides a batch on any store, with or without weir.Batcher.
func DecideBatch(ctx context.Context, next weir.Store, requests []weir.Request) {
	if batcher, ok := next.(weir.Batcher); ok {
		batcher.DecideBatch(ctx, requests)
		return
	}
	var b Batch
	for i := range requests {
		r := &requests[i]
		if b.Void(r) {
			continue
		}
		if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
			decideAlone(ctx, next, r)
		}
		b.Answered(r)
	}
}

// decideAlone decides one request whose times are described one by one: without a Batcher they are decided one
// after the other.
func decideAlone(ctx context.Context, next weir.Store, r *weir.Request) {
	n := len(r.Claims)
	if r.Decisions == nil || r.Times <= 1 {
		r.Granted, r.Err = next.Decide(ctx, r.Claims, r.Times, r.Decisions)
		return
	}
	r.Granted = 0
	for rest := r.Decisions; len(rest) > 0; rest = rest[n:] {
		one, err := next.Decide(ctx, r.Claims, 1, rest[:n])
		r.Granted += one
		if err != nil {
			r.Err = err
			return
		}
	}
}
