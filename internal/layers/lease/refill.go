package lease

import (
	"context"

	"github.com/weirproject/weir"
)

// A flight is a call for a grant that several callers wait for.
type flight struct {
	times int64
	done  chan struct{}
	err   error // read after done
}

// join returns the call under way for the entry's next grant, or begins it. It returns nil where the caller
// should call the store itself, and an ended flight where a grant is there.
func (s *Store) join(ctx context.Context, e *entry) *flight {
	now := s.now()
	e.seen.Store(now)
	if e.room.Load() < least {
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
	if n < least {
		return nil
	}
	s.account(e, n)
	e.flight = &flight{times: n, done: make(chan struct{})}
	// In another goroutine, because the caller may leave while others wait.
	f, detached := e.flight, context.WithoutCancel(ctx)
	s.running.Go(func() { s.refill(detached, e, f, old) })
	return f
}

// finish learns from a grant that is over, and removes its spent requests from the accounts. An ended grant is
// left to the goroutine that ended it, whose refund may be under way. Under Store.mu.
func (s *Store) finish(e *entry, g *grant, now int64) {
	if g == nil || g.held == 0 || g.ended() {
		return
	}
	left := max(0, g.left.Load())
	e.learn(g, left, now)
	s.account(e, left-g.held)
	g.held = left
}

// refill is the goroutine of a flight. It gives back the rest of the old grant, whose time was over before it was used
// up, and takes the next.
func (s *Store) refill(ctx context.Context, e *entry, f *flight, old *grant) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	f.err = s.retire(ctx, e, old)
	g := &grant{decisions: make([]weir.Decision, len(e.claims))}
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
func (g *grant) land(e *entry, sent, now int64) {
	g.landed, g.until = now, sent+int64(lasts(e.hold, e.claims, g.decisions))
	g.left.Store(g.size)
	for i := range g.decisions {
		g.delayed = g.delayed || g.decisions[i].Delay > 0
	}
}

// rest is how many holds a key stays without grants after one arrived too late to be spent: the store is slower
// than leases may be held.
const rest = 10

// land puts a grant into its entry. It returns false if the entry was removed meanwhile.
func (s *Store) land(e *entry, f *flight, g *grant) (kept bool) {
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
		e.rests = g.landed + rest*int64(e.hold)
	}
	if !e.gone {
		e.grant.Store(g)
	}
	return !e.gone
}

// A state is where units are charged. Leases with other claims, costs or numbers may charge the same one.
type state struct {
	name      string
	algorithm weir.Algorithm
	key       string
}

// accounts count the units of each state that the node holds or has asked for, over all leases. Units count
// until they are spent, or their refund has ended.
type accounts map[state]int64

func stateOf(c *weir.Claim) state { return state{c.Limit.Name(), c.Limit.Algorithm(), c.Key} }

// account adds n requests of an entry, possibly negative, to what the node holds. Under Store.mu.
func (s *Store) account(e *entry, n int64) {
	if n == 0 {
		return
	}
	for i := range e.claims {
		at := stateOf(&e.claims[i])
		if s.accounts[at] += n * e.claims[i].Cost; s.accounts[at] == 0 {
			delete(s.accounts, at)
		}
	}
}

// size is the number of requests for the next grant of an entry. Under Store.mu.
func (s *Store) size(e *entry) int64 {
	n := min(e.want, e.room.Load())
	for i := 0; n >= least && i < len(e.claims); i++ {
		n = min(n, (e.shares[i].most-s.accounts[stateOf(&e.claims[i])])/e.claims[i].Cost)
	}
	return n
}
