package layers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// Leases are for keys so hot that one call of the store for each request is too much: a node
// takes units ahead of need in one call, spends them from memory and gives back unused ones.
//
// A key earns its lease by its rate; other keys, and all refusals, are decided by the store. Units are charged
// before they are spent, so the limit is never charged more than without leases; how much later they may pass,
// and what that means for the limit, is stated by Terms.Bound.

const (
	// maxLeases bounds the leases of a Store. A lease costs some 600 bytes and its keys; keys without room
	// are decided one by one.
	maxLeases = 1024
	// leaseTimeout bounds a call that the layer makes for many callers or for no caller: taking a lease, giving back.
	// It is longer than the store's own timeout of a call.
	leaseTimeout = time.Second
)

// leaser is a weir.Store that leases from another. It is safe for concurrent use. It has one goroutine while it
// has leases, and one for each lease that is being taken.
//
// A lease is for all claims of a decision together: their keys, limits, costs and floors, in their order. It is taken
// where all of them may be leased; otherwise the decision passes through. So do peeks, requests for several times at
// once, costs of 0, requests with an id (weir.Once), decisions without a result slice (nil), Charge and Refund. A limit
// with other numbers is another limit: the old one's lease goes back when its time is over.
//
// A decision from a lease describes the instant of its charge: At and ResetAfter are of that instant, so that
// Refund finds the unit and their sum stays true. Remaining is the store's remainder then plus the lease's
// remainder now. RetryAfter is 0, but for the last unit of a lease that took all there was. Delay, where a
// bucket is overdrawn, is the delay of the unit, counted from now.
//
// While the store is unavailable, leased units are spent until their time is over; then callers get the store's
// error.
type leaser struct {
	weir.Store            // the next one. Refund gives units from a lease back to it, too.
	keyed      keyDecider // the next one, if it implements it
	terms      func(*weir.Limit) leaseTerms
	timeout    time.Duration
	room       int // most leases

	seed    hashSeed
	start   time.Time
	heat    requestHeat
	buckets []atomic.Pointer[leaseEntry]
	batches sync.Pool // of *batch

	mu       sync.Mutex
	accounts unitAccounts
	landed   *leaseFlight // a flight that has ended
	stats    leaserStats
	sweeping bool
	closed   bool
	stop     chan struct{}
	running  sync.WaitGroup // the sweeper and refills
}

// keyDecider is a store that decides some requests of one key without claims, as weir.Limiter knows it.
type keyDecider interface {
	DecideKey(key string, limits []*weir.Limit, cost, floor int64) (worst int, granted bool, remaining int64,
		retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool)
}

// newLeaser returns a layer over next. terms says how a limit may be leased; the zero leaseTerms, and terms that
// leaseTerms.check refuses, say that it may not. It is called concurrently, after each granted decision without a
// lease, and must always return the same for one limit: a look-up in a constant map is right.
//
// Close gives units back and closes next.
func newLeaser(next weir.Store, terms func(*weir.Limit) leaseTerms) *leaser {
	s := &leaser{
		Store: next, terms: terms, timeout: leaseTimeout, room: maxLeases,
		seed: newHashSeed(), start: time.Now(),
		buckets:  make([]atomic.Pointer[leaseEntry], 2<<bits.Len(maxLeases-1)),
		accounts: make(unitAccounts), stop: make(chan struct{}), landed: &leaseFlight{done: make(chan struct{})},
	}
	close(s.landed.done)
	s.batches.New = func() any { return new(leaseBatch) }
	s.keyed, _ = next.(keyDecider)
	return s
}

// now is the monotonic clock in nanoseconds.
func (s *leaser) now() int64 { return int64(time.Since(s.start)) }

func (s *leaser) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	hash, ok := s.hash(claims)
	if !ok || times != 1 || len(decisions) != len(claims) {
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	e := s.find(hash, claims)
	if e == nil {
		return s.ask(ctx, hash, claims, decisions)
	}
	if e.spend(s.now(), decisions) {
		return 1, nil
	}
	return s.await(ctx, e, claims, decisions)
}

