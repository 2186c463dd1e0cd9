package layers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// The ceiling refuses requests that the shared store cannot have room for: it bounds a runaway node, and a
// store that lost its state because it was flushed, failed over or evicted keys.
//
// Each key of a limit with a ceiling also has a bucket in this process, which is checked before the store is
// called. A request beyond the bucket is refused with the bucket's retry-after and without a call. Grants of
// the store are charged to the bucket; refusals, by either, are not. The bucket knows no floors: it
// bounds what passes in all, and an intact store keeps the floors.
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
// A store with intact state never reaches it, and the layer then changes no answer, wherever the store's windows begin,
// whatever its clock says, and however many nodes there are. The layer can refuse requests that the store would grant
// in three cases:
//
//   - calls take longer than (factor − 1) × the time that the limit takes to refill the amount above, because a
//     grant is counted when its answer arrives;
//   - units granted here were given back, or reset, through another node;
//   - the clocks of Redis and of this process differ in speed by more than the factor.
//
// It fails open: where the local store has no room for a key, because all of its keys are in use, that key has
// no ceiling, and uncounted counts its grants.
//
// Concurrency limits have no ceiling, because a lease may be released through another node; nor have limits
// with a bucket that would take over 142 years to fill. Charge is not counted. When a limit's numbers or its factor
// change, its keys get new buckets.

// A ceiling is a weir.Store over another one. It is safe for concurrent use, and no shortcut. Charge is not counted.
type ceiling struct {
	weir.Store // the next one
	local      weir.Store
	factor     func(*weir.Limit) (float64, bool)
	bounds     *derivedLimits
	scratch    sync.Pool // of *scratch
	batches    sync.Pool // of *layer.Batch
	refused    atomic.Int64
	missed     atomic.Int64
}

// newCeiling returns a ceiling over next. Its buckets are in local, a separate embedded store and the only memory
// that grows with keys. Make local with memstore.WithoutOverflow; otherwise new keys share one bucket when it
// is full, which soon refuses them all. factor returns whether a limit has a ceiling, and its factor, in
// thousandths; less than 1 reads as 1. It is called for each claim. Closing the layer closes next and local.
func newCeiling(next, local weir.Store, factor func(*weir.Limit) (factor float64, ok bool)) *ceiling {
	c := &ceiling{Store: next, local: local, factor: factor, bounds: newDerivedLimits(ceilingBucket)}
	c.scratch.New = func() any { return new(ceilingScratch) }
	c.batches.New = func() any { return new(passedOn) }
	return c
}

// refusals counts the requests that the ceiling refused.
func (c *ceiling) refusals() int64 { return c.refused.Load() }

// uncounted counts the granted claims that were not charged to a bucket because the local store was full.
func (c *ceiling) uncounted() int64 { return c.missed.Load() }

// ceilingScratch is the reused memory of one call of the local store.
type ceilingScratch struct {
	// claims are the claims with a ceiling, on their buckets. A cost above the overdraft is reduced to it; otherwise
	// the bucket would refuse a grant of the store, or name another wait.
	claims    []weir.Claim
	places    []int // their indexes in the decision
	decisions []weir.Decision
}

// bound returns the bucket of a limit, nil without a ceiling.
func (c *ceiling) bound(limit *weir.Limit) *weir.Limit {
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
	return c.bounds.of(limit, factor)
}

// under returns the claims with a ceiling. Hand it back with done.
func (c *ceiling) under(claims []weir.Claim) *ceilingScratch {
	s := c.scratch.Get().(*ceilingScratch)
	for i := range claims {
		if bound := c.bound(claims[i].Limit); bound != nil {
			claim := claims[i]
			claim.Limit, claim.Cost, claim.Floor, claim.Delay = bound, min(claim.Cost, bound.Overdraft()), 0, 0
			claim.Member, claim.Weight = "", 0
			s.claims, s.places, s.decisions = append(s.claims, claim), append(s.places, i), append(s.decisions,
				weir.Decision{})
		}
	}
	return s
}

func (c *ceiling) done(s *ceilingScratch) {
	clear(s.claims) // a key may be part of a large request body
	s.claims, s.places, s.decisions = s.claims[:0], s.places[:0], s.decisions[:0]
	c.scratch.Put(s)
}

// room returns how many of times requests fit under the ceiling, at least one for a peek that would be granted.
// Wrong input fits: the store reports its error.
func (c *ceiling) room(s *ceilingScratch, claims []weir.Claim, times int64) int64 {
	room := max(times, 1)
	if len(s.claims) == 0 || !c.look(s) {
		return room
	}
	for j, i := range s.places {
		if algorithm.Needs(&claims[i]) <= claims[i].Limit.Most() { // the store refuses a larger cost for ever
			room = min(room, s.fits(j, claims[i].Cost))
		}
	}
	return room
}

