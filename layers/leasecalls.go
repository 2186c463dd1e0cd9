package layers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
)

// A leaseFlight is a call for a grant that several callers wait for.
type leaseFlight struct {
	times int64
	done  chan struct{}
	err   error // read after done
}

// join returns the call under way for the entry's next grant, or begins it. It returns nil where the caller
// should call the store itself, and an ended flight where a grant is there.
func (s *leaser) join(ctx context.Context, e *leaseEntry) *leaseFlight {
	now := s.now()
	e.seen.Store(now)
	if e.room.Load() < minLease {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.flight != nil {
		return e.flight
	}
	if e.gone {
		return nil
	}
	old := e.grant.Load()
	if old.live(now) {
		return s.landed
	}
	s.finish(e, old, now)
	n := s.size(e)
	if n < minLease {
		return nil
	}
	s.account(e, n)
	e.flight = &leaseFlight{times: n, done: make(chan struct{})}
	// In another goroutine, because the caller may leave while others wait.
	f, detached := e.flight, context.WithoutCancel(ctx)
	s.running.Go(func() { s.refill(detached, e, f, old) })
	return f
}

// finish learns from a grant that is over, and removes its spent requests from the accounts. An ended grant is
// left to the goroutine that ended it: its refund may be under way. Under Store.mu.
func (s *leaser) finish(e *leaseEntry, g *leaseGrant, now int64) {
	if g == nil || g.held == 0 || g.ended() {
		return
	}
	left := max(0, g.left.Load())
	e.learn(g, left, now)
	s.account(e, left-g.held)
	g.held = left
}

// refill is the goroutine of a flight. It gives back the rest of the old grant, if its time was over before it was used
// up, and takes the next.
func (s *leaser) refill(ctx context.Context, e *leaseEntry, f *leaseFlight, old *leaseGrant) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	f.err = s.retire(ctx, e, old)
	g := &leaseGrant{decisions: make([]weir.Decision, len(e.claims))}
	sent := s.now()
	if f.err == nil {
		g.size, f.err = s.Store.Decide(ctx, e.claims, f.times, g.decisions)
	}
	if f.err != nil {
		g.size = 0 // it may have been charged, but is never spent
	}
	g.land(e, sent, s.now())
	kept := s.land(e, f, g)
	close(f.done)
	if !kept {
		s.retireAlone(e, g) // Stats count a failure
	}
}

// land takes in the store's answer to the call that was sent at the given time.
func (g *leaseGrant) land(e *leaseEntry, sent, now int64) {
	g.landed, g.until = now, sent+int64(grantLasts(e.hold, e.claims, g.decisions))
	g.left.Store(g.size)
	for i := range g.decisions {
		g.delayed = g.delayed || g.decisions[i].Delay > 0
	}
}

// restHolds is how many holds a key stays without grants after one arrived too late to be spent: the store is slower
// than leases may be held.
const restHolds = 10

// land puts a grant into its entry. It returns false if the entry was removed meanwhile.
func (s *leaser) land(e *leaseEntry, f *leaseFlight, g *leaseGrant) (kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.flight = nil
	s.account(e, g.size-f.times)
	g.held = g.size
	if f.err == nil {
		s.stats.Refills++
		s.stats.Taken += g.size
		e.room.Store(e.share(g.decisions))
	}
	if g.size > 0 && g.landed >= g.until {
		e.rests = g.landed + restHolds*int64(e.hold)
	}
	if !e.gone {
		e.grant.Store(g)
	}
	return !e.gone
}

// A unitState is where units are charged. Leases with other claims, costs or numbers may charge the same one.
type unitState struct {
	name      string
	algorithm weir.Algorithm
	key       string
}

// unitAccounts count the units of each state that the node holds or has asked for, over all leases. Units count
// until they are spent, or their refund has ended.
type unitAccounts map[unitState]int64

func unitStateOf(c *weir.Claim) unitState {
	return unitState{c.Limit.Name(), c.Limit.Algorithm(), c.Key}
}

// account adds n requests of an entry, possibly negative, to the node's holdings. Under Store.mu.
func (s *leaser) account(e *leaseEntry, n int64) {
	if n == 0 {
		return
	}
	for i := range e.claims {
		at := unitStateOf(&e.claims[i])
		if s.accounts[at] += n * e.claims[i].Cost; s.accounts[at] == 0 {
			delete(s.accounts, at)
		}
	}
}

// size is the number of requests for the next grant of an entry. Under Store.mu.
func (s *leaser) size(e *leaseEntry) int64 {
	n := min(e.want, e.room.Load())
	for i := 0; n >= minLease && i < len(e.claims); i++ {
		n = min(n, (e.shares[i].most-s.accounts[unitStateOf(&e.claims[i])])/e.claims[i].Cost)
	}
	return n
}

const (
	// sweepEvery is the longest time from the end of a grant until its refund begins.
	sweepEvery = 25 * time.Millisecond

	// maxReturns bounds the concurrent refunds. One after the other, refunds of 500 keys over a store that takes 5
	// ms would need 2.5 s, and their units are unusable meanwhile.
	maxReturns = 64
)

// sweep gives unused grants back in time and removes idle entries, while there are leases.
func (s *leaser) sweep() {
	for s.goOn() && pause.For(sweepEvery, s.stop) {
		s.sendBack(s.due())
	}
}

// sendBack gives back the grants of entries. While the store is unavailable only one is tried in each round and
// the others stay due; Close gives back the rest.
func (s *leaser) sendBack(due []*leaseEntry) {
	if len(due) == 0 || s.stopped() || s.retireAlone(due[0], due[0].grant.Load()) != nil {
		return
	}
	var failed atomic.Bool
	s.atOnce(due[1:], func(e *leaseEntry) {
		if !failed.Load() && !s.stopped() && s.retireAlone(e, e.grant.Load()) != nil {
			failed.Store(true)
		}
	})
}

