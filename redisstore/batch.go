package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/weirproject/weir"
)

const (
	// batchKeys is how many keys a script decides at most: Redis serves nobody else meanwhile.
	batchKeys = 64
	// batchClaims is how many claims a request may have to be decided with others in one
	// script: as many letters as a shape has room for. A call is little beside more of them.
	batchClaims = 8

	plainShape  = uint64(plainLetter)
	bucketShape = uint64(bucketLetter)
)

// batch is the requests of one DecideBatch, reused.
type batch struct {
	arguments // of which the words are the keys of all requests
	entries   []entry
	seen      map[string]struct{}
	wait      sync.WaitGroup
}

// entry is a request that was found well made.
type entry struct {
	*weir.Request
	// shape is the letters of its claims' kinds. Requests of one shape share scripts; 0
	// stands by itself.
	shape uint64
	slot  uint16 // 0 but in a Cluster
	keys  int    // where its keys are among the batch's
}

// DecideBatch implements weir.Batcher. Requests whose limits are of the same algorithms are
// decided together, 64 keys in one script call; calls are made at the same time. In a
// Cluster only those of one slot share a call.
//
// An error of a call is every request's of it; what is wrong with a key is the error of its
// request alone.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	if len(requests) == 1 {
		s.decideOne(ctx, &requests[0])
		return
	}
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	defer b.empty()
	s.enter(b, requests)
	slices.SortFunc(b.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.shape, b.shape))
	})
	for rest := b.entries; len(rest) > 0; {
		n := together(rest)
		chunk := rest[:n]
		if rest = rest[n:]; len(rest) == 0 {
			s.decideChunk(ctx, chunk, b.words)
			break
		}
		b.wait.Go(func() { s.decideChunk(ctx, chunk, b.words) })
	}
	b.wait.Wait()
}

func (b *batch) empty() {
	clear(b.entries)
	clear(b.seen)
	b.entries = b.entries[:0]
	b.arguments.empty()
}

// enter checks the requests and finds out which may be decided together.
func (s *Store) enter(b *batch, requests []weir.Request) {
	for i := range requests {
		if r := &requests[i]; s.checkRequest(r) {
			b.entries = append(b.entries, entry{Request: r, keys: len(b.ends)})
			for i := range r.Claims {
				s.addKey(&b.arguments, &r.Claims[i])
			}
		}
	}
	b.cut()
	for i := range b.entries {
		e := &b.entries[i]
		e.shape = shapeOf(e.Request)
		if s.conn.Cluster() {
			e.place(b.words[e.keys:][:len(e.Claims)])
		}
		if e.shape == plainShape {
			b.first(e)
		}
	}
}

func (s *Store) checkRequest(r *weir.Request) bool {
	r.Granted, r.Err = 0, weir.ErrClosed
	if !s.closed.Load() {
		r.Err = r.Check()
	}
	return r.Err == nil
}

// first leaves only the first of a key to the script that reads all keys before it writes.
func (b *batch) first(e *entry) {
	key := b.words[e.keys]
	if _, again := b.seen[key]; again {
		e.shape = bucketShape
	}
	b.seen[key] = struct{}{}
}

// place finds the slot of a request's keys. Of several, it stands by itself.
func (e *entry) place(keys []string) {
	e.slot = Slot(keys[0])
	for _, key := range keys[1:] {
		if Slot(key) != e.slot {
			e.shape = 0
		}
	}
}

func shapeOf(r *weir.Request) (shape uint64) {
	if len(r.Claims) > batchClaims {
		return 0
	}
	if isPlain(r) {
		return plainShape
	}
	for i := range r.Claims {
		shape = shape<<8 | uint64(kindOf(r.Claims[i].Limit).letter)
	}
	return shape
}

// isPlain reports whether a request is one that the batch step of kind plain decides.
func isPlain(r *weir.Request) bool {
	c := &r.Claims[0]
	return len(r.Claims) == 1 && r.Times > 0 && kindOfTake(c.Limit) == &plainKind && c.Cost > 0 && c.Cost <= c.Limit.Most()
}

// together is how many of the sorted entries, from the first on, are one call.
func together(entries []entry) int {
	first, n := &entries[0], 1
	most := batchKeys / len(first.Claims)
	for first.shape != 0 && n < min(most, len(entries)) && entries[n].shape == first.shape && entries[n].slot == first.slot {
		n++
	}
	return n
}

func (s *Store) decideChunk(ctx context.Context, chunk []entry, keys []string) {
	if len(chunk) == 1 {
		s.decideOne(ctx, chunk[0].Request)
		return
	}
	s.decideAlike(ctx, chunk, keys)
}

// decideOne decides a request by itself.
func (s *Store) decideOne(ctx context.Context, r *weir.Request) {
	if !s.checkRequest(r) {
		return
	}
	c := callOf(r)
	c.op = opTimes
	if r.Times == 1 {
		c.op = opTake
	}
	if !s.oneSlot(r.Claims) {
		r.Granted, r.Err = s.decideSlots(ctx, &c)
		return
	}
	s.run(ctx, &c)
	r.Granted, r.Err = c.granted, c.err
}

// decideEach decides requests by themselves, at the same time.
func (s *Store) decideEach(ctx context.Context, entries []entry) {
	if len(entries) == 0 {
		return
	}
	var wait sync.WaitGroup
	for _, e := range entries {
		wait.Go(func() { s.decideOne(ctx, e.Request) })
	}
	wait.Wait()
}