// DecideKey is Decide of one request, for a lease of one claim: see weir.Limiter.
func (s *leaser) DecideKey(key string, limits []*weir.Limit, cost, floor int64) (worst int, granted bool,
	remaining int64, retryAfter, resetAfter, delay time.Duration, at weir.Instant, ok bool) {
	if len(limits) == 1 {
		l := limits[0]
		if e := s.findOne(s.seed.claim(0, key, l, cost, floor), key, l, cost, floor); e != nil {
			remaining, retryAfter, resetAfter, at, granted = e.spendOne(s.now())
			return 0, granted, remaining, retryAfter, resetAfter, 0, at, granted
		}
	}
	if s.keyed == nil || slices.ContainsFunc(limits, s.lends) {
		return
	}
	return s.keyed.DecideKey(key, limits, cost, floor)
}

// ask passes on a decision without a lease. A granted one counts towards earning one.
func (s *leaser) ask(ctx context.Context, hash uint64, claims []weir.Claim, decisions []weir.Decision) (int64, error) {
	granted, err := s.Store.Decide(ctx, claims, 1, decisions)
	if err == nil && granted > 0 {
		s.warm(hash, claims, decisions)
	}
	return granted, err
}

// maxLeaseRounds is how often a caller waits for a lease when others have spent the last one first. Waiting is no
// slower than a separate call and spares the store: with 128 callers and leases too small for them, twice as
// many a second got through.
const maxLeaseRounds = 4

// await decides on a key with a used up lease: it waits for the next grant, or calls the store where no grant can
// be had. Only the store refuses.
func (s *leaser) await(ctx context.Context, e *leaseEntry, claims []weir.Claim,
	decisions []weir.Decision) (int64, error) {
	for range maxLeaseRounds {
		f := s.join(ctx, e)
		if f == nil {
			break
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w (waiting for a lease, not charged): %w", weir.ErrUnavailable, ctx.Err())
		}
		if f.err != nil {
			return 0, f.err
		}
		if e.spend(s.now(), decisions) {
			return 1, nil
		}
	}
	granted, err := s.Store.Decide(ctx, claims, 1, decisions)
	if err == nil {
		e.room.Store(e.share(decisions))
	}
	return granted, err
}

// Reset implements weir.Store. Leases of these keys on this node end, and their units are not given back, since
// their charge was reset. Other nodes spend their units until the lease's time is over, and give the rest back as if
// there had been no reset.
func (s *leaser) Reset(ctx context.Context, claims []weir.Claim) error {
	if weir.Check(claims, 0, nil) != nil {
		return s.Store.Reset(ctx, claims) // which reports the error
	}
	// Before, so that no unit of a reset charge is refunded; after, because a lease may have been taken meanwhile.
	before := s.forget(claims)
	return errors.Join(before, s.Store.Reset(ctx, claims), s.forget(claims))
}

// leaserStats are counters of a store.
type leaserStats struct {
	Leases   int64 // current leases
	Refills  int64 // calls that took units ahead of need
	Taken    int64 // requests that these calls paid for
	Returned int64 // requests of Taken whose units were given back
	Lost     int64 // requests of Taken whose refund failed: they stay charged
}

// Stats returns the counters.
func (s *leaser) Stats() leaserStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close implements weir.Store. It waits for calls under way, gives all units back, which takes three timeouts
// at most, and closes the store below.
func (s *leaser) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.Store.Close()
	}
	s.closed = true
	close(s.stop)
	left := s.unlink(func(*leaseEntry) bool { return true })
	s.mu.Unlock()
	s.running.Wait() // refills find their entry gone and give their units back
	return errors.Join(s.retireAll(left), s.Store.Close())
}

// retireAll gives back the units of entries, within one timeout.
func (s *leaser) retireAll(entries []*leaseEntry) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	var mu sync.Mutex
	var failed []error
	s.atOnce(entries, func(e *leaseEntry) {
		if err := s.retire(ctx, e, e.grant.Load()); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		}
	})
	return errors.Join(failed...)
}

