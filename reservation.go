package weir

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// NewLeaseID returns an id of 128 random bits, for [Claim].Lease.
func NewLeaseID() string {
	room := idRoom.Get().(*[16 + 22]byte)
	defer idRoom.Put(room)
	random, text := room[:16], room[16:]
	rand.Read(random) // never fails: see its documentation
	base64.RawURLEncoding.Encode(text, random)
	return string(text)
}

// idRoom is reused, because an argument of rand.Read is allocated.
var idRoom = sync.Pool{New: func() any { return new([16 + 22]byte) }}

// A Reservation is units that were charged by an estimate, until Settle corrects them to the
// actual cost or Cancel gives them back. It is safe for concurrent use.
type Reservation struct {
	limiter *Limiter
	answer  Answer
	held    *Lease // nil: the limiter has no concurrency limit

	mu       sync.Mutex
	one      [1]Claim   // the charge under the only limit; Cost is the sum so far. Else room for a lease
	more     []reserved // or those under several limits
	each     bool       // made by ReserveEach
	released bool       // or told that the leases are gone, which is held.lost
	tried    bool       // to release, without an answer
	done     bool
}

// reserved is the charge under one of several limits; Cost is the sum so far.
type reserved struct {
	Claim
	at Instant // the store's time of the charge
}

// Reserve charges n units, an estimate of a cost known only later: bytes sent, tokens
// spent. If they are refused the error is a *RefusedError. Concurrency limits take part
// with a lease of n units, which ends when the reservation is settled.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.reserve(ctx, costs{n}, key)
}

// ReserveEach is Reserve with a cost for each limit, in the order of Limits: one request and
// its estimated tokens, for example. Settle it with SettleEach.
func (l *Limiter) ReserveEach(ctx context.Context, key string, cost ...int64) (*Reservation, error) {
	if err := l.checkEach(cost); err != nil {
		return nil, err
	}
	r, err := l.reserve(ctx, cost, key)
	if err == nil {
		r.each = true
	}
	return r, err
}

// reserve charges one key, or one for each limit.
func (l *Limiter) reserve(ctx context.Context, cost costs, keys ...string) (*Reservation, error) {
	if len(l.limits) == 1 && !l.holds() && l.local == nil {
		return l.reserveOne(ctx, keys[0], cost[0])
	}
	c, lease := l.call("", costs{0}), ""
	defer l.done(c)
	var sent time.Duration
	if l.holds() {
		lease, sent = NewLeaseID(), l.sinceStart()
	}
	c.fill(keys[0], cost, lease)
	c.spread(keys)
	granted, err := l.store.Decide(ctx, c.claims, 1, c.decisions)
	if l.local != nil && errors.Is(err, ErrUnavailable) {
		return l.local.reserve(ctx, cost, keys...) // which settles and releases there too
	}
	if err != nil {
		return nil, err
	}
	if granted == 0 {
		refused := new(RefusedError)
		c.answer(&refused.Answer)
		return nil, refused
	}
	return l.reservation(c, cost, sent), nil
}

// reserveOne is reserve under one limit that takes no lease: its answer says all.
func (l *Limiter) reserveOne(ctx context.Context, key string, cost int64) (*Reservation, error) {
	answer, err := l.decide(ctx, key, cost)
	switch {
	case err != nil:
		return nil, err
	case !answer.Allowed:
		return nil, &RefusedError{Answer: answer}
	}
	r := &Reservation{limiter: l, answer: answer}
	claim := &r.one[0]
	*claim = l.claim(key, 0)
	claim.Cost, claim.Delay = cost, claim.Limit.due(answer.Delay)
	return r, nil
}

// due is the Delay of the refund of a grant. One without a delay still has its turn in the microsecond of the
// decision.
func (l *Limit) due(delay time.Duration) time.Duration {
	if l.lends() {
		return max(delay, time.Microsecond)
	}
	return delay
}

// reservation makes the Reservation of a granted call that was charged these costs. sent is before the call took
// leases.
func (l *Limiter) reservation(c *call, cost costs, sent time.Duration) *Reservation {
	r := l.newReservation()
	if r.limiter = l; len(c.claims) > 1 {
		r.more = make([]reserved, len(c.claims))
	}
	for i := range c.decisions {
		u, d := r.claim(i), &c.decisions[i]
		*u = c.claims[i]
		u.Cost, u.Delay = cost.of(i), u.Limit.due(d.Delay)
		if r.more != nil {
			r.more[i].at = d.At
		}
	}
	c.answer(&r.answer)
	r.answer.Allowed = true
	if r.held != nil {
		r.held.begin(r, sent)
	}
	return r
}

