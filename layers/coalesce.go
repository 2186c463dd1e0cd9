package layers

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisslot"
)

// The coalescer lets concurrent callers share calls of the store: callers with equal claims
// become one request with times = their number, and requests for different keys go in one batch.
//
// It has no timer. A caller that finds few calls under way calls the store itself, at once; the others wait
// until a call ends, and then share the next one.
//
// # Why it is exact
//
// The store decides each request at an instant between its sending and its answer. A batch is sealed before it is sent,
// so no caller joins a request that may have been decided already: that instant lies between call and return of every
// caller of the batch, as it would had each called the store alone. Deciding k equal requests one after the other at
// one instant grants the first g and refuses the rest, since a refusal changes no state; that is the meaning of times =
// k. The first caller gets the first grant: at one instant any order would be right, and this one is fair.
//
// Peeks, leases, several times at once, Charge, Refund and Reset pass straight through, past the waiting
// callers. They need no position among them: a waiting caller has no answer yet, so its instant may lie after
// a refund's that overtakes it; and a request made after a refund has returned is sent after it.

// coalescer is a weir.Store over another one.
//
// Its own errors, beyond the errors of the store below: if the context of a caller ends while it waits, the caller gets
// an error that wraps weir.ErrUnavailable and the context's error, and says whether the decision was never made,
// or is under way and may be charged. A panic of the store in a batch is an ErrUnavailable for each of its callers.
type coalescer struct {
	weir.Store // the next one
	seed       hashSeed
	timeout    time.Duration
	place      func([]weir.Claim) int // nil: by hash
	shards     []shard
	closed     atomic.Bool
}

// A coalesceConfig configures the layer.
type coalesceConfig struct {
	// Timeout bounds the whole wait of a caller. A batch is called with the rest of its callers' time; otherwise a
	// frozen store would hold them for its own timeout twice. 0 is the timeout of the store, if it has one, as
	// redisstore does, otherwise 24 hours.
	Timeout time.Duration
	// Cluster says that the store is a Redis Cluster. Callers are split into queues by ranges of slots: only callers of
	// one range share a call, so that a frozen server delays only its own. A call is for one slot anyway.
	Cluster bool
}

// clusterQueues is the number of queues of a Cluster.
const clusterQueues = 64

// queueOf is the queue of a decision in a Cluster, 0 to places − 1. Of several claims it takes the slot of the last,
// since many requests share the first ones, such as the claim of a whole site.
func queueOf(claims []weir.Claim) int {
	return int(redisslot.Of(claims[len(claims)-1].Key)) / (redisslot.Count / clusterQueues)
}

// unboundedTimeout is the timeout of a store without one.
const unboundedTimeout = 24 * time.Hour

// coresPerShard is the number of cores that share a shard. More shards mean less contention and smaller batches.
const coresPerShard = 4

// newCoalescer returns the layer over a store, which should be a weir.Batcher: otherwise callers wait in vain.
//
// A batch is decided in a context without the values of any caller's and with the deadline of coalesceConfig.Timeout
// only: next must bound its calls in time itself, as redisstore does. Closing the layer closes next.
func newCoalescer(next weir.Store, config coalesceConfig) *coalescer {
	s := coalescerOf(next, max(1, runtime.GOMAXPROCS(0)/coresPerShard))
	if config.Cluster {
		s.place, s.shards = queueOf, make([]shard, clusterQueues)
	}
	if config.Timeout > 0 {
		s.timeout = config.Timeout
	}
	return s
}

func coalescerOf(next weir.Store, shards int) *coalescer {
	limit := timeoutOf(next)
	if limit <= 0 {
		limit = unboundedTimeout
	}
	return &coalescer{Store: next, seed: newHashSeed(), timeout: limit, shards: make([]shard, shards)}
}

func (s *coalescer) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	switch {
	case s.closed.Load():
		return 0, weir.ErrClosed
	case times != 1:
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	// Checked here, because one wrong request would fail all callers of its batch.
	if err := weir.Check(claims, 1, decisions); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, unavailableError(notExecuted, err)
	}
	if anyLease(claims) {
		return s.Store.Decide(ctx, claims, 1, decisions)
	}
	return s.decide(ctx, claims, decisions)
}

