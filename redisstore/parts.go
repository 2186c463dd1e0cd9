package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisslot"
)

// oneSlot reports whether one call can carry all claims.
func (s *Store) oneSlot(claims []weir.Claim) bool {
	if len(claims) == 1 || !s.conn.Cluster() {
		return true
	}
	first := redisslot.Of(s.key(&claims[0]))
	for i := range claims[1:] {
		if redisslot.Of(s.key(&claims[1+i])) != first {
			return false
		}
	}
	return true
}

// part is the claims of one slot of a decision.
type part struct {
	call
	places []int // of its claims in the decision
}

// parts splits a call by slot.
func (s *Store) parts(c *call) []*part {
	bySlot := make(map[uint16]*part)
	var parts []*part
	for i := range c.claims {
		slot := redisslot.Of(s.key(&c.claims[i]))
		p := bySlot[slot]
		if p == nil {
			p = &part{call: call{op: c.op, times: c.times, taken: c.taken, each: c.each}}
			bySlot[slot] = p
			parts = append(parts, p)
		}
		p.claims = append(p.claims, c.claims[i])
		p.places = append(p.places, i)
	}
	for _, p := range parts {
		p.decisions = make([]weir.Decision, len(p.claims)*max(1, c.rows()))
	}
	return parts
}

// depends reports whether a lease of the part is a condition.
func (p *part) depends() bool {
	return slices.ContainsFunc(p.claims, func(c weir.Claim) bool { return c.Renew })
}

// runParts makes all calls at once.
func (s *Store) runParts(ctx context.Context, parts []*part) {
	var wait sync.WaitGroup
	for _, p := range parts {
		wait.Go(func() { s.run(ctx, &p.call) })
	}
	wait.Wait()
}

// runSlots makes a call for claims that do not depend on each other.
func (s *Store) runSlots(ctx context.Context, c *call) error {
	if s.oneSlot(c.claims) {
		s.run(ctx, c)
		return c.err
	}
	parts := s.parts(c)
	// A part with a lease that the others depend on goes first: better lost than done twice.
	if i := slices.IndexFunc(parts, (*part).depends); i > 0 {
		parts[0], parts[i] = parts[i], parts[0]
	}
	if parts[0].depends() {
		if s.run(ctx, &parts[0].call); parts[0].err != nil {
			return parts[0].err
		}
		s.runParts(ctx, parts[1:])
	} else {
		s.runParts(ctx, parts)
	}
	var gone error
	for _, p := range parts {
		switch {
		case errors.Is(p.err, weir.ErrLeaseGone):
			gone = p.err
		case p.err != nil:
			return p.err
		}
		p.copyTo(c)
	}
	return gone
}

// decideSlots decides in each slot, and gives back the grants that another slot refused.
func (s *Store) decideSlots(ctx context.Context, c *call) (int64, error) {
	parts := s.parts(c)
	if s.refusing.likely() && c.peekable() {
		if refused, err := s.peekFirst(ctx, c, parts); refused || err != nil {
			return 0, err
		}
	}
	s.runKeeper(ctx, parts)
	granted := c.times
	var err error
	for _, p := range parts {
		if granted = min(granted, p.granted); p.err != nil {
			granted, err = 0, p.err
		}
	}
	var wait sync.WaitGroup
	for _, p := range parts {
		if back := p.granted - granted; p.err == nil && back > 0 {
			wait.Go(func() { s.giveBack(ctx, p, back) })
		}
	}
	wait.Wait()
	if err != nil {
		return 0, err
	}
	for _, p := range parts {
		if p.err != nil {
			return 0, p.err
		}
		p.copyTo(c)
	}
	s.refusing.note(granted == 0 && c.times > 0)
	return granted, nil
}

// runKeeper is runParts, but asks the slot with an id after the others: an id is kept only if all slots have granted.
// After a refusal it looks whether the id is kept already.
func (s *Store) runKeeper(ctx context.Context, parts []*part) {
	keeps := func(p *part) bool { return slices.ContainsFunc(p.claims, func(c weir.Claim) bool { return c.Once }) }
	i := slices.IndexFunc(parts, keeps)
	if i < 0 {
		s.runParts(ctx, parts)
		return
	}
	parts[0], parts[i] = parts[i], parts[0]
	keeper, granted := parts[0], parts[0].times
	s.runParts(ctx, parts[1:])
	for _, p := range parts[1:] {
		if granted = min(granted, p.granted); p.err != nil {
			return
		}
	}
	if granted == 0 {
		keeper.op, keeper.times = opTimes, 0
	}
	s.run(ctx, &keeper.call)
}