const (
	// defaultHold is the Hold of Terms with a Hold of 0.
	defaultHold = 100 * time.Millisecond

	minHold = time.Millisecond
	maxHold = 10 * time.Second

	// minLease is the smallest lease that is worth a call.
	minLease = 2
	// minWindowHolds is the number of holds that a sliding window must span: units pass up to one hold later than they
	// count, which must be small beside the window.
	minWindowHolds = 10
)

// leaseTerms say how a limit may be leased. The zero Terms say that it may not.
type leaseTerms struct {
	// Share bounds one lease to this fraction of the last known remainder, and all leases of one key on a node
	// to this fraction of the whole limit: above 0, at most 1. 0.1 is a good one.
	Share float64
	// Hold is the longest time that a unit is held before it is spent or goes back: 1ms to 10s, 0 is
	// defaultHold. Its refund begins 25ms later at most. A lease is sized for half of Hold, by the key's own rate.
	Hold time.Duration
}

// check returns an error for invalid terms; the zero Terms are valid.
func (t leaseTerms) check() error {
	if !(t.Share >= 0 && t.Share <= 1) { // NaN is neither
		return &weir.InputError{Field: "share", Given: t.Share, Allowed: "above 0, at most 1; 0 is no lease"}
	}
	if t.Hold != 0 && (t.Hold < minHold || t.Hold > maxHold) {
		return &weir.InputError{Field: "hold", Given: t.Hold, Allowed: "1ms to 10s; 0 is 100ms"}
	}
	return nil
}

func (t leaseTerms) hold() time.Duration {
	if t.Hold == 0 {
		return defaultHold
	}
	return t.Hold
}

// most is the most units of one key that a node holds; 0: the limit is not leased. Never leased are concurrency
// and fair limits, because their units have an owner, sliding windows shorter than ten holds, and limits with a share
// of less than two units.
func (t leaseTerms) most(l *weir.Limit) int64 {
	if t.check() != nil || t.Share == 0 {
		return 0
	}
	if l.Leases() || l.Whole() != nil || l.CountsFor() > 0 && l.Period() < minWindowHolds*t.hold().Microseconds() {
		return 0
	}
	most := min(partOf(t.Share, l.Most()), weir.MaxUnits)
	if most < minLease {
		return 0
	}
	return most
}

// partOf is a share of n units, rounded down.
func partOf(share float64, n int64) int64 { return int64(share * float64(n)) }

// lends reports whether a limit may be leased.
func (s *leaser) lends(l *weir.Limit) bool { return s.terms(l).most(l) > 0 }

// A leaseBound is the promise of a limit when nodes lease from it. All units that pass were charged, so the limit is
// never charged more than without leases; but a unit may pass up to Hold after its charge.
//
// Let U = Nodes × Held, the most that is charged and neither spent nor returned. Units that pass in a time T were
// held when T began, or charged in T. Of the units charged in T, the ones that are not given back keep the limit's
// own bound: windows and logs never see the others, and a bucket regains from returned units no more than was held.
// So leases add at most U. To windows, fixed and of calendars, they add no unit, because a unit passes in the window
// of its charge. To sliding windows it also applies that the units that pass in T were charged in T + Hold.
//
// It holds while the clocks of nodes and store run alike to a thousandth, the store's clock is not set forward, and a
// refund arrives within the layer's timeout or not at all. A Reset discards charges, and so may add U once more.
type leaseBound struct {
	Limit *weir.Limit
	Nodes int           // processes that share the limit
	Held  int64         // most units that one of them holds; 0: not leased
	Hold  time.Duration // longest time for which it holds them
}

// leaseBoundOf returns the bound of a limit that a number of nodes lease under the same terms.
func leaseBoundOf(l *weir.Limit, t leaseTerms, nodes int) leaseBound {
	return leaseBound{Limit: l, Nodes: nodes, Held: t.most(l), Hold: t.hold()}
}

