package ceiling

import (
	"context"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

// DecideBatch implements weir.Batcher. Its requests are checked against the buckets independently: requests for
// one key may together be granted more than has room.
func (c *Ceiling) DecideBatch(ctx context.Context, requests []weir.Request) {
	rooms := c.rooms(requests)
	if rooms == nil {
		layer.DecideBatch(ctx, c.Store, requests)
		for i := range requests {
			c.note(&requests[i])
		}
		return
	}
	c.decideBatch(ctx, requests, rooms)
}

// rooms returns how many of each request's times fit, or nil, without allocating, if all do.
func (c *Ceiling) rooms(requests []weir.Request) (rooms []int64) {
	for i := range requests {
		r := &requests[i]
		s := c.under(r.Claims)
		room := c.room(s, r.Claims, r.Times)
		c.done(s)
		if room >= r.Times && room > 0 || r.Check() != nil {
			continue
		}
		if rooms == nil {
			rooms = make([]int64, len(requests))
			for j := range rooms {
				rooms[j] = weir.MaxUnits
			}
		}
		rooms[i] = room
	}
	return rooms
}

// decideBatch leaves out the requests without room, and reduces the times of those with too little.
func (c *Ceiling) decideBatch(ctx context.Context, requests []weir.Request, rooms []int64) {
	b := c.batches.Get().(*layer.Batch)
	defer c.batches.Put(b)
	for i := range requests {
		r := &requests[i]
		switch {
		case b.Void(r):
			rooms[i] = weir.MaxUnits
		case rooms[i] == 0:
			c.refuseRequest(r)
			b.Answered(r)
		default:
			passed := b.Add(i, r)
			if rooms[i] >= r.Times {
				continue
			}
			if passed.Times = rooms[i]; r.Decisions != nil {
				passed.Decisions = r.Decisions[:len(r.Claims)*int(passed.Times)]
			}
		}
	}
	b.Decide(ctx, c.Store, requests)
	for i := range requests {
		r := &requests[i]
		c.note(r)
		if room := rooms[i]; 0 < room && room < r.Times && r.Err == nil {
			c.cutRequest(r, int(room))
		}
	}
}

// note counts what a request was granted.
func (c *Ceiling) note(r *weir.Request) {
	if r.Err != nil || r.Granted == 0 {
		return
	}
	s := c.under(r.Claims)
	defer c.done(s)
	c.take(s, r.Claims, r.Granted)
}

// refuseRequest refuses a request without a call.
func (c *Ceiling) refuseRequest(r *weir.Request) {
	s := c.under(r.Claims)
	defer c.done(s)
	c.look(s)
	c.refused.Add(r.Times)
	if r.Granted, r.Err = 0, nil; r.Decisions != nil {
		s.fresh(r.Claims, r.Decisions[:len(r.Claims)])
		repeat(r.Decisions, len(r.Claims))
	}
}

// cutRequest describes those of a request's times that were not passed on.
func (c *Ceiling) cutRequest(r *weir.Request, room int) {
	full := r.Granted == int64(room)
	if full {
		c.refused.Add(r.Times - r.Granted)
	}
	if r.Decisions == nil {
		return
	}
	n := len(r.Claims)
	rest := r.Decisions[room*n:]
	copy(rest, r.Decisions[(room-1)*n:room*n])
	if full {
		s := c.under(r.Claims)
		defer c.done(s)
		c.cut(s, r.Claims, rest[:n])
	}
	repeat(rest, n)
}

// repeat fills decisions with copies of the first n.
func repeat(decisions []weir.Decision, n int) {
	for ; len(decisions) > n; decisions = decisions[n:] {
		copy(decisions[n:], decisions[:n])
	}
}
