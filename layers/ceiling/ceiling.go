// Package ceiling stops a node that grants more than the shared store can have granted it: a
// runaway node, or a store that forgot, because it was flushed, failed over or evicted keys.
//
//	c, err := ceiling.New(shared, memstore.New(), ceiling.Every)
//	store := c.Store()
//
// Each key of a limit that has a ceiling also has a bucket in this process. It is looked at
// before the store is asked: what would be too much is refused, with the bucket's retry-after,
// and the store hears nothing of it. What the store grants is taken from the bucket; what
// anybody refuses is not.
//
// # How much
//
// The bucket holds the most that the limit grants in a moment, and factor − 1 of that beyond,
// and regains factor × the limit's rate:
//
//	token bucket             capacity + overdraft, and a refill if it comes in steps
//	sliding log              L
//	windows, calendars,
//	sliding counter          2 × L: L at the end of a window, and L when the next begins
//
// So in any time t a node alone passes at most factor × (that + rate × t). A request that costs
// more than what lies beyond passes while the rest is not used up; and requests that are asked
// at the same time are looked at side by side: by so much more it may be.
//
// Where the store remembers that is never reached, and the layer changes no answer, wherever
// the store's windows begin, whatever its clock says, and however many nodes there are. Three
// things can make it refuse what the store would grant:
//
//   - calls that take longer than (factor − 1) × the time in which the limit refills what stands
//     above, because what is granted is counted when the answer is here;
//   - units that were granted here and given back, or forgotten, through another node;
//   - clocks of Redis and of this process that run at different speeds, by more than the factor.
//
// It is a safety net, and fails open: where the local store has no room for a key, because all of its keys are in
// use, that key has no ceiling, and [Ceiling.Uncounted] counts what was granted so.
//
// Concurrency limits have no ceiling: a lease may be released through another node, too. Nor
// have limits whose bucket would take over 142 years to fill. What is charged without asking
// (Charge) is not counted. When a limit's numbers or its factor
// change its keys' buckets are new.
package ceiling

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/internal/derived"
)

// DefaultFactor leaves a fifth of room.
const DefaultFactor = 1.2

// Every gives every limit a ceiling of DefaultFactor.
func Every(*weir.Limit) (factor float64, ok bool) { return DefaultFactor, true }

// A Ceiling is over one store. It is safe for concurrent use.
type Ceiling struct {
	next    weir.Store
	local   weir.Store
	factor  func(*weir.Limit) (float64, bool)
	bounds  *derived.Limits
	scratch sync.Pool // of *scratch
	refused atomic.Int64
	missed  atomic.Int64
}

// New makes a ceiling over next, which counts in local, an embedded store of its own; the keys of that are the
// only memory it takes. Make it with memstore.WithoutOverflow: or newcomers to a full store share one bucket, which
// soon refuses all of them. factor says which limits have a ceiling, and of
// how many times what they grant, in thousandths: 1 or more; less reads as 1. It is asked
// about each claim.
func New(next, local weir.Store, factor func(*weir.Limit) (factor float64, ok bool)) (*Ceiling, error) {
	switch {
	case next == nil:
		return nil, bad("next", "a store")
	case local == nil:
		return nil, bad("local store", "a store in this process, such as memstore.New()")
	case factor == nil:
		return nil, bad("factor", "a function, such as ceiling.Every")
	}
	c := &Ceiling{next: next, local: local, factor: factor, bounds: derived.New(bound)}
	c.scratch.New = func() any { return new(scratch) }
	return c, nil
}

func bad(field, allowed string) error {
	return &weir.InputError{Field: field, Given: "nil", Allowed: allowed}
}

// Refused is how many requests the ceiling refused since it was made.
func (c *Ceiling) Refused() int64 { return c.refused.Load() }

// Uncounted is how many grants of a claim were not counted, because the local store was full.
func (c *Ceiling) Uncounted() int64 { return c.missed.Load() }

// Store is what to ask instead of the store below. It decides batches (weir.Batcher) if that
// one does. It is no weir.Shortcut. Closing it closes that one and the local store.
func (c *Ceiling) Store() weir.Store {
	if batcher, ok := c.next.(weir.Batcher); ok {
		return &batchStore{store{c}, batcher}
	}
	return &store{c}
}

// scratch is what one call of the local store takes, reused.
type scratch struct {
	// claims are those that have a ceiling, on their buckets. One that costs more than lies
	// beyond what the store may have granted asks for that only: or the bucket would refuse
	// what the store grants, or refuses for another time.
	claims    []weir.Claim
	places    []int // of them in the decision
	decisions []weir.Decision
}

