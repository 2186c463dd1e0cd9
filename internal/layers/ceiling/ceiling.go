// Package ceiling refuses requests that the shared store cannot have room for: it bounds a runaway node, and a
// store that lost its state because it was flushed, failed over or evicted keys.
//
// Each key of a limit with a ceiling also has a bucket in this process, which is checked before the store is
// called. A request beyond the bucket is refused with the bucket's retry-after and without a call. Grants of
// the store are charged to the bucket; refusals, by either, are not.
//
// # The bound
//
// The bucket holds the most that the limit grants at one moment, plus factor − 1 of that, and refills at factor
// × the limit's rate:
//
//	token bucket             capacity + overdraft, and a refill if it comes in steps
//	sliding log              L
//	windows, calendars,
//	sliding counter          2 × L: L at the end of a window, and L when the next begins
//
// So in any time t one node passes at most factor × (that + rate × t). A request that costs more than factor −
// 1 of it passes while the rest is not used up, and concurrent requests are checked independently: the bound
// may be exceeded by as much.
//
// A store with intact state never reaches it, and the layer then changes no answer, wherever the store's
// windows begin, whatever its clock says, and however many nodes there are. The layer can refuse what the store
// would grant in three cases:
//
//   - calls take longer than (factor − 1) × the time in which the limit refills the amount above, because a
//     grant is counted when its answer arrives;
//   - units granted here were given back, or reset, through another node;
//   - the clocks of Redis and of this process differ in speed by more than the factor.
//
// It fails open: where the local store has no room for a key, because all of its keys are in use, that key has
// no ceiling, and [Ceiling.Uncounted] counts its grants.
//
// Concurrency limits have no ceiling, because a lease may be released through another node; nor have limits
// whose bucket would take over 142 years to fill. Charge is not counted. When a limit's numbers or its factor
// change, its keys get new buckets.
package ceiling

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

// A Ceiling is a weir.Store over another one. It is safe for concurrent use, and no shortcut. Charge is not counted.
type Ceiling struct {
	weir.Store // the next one
	local      weir.Store
	factor     func(*weir.Limit) (float64, bool)
	bounds     *layer.Limits
	scratch    sync.Pool // of *scratch
	batches    sync.Pool // of *layer.Batch
	refused    atomic.Int64
	missed     atomic.Int64
}

// New returns a ceiling over next, whose buckets are in local, an embedded store of its own and the only memory
// that grows with keys. Make local with memstore.WithoutOverflow; otherwise new keys share one bucket when it
// is full, which soon refuses them all. factor returns whether a limit has a ceiling, and its factor, in
// thousandths; less than 1 reads as 1. It is called for each claim. Closing the layer closes next and local.
func New(next, local weir.Store, factor func(*weir.Limit) (factor float64, ok bool)) *Ceiling {
	c := &Ceiling{Store: next, local: local, factor: factor, bounds: layer.NewLimits(bound)}
	c.scratch.New = func() any { return new(scratch) }
	c.batches.New = func() any { return new(layer.Batch) }
	return c
}

// Refused counts the requests that the ceiling refused.
func (c *Ceiling) Refused() int64 { return c.refused.Load() }

// Uncounted counts the granted claims that were not charged to a bucket because the local store was full.
func (c *Ceiling) Uncounted() int64 { return c.missed.Load() }

// scratch is the reused memory of one call of the local store.
type scratch struct {
	// claims are those with a ceiling, on their buckets. A cost above the overdraft is reduced to it; otherwise
	// the bucket would refuse what the store grants, or name another wait.
	claims    []weir.Claim
	places    []int // their indexes in the decision
	decisions []weir.Decision
}

// bound returns the bucket of a limit, nil without a ceiling.
func (c *Ceiling) bound(limit *weir.Limit) *weir.Limit {
	if limit == nil {
		return nil
	}
	factor, ok := c.factor(limit)
	if !ok {
		return nil
	}
	if !(factor > 1) { // true for NaN too
		factor = 1
	}
	return c.bounds.Of(limit, factor)
}

// under returns the claims with a ceiling. Hand it back with done.
func (c *Ceiling) under(claims []weir.Claim) *scratch {
	s := c.scratch.Get().(*scratch)
	for i := range claims {
		if bound := c.bound(claims[i].Limit); bound != nil {
			claim := claims[i]
			claim.Limit, claim.Cost, claim.Delay = bound, min(claim.Cost, bound.Overdraft()), 0
			s.claims, s.places, s.decisions = append(s.claims, claim), append(s.places, i), append(s.decisions,
				weir.Decision{})
		}
	}
	return s
}

func (c *Ceiling) done(s *scratch) {
	clear(s.claims) // a key may be part of a large request body
	s.claims, s.places, s.decisions = s.claims[:0], s.places[:0], s.decisions[:0]
	c.scratch.Put(s)
}

// room returns how many of times requests fit under the ceiling, at least one for a peek that would be granted.
// Wrong input fits: the store reports its error.
func (c *Ceiling) room(s *scratch, claims []weir.Claim, times int64) int64 {
	room := max(times, 1)
	if len(s.claims) == 0 || !c.look(s) {
		return room
	}
	for j, i := range s.places {
		if claims[i].Cost <= claims[i].Limit.Most() { // the store refuses a larger cost for ever
			room = min(room, s.fits(j, claims[i].Cost))
		}
	}
	return room
}

