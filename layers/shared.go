package layers

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// This file has the common parts of the layers: batches that a layer passes on in part, limits derived from limits,
// hashes of claims, timeouts.

// timeoutOf returns the timeout of each call of a store, such as one of redisstore; 0 if the store has no timeout.
func timeoutOf(store weir.Store) time.Duration {
	if bounded, ok := store.(interface{ Timeout() time.Duration }); ok {
		return bounded.Timeout()
	}
	return 0
}

// A hashSeed hashes claims for the table of a layer, unpredictably to clients.
type hashSeed struct{ seed maphash.Seed }

// newHashSeed returns a random Seed.
func newHashSeed() hashSeed { return hashSeed{maphash.MakeSeed()} }

// state is the hash of a key under the name and algorithm of a limit, which are given by weir.Limit.Hash.
func (s hashSeed) state(limit uint64, key string) uint64 {
	return spread(maphash.String(s.seed, key) ^ limit)
}

// claim adds a claim to a hash of claims, which begins with 0.
func (s hashSeed) claim(hash uint64, key string, l *weir.Limit, cost, floor int64) uint64 {
	return spread((hash ^ maphash.String(s.seed, key) ^ l.Hash()) + uint64(cost) ^ uint64(floor)<<20)
}

// spread returns a hash with bits that each depend on all bits of the argument: tables take an index from a few of
// them.
func spread(combined uint64) uint64 {
	hi, lo := bits.Mul64(combined, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// A passedOn is the part of a batch that a layer passes on; it copies the answers back. Call one method for each
// request of the whole batch, in order, then Decide. It may be reused.
type passedOn struct {
	requests []weir.Request
	places   []int
	leader   leader // outcome of the last request without Follows
}

type leader uint8

const (
	leaderAsked leader = iota
	leaderGranted
	leaderRefused
)

// void answers a request that follows a refused one, and reports whether it did.
func (b *passedOn) void(r *weir.Request) bool {
	if !r.Follows || b.leader != leaderRefused {
		return false
	}
	if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
		r.Err = weir.ErrNotAsked
	}
	return true
}

// answered notes a request that the layer has answered.
func (b *passedOn) answered(r *weir.Request) {
	if r.Follows {
		return
	}
	b.leader = leaderGranted
	if r.Granted == 0 && r.Err == nil {
		b.leader = leaderRefused
	}
}

// late notes a request that the layer decides after the others. Requests that follow it are passed on regardless.
func (b *passedOn) late(r *weir.Request) {
	if !r.Follows {
		b.leader = leaderGranted
	}
}

// add passes on the request at an index of the whole batch, and returns the copy that is passed on.
func (b *passedOn) add(place int, r *weir.Request) *weir.Request {
	b.requests, b.places = append(b.requests, *r), append(b.places, place)
	last := &b.requests[len(b.requests)-1]
	if !r.Follows {
		b.leader = leaderAsked
	}
	last.Follows = r.Follows && b.leader == leaderAsked
	return last
}

// decide decides the added requests, and copies the answers into the whole batch.
func (b *passedOn) decide(ctx context.Context, next weir.Store, whole []weir.Request) {
	if len(b.requests) > 0 {
		decideBatch(ctx, next, b.requests)
	}
	for i, place := range b.places {
		whole[place].Granted, whole[place].Err = b.requests[i].Granted, b.requests[i].Err
	}
	clear(b.requests)
	b.requests, b.places, b.leader = b.requests[:0], b.places[:0], leaderAsked
}

// decideBatch decides a batch on any store, with or without weir.Batcher.
func decideBatch(ctx context.Context, next weir.Store, requests []weir.Request) {
	if batcher, ok := next.(weir.Batcher); ok {
		batcher.DecideBatch(ctx, requests)
		return
	}
	var b passedOn
	for i := range requests {
		r := &requests[i]
		if b.void(r) {
			continue
		}
		if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
			decideAlone(ctx, next, r)
		}
		b.answered(r)
	}
}

// decideAlone decides one request with times that are described one by one: without a Batcher they are decided one
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

// maxDerived bounds the cache. Beyond it the whole cache is dropped, because it is unknown which limits belong to
// replaced rules.
const maxDerived = 1 << 16

// derivedLimits is a cache of limits that are computed from another limit and a number, because computing one takes
// longer than deciding with it. It is safe for concurrent use.
type derivedLimits struct {
	make  func(limit *weir.Limit, by float64) *weir.Limit
	kept  atomic.Pointer[sync.Map] // *weir.Limit: *one
	count atomic.Int64
}

type derivedLimit struct {
	by    float64
	limit *weir.Limit
}

// newDerivedLimits returns a cache of the results of make, including nil.
func newDerivedLimits(make func(limit *weir.Limit, by float64) *weir.Limit) *derivedLimits {
	l := &derivedLimits{make: make}
	l.kept.Store(new(sync.Map))
	return l
}

// of returns the limit derived from limit and by. It caches the last one for each limit. For nil and the zero
// Limit it returns nil, and the store reports the error.
func (l *derivedLimits) of(limit *weir.Limit, by float64) *weir.Limit {
	if kept, ok := l.kept.Load().Load(limit); ok && kept.(*derivedLimit).by == by {
		return kept.(*derivedLimit).limit
	}
	if limit == nil || limit.Algorithm() == 0 {
		return nil
	}
	made := &derivedLimit{by, l.make(limit, by)}
	if _, again := l.kept.Load().Swap(limit, made); !again && l.count.Add(1) > maxDerived {
		l.kept.Store(new(sync.Map))
		l.count.Store(0)
	}
	return made.limit
}
