package lease

import (
	"context"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

// batch is the reused memory of one DecideBatch.
type batch struct {
	hashes []uint64 // of requests that may earn a lease; otherwise 0
	late   []int    // indexes of requests that wait for a refill
	rest   layer.Batch
}

// DecideBatch implements weir.Batcher. Requests with a lease are paid from it. The others go to the store below
// together, then those whose lease has to be refilled.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	for i := range requests {
		s.place(b, i, &requests[i])
	}
	b.rest.Decide(ctx, s.Store, requests)
	for i := range requests {
		if r := &requests[i]; b.hashes[i] != 0 && r.Err == nil && r.Granted > 0 {
			s.warm(b.hashes[i], r.Claims, r.Decisions)
		}
	}
	for _, i := range b.late {
		r := &requests[i]
		r.Granted, r.Err = s.Decide(ctx, r.Claims, r.Times, r.Decisions)
	}
	b.hashes, b.late = b.hashes[:0], b.late[:0]
}

// place pays for a request, or queues it.
func (s *Store) place(b *batch, i int, r *weir.Request) {
	b.hashes = append(b.hashes, 0)
	if b.rest.Void(r) {
		return
	}
	hash, ok := s.hash(r.Claims)
	if !ok || r.Times != 1 || len(r.Decisions) != len(r.Claims) {
		b.rest.Add(i, r)
		return
	}
	e := s.find(hash, r.Claims)
	switch {
	case e == nil:
		b.hashes[i] = hash
		b.rest.Add(i, r)
	case e.spend(s.now(), r.Decisions):
		r.Granted, r.Err = 1, nil
		b.rest.Answered(r)
	default:
		b.late = append(b.late, i)
		b.rest.Late(r)
	}
}