// String is a sentence such as "at most 10000 + 5000/1s × T + 3 × 1000 units in any T".
func (b leaseBound) String() string {
	l := b.Limit
	if b.Held == 0 {
		return "not leased"
	}
	more := fmt.Sprintf("%d × %d", b.Nodes, b.Held)
	period := time.Duration(l.Period()) * time.Microsecond
	switch {
	case l.Refills():
		return fmt.Sprintf("at most %d + %d/%s × T + %s units in any T", l.Most(), l.Refill(), period, more)
	case l.Windowed():
		return fmt.Sprintf("at most %d units in each window, as without leases", l.Capacity())
	case l.Itemized():
		return fmt.Sprintf("at most %d + %s units in any %s, %[1]d in any %[4]s",
			l.Capacity(), more, period, period-b.Hold)
	}
	return fmt.Sprintf("at most %s units more than the counter of %d in any time", more, l.Capacity())
}

// An leaseEntry is a lease: a sequence of grants for the same claims.
type leaseEntry struct {
	hash   uint64
	next   atomic.Pointer[leaseEntry] // in its bucket
	claims []weir.Claim               // with copied keys
	grant  atomic.Pointer[leaseGrant] // nil: none yet

	shares []claimShare
	hold   time.Duration
	room   atomic.Int64 // requests that the shares of the last known remainder allow
	seen   atomic.Int64 // when a caller last found no grant to spend

	// Under Store.mu:
	want      int64        // requests in half a holding time, by the key's rate
	flight    *leaseFlight // the call for the next grant, if under way
	rests     int64        // until then it takes no grant, but is kept
	gone      bool         // removed from the table
	forgotten []bool       // claims that were reset: their charges are void
}

// A claimShare bounds the units that a claim of an entry may take.
type claimShare struct {
	part float64 // fraction of the remainder
	most int64   // units that the node may hold
}

func (e *leaseEntry) is(claims []weir.Claim) bool {
	if len(claims) != len(e.claims) {
		return false
	}
	for i := range claims {
		own, c := &e.claims[i], &claims[i]
		same := own.Limit == c.Limit && own.Cost == c.Cost && own.Floor == c.Floor && own.Key == c.Key
		if !same || c.Lease != "" || c.Renew {
			return false
		}
	}
	return true
}

// spend decides a request from the grant.
func (e *leaseEntry) spend(now int64, decisions []weir.Decision) bool {
	g := e.grant.Load()
	left, ok := g.spend(now)
	if ok {
		g.describe(e.claims, left, now, decisions)
	}
	return ok
}

// spendOne is spend of an entry of one claim, with a grant without a Delay.
func (e *leaseEntry) spendOne(now int64) (remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant,
	ok bool) {
	g := e.grant.Load()
	if g == nil || g.delayed {
		return 0, 0, 0, 0, false
	}
	left, ok := g.spend(now)
	if !ok {
		return 0, 0, 0, 0, false
	}
	d := &g.decisions[0]
	if left == 0 {
		retryAfter = d.RetryAfter
	}
	return d.Remaining + left*e.claims[0].Cost, retryAfter, d.ResetAfter, d.At, true
}

// share is the number of requests that the shares of the remainder allow.
func (e *leaseEntry) share(decisions []weir.Decision) int64 {
	n := int64(weir.MaxUnits)
	for i := range e.shares {
		n = min(n, partOf(e.shares[i].part, decisions[i].Remaining)/e.claims[i].Cost)
	}
	return n
}

// maxGrowth bounds the size of a grant relative to the last: a burst is not a rate.
const maxGrowth = 8

// learn adapts the next size to how fast the grant was used. Under Store.mu.
func (e *leaseEntry) learn(g *leaseGrant, left, now int64) {
	used, took := g.size-left, max(now-g.landed, 1)
	want := float64(used) * float64(e.hold/2) / float64(took)
	e.want = int64(min(want, float64(maxGrowth*g.size)))
}

// hash returns the hash of claims; ok is false where one can never be leased.
func (s *leaser) hash(claims []weir.Claim) (hash uint64, ok bool) {
	for i := range claims {
		c := &claims[i]
		if c.Limit == nil || c.Cost == 0 || c.Once {
			return 0, false
		}
		hash = s.seed.claim(hash, c.Key, c.Limit, c.Cost, c.Floor)
	}
	return hash, len(claims) > 0
}