func (l *Limiter) newReservation() *Reservation {
	if !l.holds() {
		return new(Reservation)
	}
	both := new(leased)
	both.held = &both.own
	return &both.Reservation
}

// leased is a reservation with leases: one piece of memory.
type leased struct {
	Reservation
	own Lease
}

// claim is the charge under limit i.
func (r *Reservation) claim(i int) *Claim {
	if r.more == nil {
		return &r.one[i]
	}
	return &r.more[i].Claim
}

// limits is the number of limits.
func (r *Reservation) limits() int { return max(1, len(r.more)) }

// Answer is the store's answer when the units were reserved. Sleep its Delay before you use
// them; [Limiter.Wait] does.
func (r *Reservation) Answer() Answer { return r.answer }

// Cancel gives everything back. It is Settle(ctx, 0).
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Settle ends the reservation with its actual cost: the excess is given back, a shortfall is
// charged, even beyond the limit. A second call has no effect. After an error, call Settle
// again: the outcome is unknown; if the first call was executed all the same,
// the units may be refunded twice. The leases are released in any case. ErrLeaseGone is no such
// error: the cost is settled, but a lease had expired before, and another caller may have held its
// units meanwhile.
//
// actual is the cost for each limit of the reservation. A reservation of ReserveEach is settled
// by SettleEach, unless actual is 0.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if n := r.limits(); r.each && actual != 0 && n > 1 {
		return invalid("actual", actual,
			"0, or SettleEach with a cost for each of the "+strconv.Itoa(n)+" limits, as they were reserved")
	}
	return r.settleOnce(ctx, costs{actual})
}

// SettleEach is Settle with the actual cost of each limit, in the order of the limits.
// Of a concurrency limit it is ignored: a lease ends as a whole.
func (r *Reservation) SettleEach(ctx context.Context, actual ...int64) error {
	if len(actual) != r.limits() {
		return invalid("actual", len(actual), strconv.Itoa(r.limits())+" costs, one for each limit")
	}
	return r.settleOnce(ctx, actual)
}