// bound is the bucket of a limit that has a ceiling.
func (c *Ceiling) bound(limit *weir.Limit) *weir.Limit {
	if limit == nil {
		return nil
	}
	factor, ok := c.factor(limit)
	if !ok {
		return nil
	}
	if !(factor > 1) { // also for what is no number
		factor = 1
	}
	return c.bounds.Of(limit, factor)
}

// under finds the claims that have a ceiling. Hand it back with done.
func (c *Ceiling) under(claims []weir.Claim) *scratch {
	s := c.scratch.Get().(*scratch)
	for i := range claims {
		if bound := c.bound(claims[i].Limit); bound != nil {
			claim := claims[i]
			claim.Limit, claim.Cost, claim.Delay = bound, min(claim.Cost, bound.Overdraft()), 0
			s.claims, s.places, s.decisions = append(s.claims, claim), append(s.places, i), append(s.decisions, weir.Decision{})
		}
	}
	return s
}

func (c *Ceiling) done(s *scratch) {
	clear(s.claims) // a key may be part of a large request: let go of it
	s.claims, s.places, s.decisions = s.claims[:0], s.places[:0], s.decisions[:0]
	c.scratch.Put(s)
}

// room is how many of times requests fit under the ceiling, at least one for a peek that would
// be granted. Wrong input fits: the store says what is wrong with it.
func (c *Ceiling) room(s *scratch, claims []weir.Claim, times int64) int64 {
	room := max(times, 1)
	if len(s.claims) == 0 || !c.look(s) {
		return room
	}
	for j, i := range s.places {
		if claims[i].Cost <= claims[i].Limit.Most() { // more is never granted: the store says so
			room = min(room, s.fits(j, claims[i].Cost))
		}
	}
	return room
}

// fits is how many requests of a cost a bucket has room for.
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

// take counts what was granted.
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

// takeApart charges one claim after the other: one key for which there is no room leaves no other uncounted.
func (c *Ceiling) takeApart(s *scratch) {
	for j := range s.claims {
		if c.local.Charge(context.Background(), s.claims[j:j+1], nil) != nil {
			c.missed.Add(1)
		}
	}
}

// cut describes what is left after fewer requests were let through than were asked for. Where
// the store says when it grants again, that is it.
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

// store is the weir.Store under the ceiling.
type store struct{ *Ceiling }

// Decide implements weir.Store.
func (c *store) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	s := c.under(claims)
	defer c.done(s)
	room := c.room(s, claims, times)
	if room == 0 {
		return 0, c.refuse(s, claims, times, decisions)
	}
	if room < times {
		return c.decideSome(ctx, s, claims, times, room, decisions)
	}
	granted, err := c.next.Decide(ctx, claims, times, decisions)
	if err == nil {
		c.take(s, claims, granted)
	}
	return granted, err
}

// decideSome asks for less than the caller does.
func (c *store) decideSome(ctx context.Context, s *scratch, claims []weir.Claim, times, room int64, decisions []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, decisions); err != nil {
		return 0, err
	}
	granted, err := c.next.Decide(ctx, claims, room, decisions)
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

// refuse answers for the store. What is not under a ceiling, or fits, says what this node knows.
func (c *Ceiling) refuse(s *scratch, claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	c.refused.Add(times)
	s.fresh(claims, decisions)
	return nil
}

// fresh describes claims of which only the buckets are known.
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

// lower corrects decisions that know of no refusal by what the buckets say.
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

// Charge implements weir.Store.
func (c *store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return c.next.Charge(ctx, claims, decisions)
}

// Refund implements weir.Store.
func (c *store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	err := c.next.Refund(ctx, claims, takenAt, decisions)
	if err != nil && !errors.Is(err, weir.ErrLeaseGone) {
		return err
	}
	s := c.under(claims)
	defer c.done(s)
	for j, i := range s.places {
		s.claims[j].Cost = claims[i].Cost
	}
	if len(s.claims) > 0 {
		c.local.Refund(ctx, s.claims, takenAt, nil) // a bucket does not ask when
	}
	return err
}

// Reset implements weir.Store.
func (c *store) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := c.next.Reset(ctx, claims); err != nil {
		return err
	}
	s := c.under(claims)
	defer c.done(s)
	if len(s.claims) == 0 {
		return nil
	}
	return c.local.Reset(ctx, s.claims)
}

// Close implements weir.Store.
func (c *store) Close() error { return errors.Join(c.next.Close(), c.local.Close()) }
