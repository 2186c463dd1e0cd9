package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
)

const (
	// sweepEvery is the longest time from the end of a grant until its refund begins.
	sweepEvery = 25 * time.Millisecond

	// returns bounds the concurrent refunds. One after the other, those of 500 keys over a store that takes 5
	// ms would need 2.5 s, in which their units are unusable.
	returns = 64
)

// sweep gives unused grants back in time and removes idle entries, while there are leases.
func (s *Store) sweep() {
	for s.goOn() && pause.For(sweepEvery, s.stop) {
		s.sendBack(s.due())
	}
}

// sendBack gives back the grants of entries. While the store is unavailable only one is tried in each round and
// the others stay due; Close gives back the rest.
func (s *Store) sendBack(due []*entry) {
	if len(due) == 0 || s.stopped() || s.retireAlone(due[0], due[0].grant.Load()) != nil {
		return
	}
	var failed atomic.Bool
	s.atOnce(due[1:], func(e *entry) {
		if !failed.Load() && !s.stopped() && s.retireAlone(e, e.grant.Load()) != nil {
			failed.Store(true)
		}
	})
}

// atOnce calls do for all entries, up to returns of them concurrently.
func (s *Store) atOnce(entries []*entry, do func(*entry)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(returns, len(entries)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(entries)); i = next.Add(1) - 1 {
				do(entries[i])
			}
		})
	}
	workers.Wait()
}

func (s *Store) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// goOn reports whether there are leases; otherwise the sweeper ends.
func (s *Store) goOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeping = s.stats.Leases > 0
	return s.sweeping
}

// due removes idle entries, and returns those whose grant is over but not used up.
func (s *Store) due() (due []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, e := range s.unlink(func(e *entry) bool { return e.idle(now) }) {
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

// idle reports whether an entry holds nothing and is seldom used. One that rests is kept: without its entry it
// would be leased again at once. Under Store.mu.
func (e *entry) idle(now int64) bool {
	if g := e.grant.Load(); e.flight != nil || now < e.rests || g != nil && g.left.Load() > 0 {
		return false
	}
	return e.want < least || now-e.seen.Load() > int64(e.hold)
}

// retireAlone is retire with a timeout of its own.
func (s *Store) retireAlone(e *entry, g *grant) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	return s.retire(ctx, e, g)
}

// retire ends a grant and gives its remainder back. A failed refund is not repeated, because it may have
// been executed.
func (s *Store) retire(ctx context.Context, e *entry, g *grant) (err error) {
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
func (s *Store) release(e *entry, g *grant) {
	if g != nil {
		s.account(e, -g.held)
		g.held = 0
	}
}

// giveBack refunds n requests, each claim at the instant of its charge: one instant for all, unless they live
// on several nodes of a Redis Cluster, which have clocks of their own.
func (s *Store) giveBack(ctx context.Context, e *entry, g *grant, n int64) error {
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

// charged returns the claims of n requests of a grant, without those that were reset.
func (s *Store) charged(e *entry, g *grant, n int64) (claims []weir.Claim, taken []weir.Instant) {
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
func (s *Store) forget(claims []weir.Claim) (err error) {
	s.mu.Lock()
	out := s.unlink(func(e *entry) bool { return e.forget(claims) })
	s.mu.Unlock()
	for _, e := range out { // a refill under way finds its entry gone
		err = errors.Join(err, s.retireAlone(e, e.grant.Load()))
	}
	return err
}

// forget marks the claims of an entry that are among those given, and reports whether there are any. Under Store.mu.
func (e *entry) forget(claims []weir.Claim) (any bool) {
	for i := range e.claims {
		for j := range claims {
			if e.claims[i].Same(&claims[j]) {
				e.forgotten[i], any = true, true
			}
		}
	}
	return any
}