func (r *Reservation) settleOnce(ctx context.Context, actual costs) error {
	for _, n := range actual {
		if n < 0 || n > MaxUnits {
			return invalid("actual", n, "0 to 4503599627370496 (2^52)")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil
	}
	err := r.settle(ctx, actual)
	// The work has ended, whether or not its cost is known to the store.
	gone := r.release(ctx)
	if err == nil {
		err = gone
	}
	r.done = err == nil || errors.Is(err, ErrLeaseGone)
	return err
}

// release releases the leases once. After a call without an answer they may be gone because it was executed.
func (r *Reservation) release(ctx context.Context) error {
	switch {
	case r.held == nil:
		return nil
	case r.released:
		return r.held.lost
	}
	err := r.refundLeases(ctx)
	gone := errors.Is(err, ErrLeaseGone)
	if r.released = err == nil || gone; !r.released {
		r.tried = true
		return err
	}
	r.held.freed()
	if gone && !r.tried {
		r.held.lost = err
	}
	return r.held.lost
}

// settle notes each step that succeeded, so that a repeat after an error does not repeat it.
func (r *Reservation) settle(ctx context.Context, actual costs) error {
	if r.more == nil {
		return r.settleOne(ctx, &r.one[0], actual[0])
	}
	var few [2]reserved
	more, less := r.differences(actual, few[:0:1], few[1:1])
	if len(more) > 0 {
		claims := claimsOf(more)
		err := r.limiter.store.Charge(ctx, *claims, nil)
		forget(claims)
		if err != nil {
			return err
		}
	}
	r.note(func(i int, charged int64) int64 { return max(charged, actual.of(i)) })
	if err := r.refund(ctx, less); err != nil {
		return err
	}
	r.note(func(i int, _ int64) int64 { return actual.of(i) })
	return nil
}

// settleOne is settle under one limit. The claim is the argument, as it need not be copied.
func (r *Reservation) settleOne(ctx context.Context, u *Claim, actual int64) (err error) {
	charged := u.Cost
	if u.Limit.Leases() || actual == charged {
		return nil
	}
	if u.Cost = actual - charged; u.Cost > 0 {
		u.Settle = charged > 0 // or there is no charge that was to be corrected
		err = r.limiter.store.Charge(ctx, r.one[:], nil)
	} else {
		u.Cost = -u.Cost
		err = r.limiter.store.Refund(ctx, r.one[:], r.answer.At, nil)
	}
	if u.Cost = actual; err != nil {
		u.Cost = charged
	}
	return err
}

// note sets the costs charged so far, except of leases.
func (r *Reservation) note(cost func(i int, charged int64) int64) {
	for i := range r.more {
		if u := &r.more[i]; !u.Limit.Leases() {
			u.Cost = cost(i, u.Cost)
		}
	}
}

// differences are the units still to be charged, and those to be given back, appended to lists.
func (r *Reservation) differences(actual costs, more, less []reserved) ([]reserved, []reserved) {
	for i, u := range r.more {
		if u.Limit.Leases() {
			continue
		}
		u.Settle = u.Cost > 0 // or there is no charge that was to be corrected
		if u.Cost = actual.of(i) - u.Cost; u.Cost > 0 {
			more = append(more, u)
		} else if u.Cost < 0 {
			u.Cost = -u.Cost
			less = append(less, u)
		}
	}
	return more, less
}

// refundLeases gives the leases back as they were reserved.
func (r *Reservation) refundLeases(ctx context.Context) error {
	if r.more == nil {
		return r.held.refund(ctx)
	}
	var leases []reserved
	for _, u := range r.more {
		if u.Lease != "" {
			leases = append(leases, u)
		}
	}
	return r.refund(ctx, leases)
}

// scratch holds claims of one call of a store, which does not keep them.
var scratch = sync.Pool{New: func() any { return newScratch() }}

func newScratch() *[]Claim {
	claims := make([]Claim, 0, MaxClaims)
	return &claims
}

func claimsOf(units []reserved) *[]Claim {
	claims := scratch.Get().(*[]Claim)
	for i := range units {
		*claims = append(*claims, units[i].Claim)
	}
	return claims
}

func forget(claims *[]Claim) {
	clear(*claims)
	*claims = (*claims)[:0]
	scratch.Put(claims)
}

// refund gives units back, each with the instant of its charge. All have the same one, unless
// they live on nodes of a Redis Cluster, which have different clocks.
func (r *Reservation) refund(ctx context.Context, units []reserved) error {
	var gone error
	for len(units) > 0 {
		at, same := units[0].at, 1
		for same < len(units) && units[same].at == at {
			same++
		}
		claims := claimsOf(units[:same])
		err := r.limiter.store.Refund(ctx, *claims, at, nil)
		forget(claims)
		if errors.Is(err, ErrLeaseGone) {
			gone = err
		} else if err != nil {
			return err
		}
		units = units[same:]
	}
	return gone
}

// Renew keeps the leases of the reservation for another time-to-live, if it has any.
// ErrLeaseGone means that one is lost: another caller may hold its units.
func (r *Reservation) Renew(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	return r.held.Renew(ctx)
}

// KeepAlive renews the leases of the reservation, if it has any, until stop is called; see
// [KeepAlive]. The time-to-live is the shortest of them.
func (r *Reservation) KeepAlive(ctx context.Context, failed func(error)) (stop func()) {
	if r.held == nil {
		return func() {}
	}
	return r.held.KeepAlive(ctx, failed)
}

// A Lease is units of a concurrency limit that are held until it is released, or until
// its time-to-live passes without Renew. It is safe for concurrent use.
type Lease struct {
	of     *Reservation
	claims []Claim // of the leases of the reservation, which have one id and are renewed together
	taken  Instant
	began  time.Duration // see Limiter.sinceStart: before the call was sent that took them
	since  atomic.Int64  // see Limiter.sinceStart: before the last call was sent that took or renewed them
	lost   error         // as the reservation told it
}

// Acquire holds one unit. It needs a limiter with at least one Concurrency limit; its
// other limits are charged one unit, which Release does not give back. If it is refused
// the error is a *RefusedError; its RetryAfter is an upper bound. After another error no unit is held: if it is
// unknown whether the store took a lease, the store releases it in the background.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireN(ctx, key, 1)
}