// fits returns how many requests of a cost a bucket has room for.
func (s *ceilingScratch) fits(j int, cost int64) int64 {
	left := s.decisions[j].Remaining
	switch {
	case cost == 0:
		return weir.MaxUnits
	case left >= s.claims[j].Cost:
		return max(left/cost, 1)
	}
	return 0
}

func (c *ceiling) look(s *ceilingScratch) bool {
	_, err := c.local.Decide(context.Background(), s.claims, 0, s.decisions)
	return err == nil
}

// take charges a grant.
func (c *ceiling) take(s *ceilingScratch, claims []weir.Claim, granted int64) {
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
func (c *ceiling) takeApart(s *ceilingScratch) {
	for j := range s.claims {
		if c.local.Charge(context.Background(), s.claims[j:j+1], nil) != nil {
			c.missed.Add(1)
		}
	}
}

// cut corrects the decisions of a request when only some of its times were passed on, unless the store refused too
// and said when it grants again.
func (c *ceiling) cut(s *ceilingScratch, claims []weir.Claim, decisions []weir.Decision) {
	for i := range decisions {
		if decisions[i].RetryAfter != 0 {
			return
		}
	}
	if len(decisions) > 0 && c.look(s) {
		s.lower(claims, decisions)
	}
}

func (c *ceiling) Decide(ctx context.Context, claims []weir.Claim, times int64,
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
func (c *ceiling) decideSome(ctx context.Context, s *ceilingScratch, claims []weir.Claim, times, room int64,
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
func (c *ceiling) refuse(s *ceilingScratch, claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if err := weir.Check(claims, times, decisions); err != nil {
		return err
	}
	c.refused.Add(times)
	s.fresh(claims, decisions)
	return nil
}

// fresh describes claims by their buckets alone.
func (s *ceilingScratch) fresh(claims []weir.Claim, decisions []weir.Decision) {
	if decisions == nil {
		return
	}
	for i := range decisions {
		left := algorithm.LessFloor(claims[i].Limit.Most(), claims[i].Floor)
		decisions[i] = weir.Decision{Remaining: left, At: s.decisions[0].At}
	}
	for j, i := range s.places {
		decisions[i].ResetAfter = s.decisions[j].ResetAfter
	}
	s.lower(claims, decisions)
}

// lower corrects decisions without a refusal by the buckets.
func (s *ceilingScratch) lower(claims []weir.Claim, decisions []weir.Decision) {
	for j, i := range s.places {
		d, mine := &decisions[i], &s.decisions[j]
		d.Remaining = min(d.Remaining, algorithm.LessFloor(mine.Remaining, claims[i].Floor))
		d.RetryAfter = mine.RetryAfter
		if mine.RetryAfter != weir.Never {
			d.ResetAfter = max(d.ResetAfter, mine.RetryAfter)
		}
		if algorithm.Needs(&claims[i]) > claims[i].Limit.Most() {
			d.RetryAfter = weir.Never
		}
	}
}

func (c *ceiling) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
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

func (c *ceiling) Reset(ctx context.Context, claims []weir.Claim) error {
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

func (c *ceiling) Close() error { return errors.Join(c.Store.Close(), c.local.Close()) }

// factorGrain is the precision of a factor: a thousandth.
const factorGrain = 1000

// ceilingBucket returns the bucket that a node charges with its grants under a limit; nil if it has no ceiling. Its
// capacity, refilled at the limit's rate, covers all that a store with intact state can grant at any instants, so it
// needs no knowledge of where the store's windows begin, nor of its clock. A concurrency limit has no bucket: a lease
// may be released through another node. The overdraft is the factor's addition to that, and at least a unit.
func ceilingBucket(limit *weir.Limit, factor float64) *weir.Limit {
	most, rate, period := limit.Envelope()
	if most == 0 || factor > weir.MaxUnits/factorGrain {
		return nil
	}
	thousandths := int64(math.Ceil(factor * factorGrain))
	all, ok := scaled(most, thousandths, factorGrain)
	if !ok {
		return nil
	}
	for _, spec := range bucketRates(rate, period, thousandths) {
		spec.Capacity, spec.Overdraft = most, max(all-most, 1)
		if made, err := weir.NewLimit(ceilingName(limit, spec), spec); err == nil {
			return made
		}
	}
	return nil
}

// bucketRates returns rate × thousandths/1000 for each period: exactly, and rounded up for numbers too large for that.
func bucketRates(rate int64, period time.Duration, thousandths int64) (list []weir.TokenBucket) {
	common := gcd(thousandths, factorGrain)
	up, down := thousandths/common, factorGrain/common
	if refill, ok := scaled(rate, up, 1); ok && period <= math.MaxInt64/time.Duration(down) {
		list = append(list, weir.TokenBucket{Refill: refill, Period: period * time.Duration(down)})
	}
	if refill, ok := scaled(rate, up, down); ok {
		list = append(list, weir.TokenBucket{Refill: refill, Period: period})
	}
	return list
}

// scaled is n × a/b, rounded up; ok is false where a limit cannot have that many.
func scaled(n, a, b int64) (product int64, ok bool) {
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	if hi >= uint64(b) {
		return 0, false
	}
	quotient, rest := bits.Div64(hi, lo, uint64(b))
	if quotient >= weir.MaxUnits {
		return 0, false
	}
	return int64(quotient) + int64(min(rest, 1)), true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// ceilingName hashes the limit's name and all numbers. Other numbers are another bucket: grants under the old ones say
// little about a store's grants under the new.
func ceilingName(limit *weir.Limit, spec weir.TokenBucket) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %s, %s", limit.Name(), limit, spec)
	return fmt.Sprintf("ceiling.%016x", hash.Sum64())
}

// DecideBatch implements weir.Batcher. Its requests are checked against the buckets independently: requests for
// one key may together be granted more than has room.
func (c *ceiling) DecideBatch(ctx context.Context, requests []weir.Request) {
	rooms := c.rooms(requests)
	if rooms == nil {
		decideBatch(ctx, c.Store, requests)
		for i := range requests {
			c.note(&requests[i])
		}
		return
	}
	c.decideBatch(ctx, requests, rooms)
}

// rooms returns how many of each request's times fit, or nil, without allocating, if all do.
func (c *ceiling) rooms(requests []weir.Request) (rooms []int64) {
	for i := range requests {
		r := &requests[i]
		s := c.under(r.Claims)
		room := c.room(s, r.Claims, r.Times)
		c.done(s)
		if room >= r.Times && room > 0 || r.Check() != nil {
			continue
		}
		if rooms == nil {
			rooms = make([]int64, len(requests))
			for j := range rooms {
				rooms[j] = weir.MaxUnits
			}
		}
		rooms[i] = room
	}
	return rooms
}

// decideBatch leaves out the requests without room, and reduces the times of requests with too little.
func (c *ceiling) decideBatch(ctx context.Context, requests []weir.Request, rooms []int64) {
	b := c.batches.Get().(*passedOn)
	defer c.batches.Put(b)
	for i := range requests {
		r := &requests[i]
		switch {
		case b.void(r):
			rooms[i] = weir.MaxUnits
		case rooms[i] == 0:
			c.refuseRequest(r)
			b.answered(r)
		default:
			passed := b.add(i, r)
			if rooms[i] >= r.Times {
				continue
			}
			if passed.Times = rooms[i]; r.Decisions != nil {
				passed.Decisions = r.Decisions[:len(r.Claims)*int(passed.Times)]
			}
		}
	}
	b.decide(ctx, c.Store, requests)
	for i := range requests {
		r := &requests[i]
		c.note(r)
		if room := rooms[i]; 0 < room && room < r.Times && r.Err == nil {
			c.cutRequest(r, int(room))
		}
	}
}

// note counts the grants of a request.
func (c *ceiling) note(r *weir.Request) {
	if r.Err != nil || r.Granted == 0 {
		return
	}
	s := c.under(r.Claims)
	defer c.done(s)
	c.take(s, r.Claims, r.Granted)
}

// refuseRequest refuses a request without a call.
func (c *ceiling) refuseRequest(r *weir.Request) {
	s := c.under(r.Claims)
	defer c.done(s)
	c.look(s)
	c.refused.Add(r.Times)
	if r.Granted, r.Err = 0, nil; r.Decisions != nil {
		s.fresh(r.Claims, r.Decisions[:len(r.Claims)])
		repeatFirst(r.Decisions, len(r.Claims))
	}
}

// cutRequest describes the times of a request that were not passed on.
func (c *ceiling) cutRequest(r *weir.Request, room int) {
	full := r.Granted == int64(room)
	if full {
		c.refused.Add(r.Times - r.Granted)
	}
	if r.Decisions == nil {
		return
	}
	n := len(r.Claims)
	rest := r.Decisions[room*n:]
	copy(rest, r.Decisions[(room-1)*n:room*n])
	if full {
		s := c.under(r.Claims)
		defer c.done(s)
		c.cut(s, r.Claims, rest[:n])
	}
	repeatFirst(rest, n)
}

// repeatFirst fills decisions with copies of the first n.
func repeatFirst(decisions []weir.Decision, n int) {
	for ; len(decisions) > n; decisions = decisions[n:] {
		copy(decisions[n:], decisions[:n])
	}
}
