package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisslot"
)

const (
	// batchKeys is the most keys that a script decides: Redis serves no other client meanwhile.
	batchKeys = 64
	// batchClaims is the most claims of a request that shares a script with others: a shape has
	// room for so many letters. Beside more claims the cost of a call is small.
	batchClaims = 8

	plainShape    = uint64(plainLetter)
	rationalShape = uint64(rationalLetter)
)

// packedKind is the kind with a batch step for requests of a shape; nil for other shapes. A batch step reads all
// keys with one command.
func packedKind(shape uint64) *kind {
	switch shape {
	case plainShape:
		return &plainKind
	case rationalShape:
		return &rationalKind
	}
	return nil
}

// unpacked is the shape of requests that the batch step of packedKind cannot decide.
func unpacked(shape uint64) uint64 {
	switch shape {
	case plainShape:
		return uint64(bucketLetter)
	case rationalShape:
		return uint64(partsLetter)
	}
	return shape
}

// batch is the requests of one DecideBatch, reused.
type batch struct {
	arguments // of which the words are the keys of all requests
	entries   []entry
	seen      map[string]int // the last entry with a key
	repeats   bool           // a key stands in more than one entry
	wait      sync.WaitGroup
}

// entry is a request that passed its checks.
type entry struct {
	*weir.Request
	// shape is the letters of its claims' kinds. Requests of one shape share scripts; 0 shares with no other request.
	shape uint64
	slot  uint16 // 0 but in a Cluster
	keys  int    // where its keys are among the batch's
}

// DecideBatch implements weir.Batcher. Requests whose limits are of the same algorithms are decided together, 64 keys
// in one script call; calls are made at the same time. In a Cluster only requests of one slot share a call. Where
// requests share a key, calls wait for each other as far as the order of those requests needs it.
//
// An error of a call is the error of each of its requests; an error of a key fails its request alone.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	if len(requests) == 1 {
		s.decideOne(ctx, &requests[0])
		return
	}
	b := s.batches.Get().(*batch)
	defer s.batches.Put(b)
	defer b.empty()
	s.enter(b, requests)
	for rest := b.entries; len(rest) > 0; {
		n, ordered := len(rest), false
		if b.repeats {
			n, ordered = b.wave(rest)
		}
		s.decideWave(ctx, b, rest[:n], ordered)
		rest = rest[n:]
	}
}

// decideWave decides entries. Entries of different shapes share no key. Entries of one shape that share a key are in
// order: within a call, and if ordered from call to call.
func (s *Store) decideWave(ctx context.Context, b *batch, entries []entry, ordered bool) {
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.shape, b.shape), cmp.Compare(a.once(), b.once()))
	})
	for rest := entries; len(rest) > 0; {
		n := together(rest)
		chunk := rest[:n]
		rest = rest[n:]
		if ordered || len(rest) == 0 {
			s.decideChunk(ctx, chunk, b.words, ordered)
			continue
		}
		b.wait.Go(func() { s.decideChunk(ctx, chunk, b.words, false) })
	}
	b.wait.Wait()
}

// wave counts the leading entries that share no key with an earlier entry of another shape, and reports whether any
// two of them share a key.
func (b *batch) wave(entries []entry) (n int, ordered bool) {
	clear(b.seen)
	for i := range entries {
		e := &entries[i]
		for _, key := range b.words[e.keys:][:len(e.Claims)] {
			if other, again := b.seen[key]; again {
				ordered = true
				if o := &entries[other]; e.shape == 0 || o.shape != e.shape || o.once() != e.once() {
					return i, ordered
				}
			}
			b.seen[key] = i
		}
	}
	return len(entries), ordered
}

func (b *batch) empty() {
	clear(b.entries)
	clear(b.seen)
	b.entries, b.repeats = b.entries[:0], false
	b.arguments.empty()
}

// enter checks the requests and finds requests that may be decided together.
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
		if e.shape = shapeOf(e.Request); s.clocks.behind() {
			e.shape = unpacked(e.shape)
		}
		if s.conn.Cluster() {
			e.place(b.words[e.keys:][:len(e.Claims)])
		}
		b.note(i)
	}
}

func (s *Store) checkRequest(r *weir.Request) bool {
	r.Granted, r.Err = 0, weir.ErrClosed
	if !s.closed.Load() {
		r.Err = r.Check()
	}
	return r.Err == nil
}

// once is 1 for a request with times 1; scripts decide the others first.
func (e *entry) once() int {
	if e.Times == 1 {
		return 1
	}
	return 0
}

// note finds the keys that more than one entry has. The batch step of a packedKind reads all keys
// before it writes, so it is not for them.
func (b *batch) note(i int) {
	e := &b.entries[i]
	for _, key := range b.words[e.keys:][:len(e.Claims)] {
		other, again := b.seen[key]
		b.seen[key] = i
		if !again {
			continue
		}
		b.repeats = true
		for _, one := range []*entry{e, &b.entries[other]} {
			one.shape = unpacked(one.shape)
		}
	}
}

// place finds the slot of a request's keys. A request with keys in several slots is decided alone.
func (e *entry) place(keys []string) {
	e.slot = redisslot.Of(keys[0])
	for _, key := range keys[1:] {
		if redisslot.Of(key) != e.slot {
			e.shape = 0
		}
	}
}

func shapeOf(r *weir.Request) (shape uint64) {
	if len(r.Claims) > batchClaims {
		return 0
	}
	if shape = packedShape(r); shape != 0 {
		return shape
	}
	for i := range r.Claims {
		shape = shape<<8 | uint64(kindOf(r.Claims[i].Limit).letter)
	}
	return shape
}

// packedShape is the shape of a request that the batch step of a packedKind decides, or 0.
func packedShape(r *weir.Request) uint64 {
	c := &r.Claims[0]
	if len(r.Claims) != 1 || r.Times == 0 || c.Cost == 0 || c.Cost > c.Limit.Most() {
		return 0
	}
	switch kindOf(c.Limit) {
	case &bucketKind:
		return plainShape
	case &partsKind:
		return rationalShape
	}
	return 0
}

// together is how many of the sorted entries, from the first on, are one call.
func together(entries []entry) int {
	first, n := &entries[0], 1
	most := batchKeys / len(first.Claims)
	for first.shape != 0 && n < min(most, len(entries)) {
		if e := &entries[n]; e.shape != first.shape || e.slot != first.slot {
			break
		}
		n++
	}
	return n
}

func (s *Store) decideChunk(ctx context.Context, chunk []entry, keys []string, ordered bool) {
	if len(chunk) == 1 {
		s.decideOne(ctx, chunk[0].Request)
		return
	}
	s.decideAlike(ctx, chunk, keys, ordered)
}

// decideOne decides one request.
func (s *Store) decideOne(ctx context.Context, r *weir.Request) {
	if s.checkRequest(r) {
		c := callOf(r)
		r.Granted, r.Err = s.decide(ctx, &c)
	}
}

// decideEach decides requests separately, at the same time unless ordered.
func (s *Store) decideEach(ctx context.Context, entries []entry, ordered bool) {
	if len(entries) == 0 {
		return
	}
	var wait sync.WaitGroup
	for _, e := range entries {
		if ordered {
			s.decideOne(ctx, e.Request)
			continue
		}
		wait.Go(func() { s.decideOne(ctx, e.Request) })
	}
	wait.Wait()
}