// anyLease reports whether a claim has a lease: its id is unique to its caller.
func anyLease(claims []weir.Claim) bool {
	for i := range claims {
		if claims[i].Lease != "" {
			return true
		}
	}
	return false
}

func (s *coalescer) decide(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) (int64, error) {
	hash := s.hash(claims)
	l := s.shard(hash, claims)
	l.mu.Lock()
	if s.closed.Load() { // again, under the lock: Close waits only for earlier callers
		l.mu.Unlock()
		return 0, weir.ErrClosed
	}
	if own := (callUnderWay{hash: hash, wide: len(claims) > maxSharedClaims}); l.free(own) {
		l.begin(own)
		l.mu.Unlock()
		defer s.end(l, own) // even if next panics: others may be waiting
		return s.Store.Decide(ctx, claims, 1, decisions)
	}
	waiter := l.join(hash, claims, decisions != nil)
	full := l.takeFull()
	l.mu.Unlock()
	if full != nil {
		go s.send(l, full)
	}
	return waiter.wait(ctx, decisions)
}

// shard returns the queue for claims; equal claims have the same one.
func (s *coalescer) shard(hash uint64, claims []weir.Claim) *shard {
	if s.place != nil {
		return &s.shards[s.place(claims)]
	}
	at, _ := bits.Mul64(hash, uint64(len(s.shards)))
	return &s.shards[at]
}

// hash is equal for equal claims, and unpredictable to clients.
func (s *coalescer) hash(claims []weir.Claim) (hash uint64) {
	for i := range claims {
		c := &claims[i]
		hash = s.seed.claim(hash, c.Key, c.Limit, c.Cost, c.Floor)
		if c.Member != "" {
			hash = s.seed.state(hash, c.Member)
		}
	}
	return hash
}

// send decides a batch, in a separate context: the end of a caller's would fail the others.
func (s *coalescer) send(l *shard, b *sharedBatch) {
	defer s.end(l, callUnderWay{batch: b})
	defer b.finish()
	ctx, stop := s.bound(b)
	defer stop()
	decideBatch(ctx, s.Store, b.requests)
	b.returned = true
}

// bound is the context of a batch. A deadline costs a timer, so it is set only if the callers have already
// waited for a considerable part of their time.
func (s *coalescer) bound(b *sharedBatch) (context.Context, context.CancelFunc) {
	part := s.timeout / 16
	if time.Since(b.opened) < part {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), b.opened.Add(s.timeout-part))
}

// end removes a call that has ended, and begins the next if callers wait.
func (s *coalescer) end(l *shard, t callUnderWay) {
	if t.batch != nil {
		// Let the callers that were just woken return first: it makes the batches of a hot key a third larger.
		runtime.Gosched()
	}
	l.mu.Lock()
	l.remove(t)
	next := l.take()
	l.mu.Unlock()
	if t.batch != nil {
		t.batch.release()
	}
	if next != nil {
		go s.send(l, next)
	}
}

// DecideBatch implements weir.Batcher. A batch passes straight through.
func (s *coalescer) DecideBatch(ctx context.Context, requests []weir.Request) {
	decideBatch(ctx, s.Store, requests)
}

// coalesceStats are counters since New, without the calls that pass straight through. Decisions by Requests is how much
// hot keys share, Requests by Trips how full batches are.
type coalesceStats struct {
	Decisions int64 // decisions for callers, sent to the store below
	Requests  int64 // requests that they became: equal ones are merged
	Trips     int64 // calls of the store, for single callers and batches
}

// Stats returns the counters.
func (s *coalescer) Stats() (sum coalesceStats) {
	for i := range s.shards {
		one := s.shards[i].counted()
		sum.Decisions += one.Decisions
		sum.Requests += one.Requests
		sum.Trips += one.Trips
	}
	return sum
}