func (s *leaser) bucket(hash uint64) *atomic.Pointer[leaseEntry] {
	return &s.buckets[hash&uint64(len(s.buckets)-1)]
}

func (s *leaser) find(hash uint64, claims []weir.Claim) *leaseEntry {
	e := s.bucket(hash).Load()
	for e != nil && !(e.hash == hash && e.is(claims)) {
		e = e.next.Load()
	}
	return e
}

// findOne is find for one claim.
func (s *leaser) findOne(hash uint64, key string, l *weir.Limit, cost, floor int64) *leaseEntry {
	for e := s.bucket(hash).Load(); e != nil; e = e.next.Load() {
		if e.hash == hash && len(e.claims) == 1 && e.claims[0].Limit == l && e.claims[0].Cost == cost &&
			e.claims[0].Floor == floor && e.claims[0].Key == key {
			return e
		}
	}
	return nil
}

// newLeaseEntry copies the claims, because their memory is the caller's.
func newLeaseEntry(hash uint64, claims []weir.Claim, shares []claimShare, hold time.Duration) *leaseEntry {
	e := &leaseEntry{hash: hash, shares: shares, hold: hold, forgotten: make([]bool, len(claims))}
	for _, c := range claims {
		c.Key = strings.Clone(c.Key)
		e.claims = append(e.claims, c)
	}
	return e
}

// link puts an entry into the table; its readers take no lock. Under Store.mu.
func (s *leaser) link(e *leaseEntry) {
	head := s.bucket(e.hash)
	e.next.Store(head.Load())
	head.Store(e)
	s.stats.Leases++
}

// unlink removes entries from the table; calls under way for them finish. Under Store.mu.
func (s *leaser) unlink(which func(*leaseEntry) bool) (out []*leaseEntry) {
	for i := range s.buckets {
		link := &s.buckets[i]
		for e := link.Load(); e != nil; e = link.Load() {
			if !which(e) {
				link = &e.next
				continue
			}
			link.Store(e.next.Load())
			e.gone = true
			s.stats.Leases--
			out = append(out, e)
		}
	}
	return out
}

// A leaseGrant is the result of one call: units for a number of requests, and the store's decisions. All fields but
// left and held are constant after landing.
type leaseGrant struct {
	size      int64 // requests
	landed    int64 // when the answer arrived
	until     int64 // end of the time for spending, exclusive
	decisions []weir.Decision
	delayed   bool  // some requests have a Delay, from an overdraft
	held      int64 // requests in the accounts for it, under Store.mu

	_    [64]byte // keeps the field that all write off the cache lines that all read
	left atomic.Int64
	_    [56]byte
}

// endedGrant is the value of left in an ended grant: so low that no number of concurrent decrements reaches it or
// leaves it.
const endedGrant = math.MinInt64 / 2

// live reports whether a request may be spent.
func (g *leaseGrant) live(now int64) bool { return g != nil && now < g.until && g.left.Load() > 0 }

// spend takes one request; left is how many remain.
func (g *leaseGrant) spend(now int64) (left int64, ok bool) {
	if g == nil || now >= g.until {
		return 0, false
	}
	left = g.left.Add(-1)
	return left, left >= 0
}

// end takes all that is left. Only the first call gets anything.
func (g *leaseGrant) end() (left int64, first bool) {
	left = g.left.Swap(endedGrant)
	return max(0, left), left > endedGrant/2
}

func (g *leaseGrant) ended() bool { return g.left.Load() <= endedGrant/2 }

// grantLasts is how long after the call was sent a grant may be spent: no longer than its hold, and than the windows of
// its charges. The store's ResetAfter counts from an instant after the sending, so counting from the sending is safe.
// A thousandth less for clocks of different speeds, and a microsecond less because the store rounds its time down.
func grantLasts(hold time.Duration, claims []weir.Claim, decisions []weir.Decision) time.Duration {
	for i := range claims {
		if claims[i].Limit.Windowed() {
			hold = min(hold, decisions[i].ResetAfter)
		}
	}
	return hold - hold/1000 - time.Microsecond
}