// peekFirst peeks in each slot, and sets the decisions if one would refuse.
func (s *Store) peekFirst(ctx context.Context, c *call, parts []*part) (refused bool, err error) {
	peeks := make([]*part, len(parts))
	for i, p := range parts {
		peek := *p
		peek.op, peek.times, peek.decisions = opTimes, 0, make([]weir.Decision, len(p.claims))
		peeks[i] = &peek
	}
	s.runParts(ctx, peeks)
	for _, p := range peeks {
		if p.err != nil {
			return false, p.err
		}
		refused = refused || slices.ContainsFunc(p.decisions, func(d weir.Decision) bool { return d.RetryAfter != 0 })
	}
	if !refused {
		return false, nil
	}
	for _, p := range peeks {
		p.copyTo(c)
	}
	s.refusing.note(true)
	return true, nil
}

// peekable reports whether a peek gives the decisions of the call: not for leases, which may be held already.
func (c *call) peekable() bool {
	leases := slices.ContainsFunc(c.claims, func(claim weir.Claim) bool { return claim.Lease != "" })
	return c.op == opTake && !c.each && !leases
}

// refusing counts how the last decisions over several slots ended. Where most are refused, it
// is cheaper to peek before anything is charged: a refusal is one round trip without a write,
// instead of two round trips, a charge and a refund. A grant then costs one round trip more.
type refusing struct{ balance atomic.Int32 }

const (
	refusingLikely = 8
	refusingMost   = 16
)

func (r *refusing) likely() bool { return r.balance.Load() >= refusingLikely }

func (r *refusing) note(refused bool) {
	switch balance := r.balance.Load(); {
	case refused && balance < refusingMost:
		r.balance.Add(1)
	case !refused && balance > 0:
		r.balance.Add(-1)
	}
}

// giveBack refunds the last times grants of a slot, and reads the state. It runs also when the
// caller's context has ended: it has its own timeout.
func (s *Store) giveBack(ctx context.Context, p *part, times int64) {
	ctx = context.WithoutCancel(ctx)
	refund := call{op: opRefund, taken: weir.Instant(p.at), times: 1}
	last := p.decisions[len(p.decisions)-len(p.claims):]
	for i, claim := range p.claims {
		if expiry := p.expiry(&claim); expiry != 0 {
			renewed := call{op: opRestore, claims: []weir.Claim{claim}, taken: weir.Instant(expiry), times: 1}
			s.run(ctx, &renewed)
			p.err = errors.Join(p.err, renewed.err)
			continue
		}
		claim.Cost *= times
		claim.Delay = last[i].Delay
		refund.claims = append(refund.claims, claim)
	}
	if len(refund.claims) > 0 {
		refund.op = refundOp(refund.claims)
		if s.run(ctx, &refund); !errors.Is(refund.err, weir.ErrLeaseGone) {
			p.err = errors.Join(p.err, refund.err)
		}
	}
	if p.err == nil {
		s.lookAgain(ctx, p, p.granted-times)
	}
}

// lookAgain sets the decisions after something was given back. Those of the granted requests are known.
func (s *Store) lookAgain(ctx context.Context, p *part, granted int64) {
	n := len(p.claims)
	known := int(granted) * n
	if !p.each || granted == 0 {
		left := call{op: opTimes, claims: p.claims, decisions: p.decisions[:n]}
		s.run(ctx, &left)
		p.err, known = left.err, n
	}
	for i := known; i < len(p.decisions); i++ {
		p.decisions[i] = p.decisions[i-n]
	}
}

// expiry is when the claim's lease would have expired without its renewal; 0 for other claims.
func (p *part) expiry(c *weir.Claim) int64 {
	lease := 0
	for i := range p.claims {
		if p.claims[i].Lease == "" {
			continue
		}
		if p.claims[i].Same(c) {
			return p.leases[lease]
		}
		lease++
	}
	return 0
}

// copyTo copies a part's decisions to their places in the call. The part may be a peek in a call that is not a peek.
func (p *part) copyTo(c *call) {
	for row := range c.rows() {
		for i, place := range p.places {
			d := &c.decisions[row*len(c.claims)+place]
			if *d = p.decisions[row*len(p.claims)+i]; c.times > 0 {
				d.Standing = nil
			}
		}
	}
}