// fits returns how many requests of a cost a bucket has room for.
func (s *scratch) fits(j int, cost int64) int64 {
	left := s.decisions[j].Remaining
	switch {
	case cost == 0:
		return weir.MaxUnits
	case left >= s.claims[j].Cost:
		return max(left/cost, 1)
	}
	return 0
}

func (c *Ceiling) look(s *scratch) bool {
	_, err := c.local.Decide(context.Background(), s.claims, 0, s.decisions)
	return err == nil
}

// take charges a grant.
func (c *Ceiling) take(s *scratch, claims []weir.Claim, granted int64) {
	if granted == 0 || len(s.claims) == 0 {
		return
	}
	for j, i := range s.places {
		s.claims[j].Cost = min(claims[i].Cost*granted, weir.MaxUnits)
	}
	if c.local.Charge(context.Background(), s.claims, nil) != nil {
		c.takeApart(s)
	}
	for j, i := range s.places {
		s.claims[j].Cost = min(claims[i].Cost, s.claims[j].Limit.Overdraft())
	}
}

// takeApart charges the claims one by one, so that a key without room leaves no other uncounted.
func (c *Ceiling) takeApart(s *scratch) {
	for j := range s.claims {
		if c.local.Charge(context.Background(), s.claims[j:j+1], nil) != nil {
			c.missed.Add(1)
		}
	}
}

// cut corrects the decisions of a request of which only some times were passed on, unless the store refused too
// and said when it grants again.
func (c *Ceiling) cut(s *scratch, claims []weir.Claim, decisions []weir.Decision) {
	for i := range decisions {
		if decisions[i].RetryAfter != 0 {
			return
		}
	}
	if len(decisions) > 0 && c.look(s) {
		s.lower(claims, decisions)
	}
}

func (c *Ceiling) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	s := c.under(claims)
	defer c.done(s)
	room := c.room(s, claims, times)
	if room == 0 {
		return 0, c.refuse(s, claims, times, decisions)
	}
	if room < times {
		return c.decideSome(ctx, s, claims, times, room, decisions)
	}
	granted, err := c.Store.Decide(ctx, claims, times, decisions)
	if err == nil {
		c.take(s, claims, granted)
	}
	return granted, err
}

// decideSome passes on fewer times than the caller asked for.
func (c *Ceiling) decideSome(ctx context.Context, s *scratch, claims []weir.Claim, times, room int64,
	decisions []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, decisions); err != nil {
		return 0, err
	}
	granted, err := c.Store.Decide(ctx, claims, room, decisions)
	if err != nil {
		return 0, err
	}
	c.take(s, claims, granted)
	if granted == room {
		c.refused.Add(times - room)
		c.cut(s, claims, decisions)
	}
	return granted, nil
}

// refuse refuses without a call. Claims without a ceiling, or with room, are described as unused.
func (c *Ceiling) refuse(s *scratch, claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	c.refused.Add(times)
	s.fresh(claims, decisions)
	return nil
}

// fresh describes claims by their buckets alone.
func (s *scratch) fresh(claims []weir.Claim, decisions []weir.Decision) {
	if decisions == nil {
		return
	}
	for i := range decisions {
		decisions[i] = weir.Decision{Remaining: claims[i].Limit.Most(), At: s.decisions[0].At}
	}
	for j, i := range s.places {
		decisions[i].ResetAfter = s.decisions[j].ResetAfter
	}
	s.lower(claims, decisions)
}

// lower corrects decisions without a refusal by the buckets.
func (s *scratch) lower(claims []weir.Claim, decisions []weir.Decision) {
	for j, i := range s.places {
		d, mine := &decisions[i], &s.decisions[j]
		d.Remaining = min(d.Remaining, mine.Remaining)
		d.RetryAfter = mine.RetryAfter
		if mine.RetryAfter != weir.Never {
			d.ResetAfter = max(d.ResetAfter, mine.RetryAfter)
		}
		if claims[i].Cost > claims[i].Limit.Most() {
			d.RetryAfter = weir.Never
		}
	}
}

func (c *Ceiling) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	err := c.Store.Refund(ctx, claims, takenAt, decisions)
	if err != nil && !errors.Is(err, weir.ErrLeaseGone) {
		return err
	}
	s := c.under(claims)
	defer c.done(s)
	for j, i := range s.places {
		s.claims[j].Cost = claims[i].Cost
	}
	if len(s.claims) > 0 {
		c.local.Refund(ctx, s.claims, takenAt, nil) // a bucket ignores the instant
	}
	return err
}

func (c *Ceiling) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := c.Store.Reset(ctx, claims); err != nil {
		return err
	}
	s := c.under(claims)
	defer c.done(s)
	if len(s.claims) == 0 {
		return nil
	}
	return c.local.Reset(ctx, s.claims)
}

func (c *Ceiling) Close() error { return errors.Join(c.Store.Close(), c.local.Close()) }
