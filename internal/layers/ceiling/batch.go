package ceiling

import (
	"context"

	"github.com/weirproject/weir"
)

// batchStore is a store that decides batches.
type batchStore struct {
	store
	batcher weir.Batcher
}

// DecideBatch implements weir.Batcher. Its requests are checked against the buckets independently: requests for
// one key may together be granted more than has room.
func (c *batchStore) DecideBatch(ctx context.Context, requests []weir.Request) {
	rooms := c.rooms(requests)
	if rooms == nil {
		c.batcher.DecideBatch(ctx, requests)
		for i := range requests {
			c.note(&requests[i])
		}
		return
	}
	c.decideSome(ctx, requests, rooms)
}

// rooms returns how many of each request's times fit, or nil, without allocating, if all do.
func (c *batchStore) rooms(requests []weir.Request) (rooms []int64) {
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

// decideSome leaves out the requests without room, and reduces the times of those with too little.
func (c *batchStore) decideSome(ctx context.Context, requests []weir.Request, rooms []int64) {
	var some []weir.Request
	var places []int
	refused := false // the last request without Follows was refused
	for i := range requests {
		r := requests[i]
		if r.Follows && refused {
			if requests[i].Granted, requests[i].Err = 0, r.Check(); requests[i].Err == nil {
				requests[i].Err = weir.ErrNotAsked
			}
			continue
		}
		if !r.Follows {
			refused = rooms[i] == 0
		}
		if rooms[i] == 0 {
			c.refuseRequest(&requests[i])
			continue
		}
		if rooms[i] < r.Times {
			if r.Times = rooms[i]; r.Decisions != nil {
				r.Decisions = r.Decisions[:len(r.Claims)*int(r.Times)]
			}
		}
		some, places = append(some, r), append(places, i)
	}
	c.batcher.DecideBatch(ctx, some)
	for j, i := range places {
		r := &requests[i]
		r.Granted, r.Err = some[j].Granted, some[j].Err
		c.note(r)
		if rooms[i] < r.Times && r.Err == nil {
			c.cutRequest(r, int(rooms[i]))
		}
	}
}

// note counts what a request was granted.
func (c *batchStore) note(r *weir.Request) {
	if r.Err != nil || r.Granted == 0 {
		return
	}
	s := c.under(r.Claims)
	defer c.done(s)
	c.take(s, r.Claims, r.Granted)
}

// refuseRequest refuses a request without a call.
func (c *batchStore) refuseRequest(r *weir.Request) {
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
func (c *batchStore) cutRequest(r *weir.Request, room int) {
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