// AcquireN holds n units; see Acquire.
func (l *Limiter) AcquireN(ctx context.Context, key string, n int64) (*Lease, error) {
	if !l.holds() {
		return nil, invalid("limits", len(l.limits),
			"at least one Concurrency limit to acquire; use AllowN or Reserve")
	}
	if n == 0 {
		return nil, invalid("cost", n, "1 to 4503599627370496 (2^52) for a lease")
	}
	reservation, err := l.Reserve(ctx, key, n)
	if err != nil {
		return nil, err
	}
	return reservation.held, nil
}

// AcquireWait waits until one unit is granted under all limits, and holds it: a client that may
// send 600 requests a minute, 10 of them at once, waits for both in one decision. It is
// [Limiter.WaitN] for limiters with a concurrency limit, with its order, errors and Delay.
//
// One call of the store at a time asks for all callers of a Limiter that wait for a key: when
// one of them releases, else at intervals of 10 to 500 ms, because other processes release too.
func (l *Limiter) AcquireWait(ctx context.Context, key string) (*Lease, error) {
	if !l.holds() {
		return nil, invalid("limits", len(l.limits), "at least one Concurrency limit to acquire; use Wait")
	}
	reservation, err := l.wait(ctx, key, costs{1})
	if err != nil {
		return nil, err
	}
	return reservation.held, nil
}

// holds reports whether a grant takes a lease.
func (l *Limiter) holds() bool {
	return slices.ContainsFunc(l.limits, (*Limit).Leases)
}

// ID is the lease's id: 128 random bits as text.
func (l *Lease) ID() string { return l.claims[0].Lease }

// Answer is the store's answer when the lease was taken.
func (l *Lease) Answer() Answer { return l.of.answer }

// Renew keeps the lease for another time-to-live. ErrLeaseGone means that it is lost: stop
// the work, because another caller may hold its units.
func (l *Lease) Renew(ctx context.Context) error {
	claims := slices.Clone(l.claims)
	for i := range claims {
		claims[i].Renew = true
	}
	limiter := l.of.limiter
	sent := limiter.sinceStart()
	granted, err := limiter.store.Decide(ctx, claims, 1, nil)
	switch {
	case err != nil:
		return err
	case granted == 0:
		return ErrLeaseGone
	}
	l.since.Store(int64(sent))
	return nil
}

// KeepAlive renews the lease until stop is called; see [KeepAlive].
func (l *Lease) KeepAlive(ctx context.Context, failed func(error)) (stop func()) {
	ttl := l.claims[0].Limit.period
	for _, claim := range l.claims[1:] {
		ttl = min(ttl, claim.Limit.period)
	}
	since := l.of.limiter.start.Add(time.Duration(l.since.Load()))
	return keepAlive(ctx, since, time.Duration(ttl)*time.Microsecond, l.Renew, failed)
}

// Release gives the units back. ErrLeaseGone means that the lease had ended before. After another error the store
// repeats the release in the background, as long as the lease would last.
func (l *Lease) Release(ctx context.Context) error {
	err := l.refund(ctx)
	if err == nil {
		l.freed()
	}
	return err
}

func (l *Lease) refund(ctx context.Context) error {
	return l.of.limiter.store.Refund(ctx, l.claims, l.taken, nil)
}

// begin is called with the reservation that holds the leases; sent is before the call that took them.
func (l *Lease) begin(r *Reservation, sent time.Duration) {
	l.of, l.taken, l.claims = r, r.answer.At, r.one[:0] // of one limit, where the claim is
	l.began = sent
	l.since.Store(int64(sent))
	for i := range r.limits() {
		u := r.claim(i)
		if u.Lease == "" {
			continue
		}
		if len(l.claims) == 0 && r.more != nil {
			l.taken = r.more[i].at
		}
		l.claims = append(l.claims, *u)
	}
	if len(l.claims) == 0 { // costs of 0 take no leases
		r.held = nil
	}
}

// freed wakes the callers that wait for the units, and tells the limits how long they were held.
func (l *Lease) freed() {
	l.of.limiter.waiters.freed(l.claims[0].Key)
	for i := range l.claims {
		l.claims[i].Limit.Held(l.age)
	}
}

func (l *Lease) age() time.Duration { return l.of.limiter.sinceStart() - l.began }