// describe fills in the decisions of a request after which left requests remain.
func (g *leaseGrant) describe(claims []weir.Claim, left, now int64, decisions []weir.Decision) {
	for i := range decisions {
		d, taken := &decisions[i], &g.decisions[i]
		d.Remaining = taken.Remaining + left*claims[i].Cost
		d.RetryAfter = 0
		if left == 0 {
			d.RetryAfter = taken.RetryAfter
		}
		d.ResetAfter, d.At, d.Delay = taken.ResetAfter, taken.At, 0
		if g.delayed {
			d.Delay = g.delay(i, &claims[i], left, now)
		}
	}
}

// delay is the delay of the last request of the grant, less the borrowing of the requests after this one, and less
// the time since. A bucket that steps repays in leaps: there all have the last one's.
func (g *leaseGrant) delay(i int, c *weir.Claim, left, now int64) time.Duration {
	wait := g.decisions[i].Delay - time.Duration(now-g.landed)
	if wait > 0 && !c.Limit.Step() {
		later, _ := c.Limit.Interval().Times(left * c.Cost)
		wait -= time.Duration(later) * time.Microsecond
	}
	return max(0, wait).Round(time.Microsecond)
}

// earningRequests is the number of requests in half a hold that earns a key a lease: a lease costs two calls, to
// take and to give back, and must save more.
const earningRequests = 4

// requestHeat counts requests by hash, approximately and in constant memory, because clients choose the keys. Keys
// that collide may earn leases together; the colder one's is soon given up.
type requestHeat [4096]atomic.Uint64 // the interval in the upper half, the count in the lower

// add counts one request of the interval and returns the count.
func (h *requestHeat) add(hash, interval uint64) int64 {
	place := &h[hash%uint64(len(h))]
	for {
		old := place.Load()
		count := old<<32>>32 + 1
		if old>>32 != interval<<32>>32 {
			count = 1
		}
		if place.CompareAndSwap(old, interval<<32|count) {
			return int64(count)
		}
	}
}

// warm counts a request that the store granted. If its claims may be leased and are frequent enough, they get
// an entry.
func (s *leaser) warm(hash uint64, claims []weir.Claim, decisions []weir.Decision) {
	hold, ok := s.hold(claims)
	if !ok {
		return
	}
	now := s.now()
	// Only every fourth request: there may be no room, and the lock is expensive.
	if s.heat.add(hash, uint64(now/int64(hold/2)))%earningRequests == 0 {
		s.enter(hash, claims, decisions, hold, now)
	}
}

// hold is the shortest hold of claims; ok is false where one may not be leased.
func (s *leaser) hold(claims []weir.Claim) (hold time.Duration, ok bool) {
	hold = maxHold
	for i := range claims {
		terms := s.terms(claims[i].Limit)
		if terms.most(claims[i].Limit) == 0 {
			return 0, false
		}
		hold = min(hold, terms.hold())
	}
	return hold, true
}

// enter adds an entry if there is room and it is new.
func (s *leaser) enter(hash uint64, claims []weir.Claim, decisions []weir.Decision, hold time.Duration, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.stats.Leases >= int64(s.room) || s.find(hash, claims) != nil {
		return
	}
	e := newLeaseEntry(hash, claims, s.shares(claims), hold)
	e.want = earningRequests
	e.seen.Store(now)
	e.room.Store(e.share(decisions))
	s.link(e)
	if !s.sweeping {
		s.sweeping = true
		s.running.Go(s.sweep)
	}
}

func (s *leaser) shares(claims []weir.Claim) []claimShare {
	shares := make([]claimShare, len(claims))
	for i := range claims {
		terms := s.terms(claims[i].Limit)
		shares[i] = claimShare{part: terms.Share, most: terms.most(claims[i].Limit)}
	}
	return shares
}