// Close waits for the decisions that began before it, and closes the store below. Closing again has no effect.
func (s *coalescer) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	for i := range s.shards {
		s.shards[i].drain()
	}
	return s.Store.Close()
}

const (
	// enoughCalls is the number of calls under way that makes callers wait. With more, batches are small and
	// Redis is busy with calls instead of decisions; with fewer, isolated callers wait for each other.
	enoughCalls = 4

	// maxCalls bounds the calls under way while there are full batches, which gain no callers by waiting: over a
	// long round call, enoughCalls would not carry the load.
	maxCalls = 64

	// maxSharedClaims is the most claims of a request that waits for others: with more it shares no script of Redis,
	// and would pay for waiting alone. Callers with equal claims share its call all the same.
	maxSharedClaims = 8
)

// A shard is a queue of callers; callers with equal claims are in the same one. While callers wait, a call is
// under way, and its end sends them.
type shard struct {
	mu    sync.Mutex
	calls []callUnderWay // under way
	wide  int            // of the calls
	queue []*sharedBatch // waiting; the last is open, the others are full
	idle  chan struct{}
	stats coalesceStats
	_     [64]byte // its own cache line
}

// A callUnderWay is a call of the store under way: for one caller with claims of this hash, or for a batch.
type callUnderWay struct {
	hash  uint64
	wide  bool // more than maxShared claims: callers of other claims do not wait for it
	batch *sharedBatch
}

// free reports whether a caller may call the store itself: not while its claims are under way, because two
// calls at a time make the batches of a hot key a third smaller.
func (l *shard) free(own callUnderWay) bool {
	if !own.wide && l.shared() >= enoughCalls {
		return false
	}
	return !slices.ContainsFunc(l.calls, func(t callUnderWay) bool { return t.carries(own.hash) })
}

// shared is the number of calls under way with callers of other claims waiting for their end.
func (l *shard) shared() int { return len(l.calls) - l.wide }

func (t callUnderWay) carries(hash uint64) bool {
	if t.batch == nil {
		return t.hash == hash
	}
	group, _ := t.batch.find(hash, nil)
	return group >= 0
}

// begin also counts, which is nearly free under the mutex.
func (l *shard) begin(t callUnderWay) {
	l.calls = append(l.calls, t)
	if t.wide {
		l.wide++
	}
	l.stats.Trips++
	if t.batch == nil {
		l.stats.Decisions++
		l.stats.Requests++
		return
	}
	l.stats.Decisions += int64(t.batch.waiting)
	l.stats.Requests += int64(len(t.batch.requests))
}

func (l *shard) remove(t callUnderWay) {
	i := slices.Index(l.calls, t)
	l.calls = slices.Delete(l.calls, i, i+1)
	if t.wide {
		l.wide--
	}
	if len(l.calls) == 0 && len(l.queue) == 0 && l.idle != nil {
		close(l.idle)
	}
}

// join adds a caller to the last batch, or to a new one.
func (l *shard) join(hash uint64, claims []weir.Claim, wanted bool) waiter {
	if n := len(l.queue); n > 0 {
		if group, ticket, ok := l.queue[n-1].join(hash, claims, wanted); ok {
			return waiter{l, l.queue[n-1], group, ticket}
		}
	}
	b := newSharedBatch(time.Now())
	l.queue = append(l.queue, b)
	group, ticket, _ := b.join(hash, claims, wanted)
	return waiter{l, b, group, ticket}
}

// take begins the call of the oldest batch, unless too many calls are under way.
func (l *shard) take() *sharedBatch {
	most := enoughCalls
	if len(l.queue) > 1 {
		most = maxCalls
	}
	if len(l.queue) == 0 || l.shared() >= most {
		return nil
	}
	b := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	b.seal()
	l.begin(callUnderWay{batch: b})
	return b
}

// takeFull is take for a batch that gains no callers by waiting.
func (l *shard) takeFull() *sharedBatch {
	if len(l.queue) < 2 {
		return nil
	}
	return l.take()
}