// atOnce calls do for all entries, up to returns of them concurrently.
func (s *leaser) atOnce(entries []*leaseEntry, do func(*leaseEntry)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(maxReturns, len(entries)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(entries)); i = next.Add(1) - 1 {
				do(entries[i])
			}
		})
	}
	workers.Wait()
}

func (s *leaser) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// goOn reports whether there are leases; otherwise the sweeper ends.
func (s *leaser) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeping = s.stats.Leases > 0
	return s.sweeping
}

// due removes idle entries, and returns entries with a grant that is over but not used up.
func (s *leaser) due() (due []*leaseEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, e := range s.unlink(func(e *leaseEntry) bool { return e.idle(now) }) {
		s.release(e, e.grant.Load())
	}
	for i := range s.buckets {
		for e := s.buckets[i].Load(); e != nil; e = e.next.Load() {
			if g := e.grant.Load(); e.flight == nil && g != nil && now >= g.until && g.left.Load() > 0 {
				s.finish(e, g, now)
				due = append(due, e)
			}
		}
	}
	return due
}

// idle reports whether an entry holds no units and is seldom used. One that rests is kept: without its entry it
// would be leased again at once. Under Store.mu.
func (e *leaseEntry) idle(now int64) bool {
	if g := e.grant.Load(); e.flight != nil || now < e.rests || g != nil && g.left.Load() > 0 {
		return false
	}
	return e.want < minLease || now-e.seen.Load() > int64(e.hold)
}

// retireAlone is retire with a separate timeout.
func (s *leaser) retireAlone(e *leaseEntry, g *leaseGrant) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return s.retire(ctx, e, g)
}

// retire ends a grant and gives its remainder back. A failed refund is not repeated, because it may have
// been executed.
func (s *leaser) retire(ctx context.Context, e *leaseEntry, g *leaseGrant) (err error) {
	if g == nil {
		return nil
	}
	left, first := g.end()
	if !first { // the accounts are left alone: the refund may be under way
		return nil
	}
	if left > 0 {
		err = s.giveBack(ctx, e, g, left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(e, g)
	if err != nil {
		s.stats.Lost += left
	} else {
		s.stats.Returned += left
	}
	return err
}

// release removes a grant from the accounts. Under Store.mu.
func (s *leaser) release(e *leaseEntry, g *leaseGrant) {
	if g != nil {
		s.account(e, -g.held)
		g.held = 0
	}
}

// giveBack refunds n requests, each claim at the instant of its charge: one instant for all, unless they live
// on several nodes of a Redis Cluster, which have different clocks.
func (s *leaser) giveBack(ctx context.Context, e *leaseEntry, g *leaseGrant, n int64) error {
	claims, taken := s.charged(e, g, n)
	for len(claims) > 0 {
		same := 1
		for same < len(claims) && taken[same] == taken[0] {
			same++
		}
		if err := s.Store.Refund(ctx, claims[:same], taken[0], nil); err != nil {
			return err
		}
		claims, taken = claims[same:], taken[same:]
	}
	return nil
}

// charged returns the claims of n requests of a grant, without the ones that were reset.
func (s *leaser) charged(e *leaseEntry, g *leaseGrant, n int64) (claims []weir.Claim, taken []weir.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range e.claims {
		if !e.forgotten[i] {
			c.Cost *= n
			c.Delay = g.decisions[i].Delay
			claims, taken = append(claims, c), append(taken, g.decisions[i].At)
		}
	}
	return claims, taken
}

// forget ends the leases of claims that are being reset, and gives back their other claims.
func (s *leaser) forget(claims []weir.Claim) (err error) {
	s.mu.Lock()
	out := s.unlink(func(e *leaseEntry) bool { return e.forget(claims) })
	s.mu.Unlock()
	for _, e := range out { // a refill under way finds its entry gone
		err = errors.Join(err, s.retireAlone(e, e.grant.Load()))
	}
	return err
}

// forget marks the claims of an entry that are among those given, and reports whether there are any. Under Store.mu.
func (e *leaseEntry) forget(claims []weir.Claim) (any bool) {
	for i := range e.claims {
		for j := range claims {
			if e.claims[i].Same(&claims[j]) {
				e.forgotten[i], any = true, true
			}
		}
	}
	return any
}

// leaseBatch is the reused memory of one DecideBatch.
type leaseBatch struct {
	hashes []uint64 // of requests that may earn a lease; otherwise 0
	late   []int    // indexes of requests that wait for a refill
	rest   passedOn
}

// DecideBatch implements weir.Batcher. Requests with a lease are paid from it. The others go to the store below
// together, then requests with a lease that has to be refilled.
func (s *leaser) DecideBatch(ctx context.Context, requests []weir.Request) {
	b := s.batches.Get().(*leaseBatch)
	defer s.batches.Put(b)
	for i := range requests {
		s.place(b, i, &requests[i])
	}
	b.rest.decide(ctx, s.Store, requests)
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
func (s *leaser) place(b *leaseBatch, i int, r *weir.Request) {
	b.hashes = append(b.hashes, 0)
	if b.rest.void(r) {
		return
	}
	hash, ok := s.hash(r.Claims)
	if !ok || r.Times != 1 || len(r.Decisions) != len(r.Claims) {
		b.rest.add(i, r)
		return
	}
	e := s.find(hash, r.Claims)
	switch {
	case e == nil:
		b.hashes[i] = hash
		b.rest.add(i, r)
	case e.spend(s.now(), r.Decisions):
		r.Granted, r.Err = 1, nil
		b.rest.answered(r)
	default:
		b.late = append(b.late, i)
		b.rest.late(r)
	}
}