// leave takes a caller out of a batch, unless it was sent.
func (l *shard) leave(at waiter) (wasWaiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := at.batch
	if b.sealed {
		return false
	}
	if b.remove(at.group, at.ticket); b.waiting == 0 {
		i := slices.Index(l.queue, b)
		l.queue = slices.Delete(l.queue, i, i+1)
		b.recycle()
	}
	return true
}

func (l *shard) counted() coalesceStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// drain waits until no call is under way. No callers may join any more.
func (l *shard) drain() {
	l.mu.Lock()
	idle := make(chan struct{})
	if l.idle = idle; len(l.calls) == 0 {
		close(idle)
	}
	l.mu.Unlock()
	<-idle
}

const (
	// maxBatchClaims bounds the claims of a batch: a script over more keys would block Redis for longer than others
	// should wait, and costs no less for each key.
	maxBatchClaims = 64

	// maxMerged bounds the callers of one request: any cost × times stays below 2^63.
	maxMerged = 1024
)

// A sharedBatch is callers that wait together, and their results. The shard's mutex guards it until it is sealed. Then
// it belongs to the sender, and after done is closed the callers may read it; the last one to release it
// returns it to the pool.
type sharedBatch struct {
	groups  []callerGroup
	index   [2 * maxBatchClaims]uint8 // hash table of 1 + the index in groups, 0: none
	claims  int
	waiting int
	opened  time.Time // when the first caller joined
	sealed  bool

	requests  []weir.Request
	decisions []weir.Decision // buffer of all requests
	returned  bool            // the store returned, did not panic
	done      chan struct{}
	holders   atomic.Int64
}

// A callerGroup is the callers with equal claims. Each has a ticket, numbered from 0.
type callerGroup struct {
	hash    uint64
	claims  []weir.Claim // a copy, because the first caller may leave first
	wanted  bool         // a caller wants decisions
	tickets int
	waiting int
	left    []uint64 // nil, or one bit for each ticket whose caller has left
	request int      // index in requests
}

var sharedBatches = sync.Pool{New: func() any { return new(sharedBatch) }}

func newSharedBatch(now time.Time) *sharedBatch {
	b := sharedBatches.Get().(*sharedBatch)
	b.done, b.opened = make(chan struct{}), now
	return b
}

// recycle keeps the memory, but no keys and no limits.
func (b *sharedBatch) recycle() {
	for i := range b.groups {
		g := &b.groups[i]
		clear(g.claims)
		*g = callerGroup{claims: g.claims[:0]}
	}
	clear(b.requests)
	if cap(b.decisions) > maxMerged {
		b.decisions = nil
	}
	*b = sharedBatch{groups: b.groups[:0], requests: b.requests[:0], decisions: b.decisions[:0]}
	sharedBatches.Put(b)
}

// find returns the group of claims, or −1 and the free place in the index. Without claims, the hash is compared
// alone.
func (b *sharedBatch) find(hash uint64, claims []weir.Claim) (group, place int) {
	for place = int(hash % uint64(len(b.index))); b.index[place] != 0; place = (place + 1) % len(b.index) {
		group = int(b.index[place]) - 1
		if g := &b.groups[group]; g.hash == hash && (claims == nil || sameClaims(g.claims, claims)) {
			return group, place
		}
	}
	return -1, place
}

// sameClaims compares limits by identity: after a reload, numbers may differ under one name.
func sameClaims(a, b []weir.Claim) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		same := a[i].Limit == b[i].Limit && a[i].Cost == b[i].Cost && a[i].Floor == b[i].Floor && a[i].Key == b[i].Key
		if !same || a[i].Member != b[i].Member || a[i].Weight != b[i].Weight {
			return false
		}
	}
	return true
}

// join adds a caller. ok is false if there is no room.
func (b *sharedBatch) join(hash uint64, claims []weir.Claim, wanted bool) (group, ticket int, ok bool) {
	group, place := b.find(hash, claims)
	if group < 0 {
		if b.claims+len(claims) > maxBatchClaims {
			return 0, 0, false
		}
		group = len(b.groups)
		b.open(hash, claims)
		b.index[place] = uint8(group + 1)
	}
	g := &b.groups[group]
	if g.tickets == maxMerged {
		return 0, 0, false
	}
	b.waiting++
	g.waiting++
	g.tickets++
	g.wanted = g.wanted || wanted
	return group, g.tickets - 1, true
}

// open adds a group, in recycled memory if there is some.
func (b *sharedBatch) open(hash uint64, claims []weir.Claim) {
	n := len(b.groups)
	if n == cap(b.groups) {
		b.groups = append(b.groups, callerGroup{})
	}
	b.groups = b.groups[:n+1]
	g := &b.groups[n]
	g.hash, g.claims = hash, append(g.claims, claims...)
	for i := range g.claims {
		c := &g.claims[i]
		c.Key, c.Member = strings.Clone(c.Key), strings.Clone(c.Member)
	}
	b.claims += len(claims)
}

// remove takes a caller out.
func (b *sharedBatch) remove(group, ticket int) {
	b.waiting--
	g := &b.groups[group]
	if g.waiting--; g.waiting == 0 {
		g.tickets, g.left = 0, nil
		return
	}
	if g.left == nil {
		g.left = make([]uint64, maxMerged/64)
	}
	g.left[ticket/64] |= 1 << (ticket % 64)
}

// place is the position of a ticket among the tickets that stayed.
func (g *callerGroup) place(ticket int) int {
	if g.left == nil {
		return ticket
	}
	place := ticket - bits.OnesCount64(g.left[ticket/64]&(1<<(ticket%64)-1))
	for _, word := range g.left[:ticket/64] {
		place -= bits.OnesCount64(word)
	}
	return place
}

// seal ends joining and leaving, and makes a request of each group.
func (b *sharedBatch) seal() {
	b.sealed = true
	b.holders.Store(int64(b.waiting) + 1) // and the sender
	n := b.wanted()
	if cap(b.decisions) < n {
		b.decisions = make([]weir.Decision, n)
	}
	free := b.decisions[:n]
	for i := range b.groups {
		g := &b.groups[i]
		if g.waiting == 0 {
			continue // times = 0 would be a peek
		}
		r := weir.Request{Claims: g.claims, Times: int64(g.waiting)}
		if g.wanted {
			n := g.waiting * len(g.claims)
			r.Decisions, free = free[:n:n], free[n:]
		}
		g.request = len(b.requests)
		b.requests = append(b.requests, r)
	}
}

// wanted counts the decisions that the requests have room for.
func (b *sharedBatch) wanted() (n int) {
	for i := range b.groups {
		if g := &b.groups[i]; g.wanted {
			n += g.waiting * len(g.claims)
		}
	}
	return n
}

// finish wakes the callers, also when the store panicked or its goroutine ended.
func (b *sharedBatch) finish() {
	if !b.returned {
		b.fail(recover())
	}
	close(b.done)
}

// fail turns a panic into the error of all callers. It has the stack, which no caller's stack shows.
func (b *sharedBatch) fail(panicked any) {
	err := fmt.Errorf("%w (%s): the store panicked: %v\n%s",
		weir.ErrUnavailable, perhapsExecuted, panicked, debug.Stack())
	for i := range b.requests {
		b.requests[i].Err = err
	}
}

// release drops one holder of a sealed batch.
func (b *sharedBatch) release() {
	if b.holders.Add(-1) == 0 {
		b.recycle()
	}
}

// Parts of the text of ErrUnavailable.
const (
	notExecuted     = "the call was not executed"
	perhapsExecuted = "it is unknown whether the call was executed"
)

func unavailableError(executed string, err error) error {
	return fmt.Errorf("%w (%s): %w", weir.ErrUnavailable, executed, err)
}

// A waiter is one caller's position in a batch.
type waiter struct {
	shard         *shard
	batch         *sharedBatch
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
		return 0, unavailableError(notExecuted, ctx.Err())
	}
	select {
	case <-at.batch.done: // decided meanwhile, perhaps charged
		return at.answer(decisions)
	default:
		at.batch.release()
		return 0, unavailableError(perhapsExecuted, ctx.Err())
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
