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

// idRoom is reused, as what is passed to rand.Read is allocated.
var idRoom = sync.Pool{New: func() any { return new([16 + 22]byte) }}

// A Reservation is units that were charged by an estimate, until Settle corrects them to the
// actual cost or Cancel gives them back. It is safe for concurrent use.
type Reservation struct {
	store  Store
	answer Answer
	each   bool  // made by ReserveEach
	held   *held // nil: the limiter has no concurrency limit

	mu       sync.Mutex
	units    []reserved  // one a limit
	one      [1]reserved // in itself, so that it need not be allocated
	released bool        // or told that the leases are gone, which is lost
	tried    bool        // to release, without an answer
	lost     error
	done     bool
}

// reserved is the charge under one limit; Cost is the sum so far.
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
	c, lease := l.call("", costs{0}), ""
	defer l.done(c)
	var sent time.Time
	if l.holds() {
		lease, sent = NewLeaseID(), time.Now()
	}
	c.fill(keys[0], cost, lease)
	c.spread(keys)
	granted, err := l.store.Decide(ctx, c.claims, 1, c.decisions)
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

// reservation is that of a call which was granted, charged with these costs. sent is before the call took leases.
func (l *Limiter) reservation(c *call, cost costs, sent time.Time) *Reservation {
	r := l.newReservation()
	if r.store, r.units = l.store, r.one[:]; len(c.claims) > 1 {
		r.units = make([]reserved, len(c.claims))
	}
	for i := range c.decisions {
		u, d := &r.units[i], &c.decisions[i]
		u.Claim, u.at = c.claims[i], d.At
		u.Cost, u.Delay = cost.of(i), d.Delay
		if u.Limit.lends() {
			// A grant without a delay still has its turn in the microsecond of the decision.
			u.Delay = max(d.Delay, time.Microsecond)
		}
	}
	c.answer(&r.answer)
	r.answer.Allowed = true
	if r.held != nil {
		r.held.begin(l, r, sent)
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
	own held
}

// Answer is the store's answer when the units were reserved. Sleep its Delay before you use
// them; [Limiter.Wait] does.
func (r *Reservation) Answer() Answer { return r.answer }

// Cancel gives everything back. It is Settle(ctx, 0).
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Settle ends the reservation with its actual cost: the excess is given back, a shortfall is
// charged, even beyond the limit. A second call does nothing. After an error, call Settle
// again: nothing is known to have been settled; if the first call was executed all the same,
// the units may be refunded twice. The leases are released in any case. ErrLeaseGone is no such
// error: everything is settled, but a lease had expired before, and another caller may have held its
// units meanwhile.
//
// actual is the cost for each limit of the reservation. One that ReserveEach made is settled
// by SettleEach, unless actual is 0.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if n := len(r.units); r.each && actual != 0 && n > 1 {
		return invalid("actual", actual,
			"0, or SettleEach with a cost for each of the "+strconv.Itoa(n)+" limits, as they were reserved")
	}
	return r.settleOnce(ctx, costs{actual})
}

// SettleEach is Settle with the actual cost of each limit, in the order of the limits.
// Of a concurrency limit it is ignored: a lease ends as a whole.
func (r *Reservation) SettleEach(ctx context.Context, actual ...int64) error {
	if len(actual) != len(r.units) {
		return invalid("actual", len(actual), strconv.Itoa(len(r.units))+" costs, one for each limit")
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
	if r.released {
		return r.lost
	}
	err := r.refund(ctx, r.leases())
	gone := errors.Is(err, ErrLeaseGone)
	if r.released = err == nil || gone; !r.released {
		r.tried = true
		return err
	}
	r.held.freed()
	if gone && !r.tried {
		r.lost = err
	}
	return r.lost
}

// settle notes each step that succeeded, so that a repeat after an error does not repeat it.
func (r *Reservation) settle(ctx context.Context, actual costs) error {
	var few [2]reserved
	more, less := r.differences(actual, few[:0:1], few[1:1])
	if len(more) > 0 {
		claims := claimsOf(more)
		err := r.store.Charge(ctx, *claims, nil)
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

// note sets the costs charged so far, except of leases.
func (r *Reservation) note(cost func(i int, charged int64) int64) {
	for i := range r.units {
		if u := &r.units[i]; u.Limit.algorithm != AlgorithmConcurrency {
			u.Cost = cost(i, u.Cost)
		}
	}
}

// differences are the units still to be charged, and those to be given back, appended to lists.
func (r *Reservation) differences(actual costs, more, less []reserved) ([]reserved, []reserved) {
	for i, u := range r.units {
		if u.Limit.algorithm == AlgorithmConcurrency {
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

// leases are the units that are held by a lease, as they were reserved.
func (r *Reservation) leases() (leases []reserved) {
	if r.held == nil {
		return nil
	}
	for _, u := range r.units {
		if u.Lease != "" {
			leases = append(leases, u)
		}
	}
	return leases
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
// they live on nodes of a Redis Cluster, which have clocks of their own.
func (r *Reservation) refund(ctx context.Context, units []reserved) error {
	var gone error
	for len(units) > 0 {
		at, same := units[0].at, 1
		for same < len(units) && units[same].at == at {
			same++
		}
		claims := claimsOf(units[:same])
		err := r.store.Refund(ctx, *claims, at, nil)
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
	return r.held.renew(ctx)
}

// KeepAlive renews the leases of the reservation, if it has any, until stop is called; see
// [KeepAlive]. The time-to-live is the shortest of them.
func (r *Reservation) KeepAlive(ctx context.Context, failed func(error)) (stop func()) {
	if r.held == nil {
		return func() {}
	}
	return r.held.keepAlive(ctx, failed)
}

// A Lease is units of a concurrency limit that are held until it is released, or until
// its time-to-live passes without Renew. It is safe for concurrent use.
type Lease struct {
	held *held
}

// Acquire holds one unit. It needs a limiter with at least one Concurrency limit; its
// other limits are charged one unit, which Release does not give back. If it is refused
// the error is a *RefusedError, whose RetryAfter is an upper bound. After another error nothing is held: if it is
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
	return reservation.lease(), nil
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
	return reservation.lease(), nil
}

// lease is the lease of a reservation that has one.
func (r *Reservation) lease() *Lease {
	return &r.held.lease
}

// holds reports whether a grant takes a lease.
func (l *Limiter) holds() bool {
	return slices.ContainsFunc(l.limits, func(limit *Limit) bool { return limit.algorithm == AlgorithmConcurrency })
}

// ID is the lease's id: 128 random bits as text.
func (l *Lease) ID() string { return l.held.claims[0].Lease }

// Answer is the store's answer when the lease was taken.
func (l *Lease) Answer() Answer { return l.held.of.answer }

// Renew keeps the lease for another time-to-live. ErrLeaseGone means that it is lost: stop
// the work, because another caller may hold its units.
func (l *Lease) Renew(ctx context.Context) error { return l.held.renew(ctx) }

// KeepAlive renews the lease until stop is called; see [KeepAlive].
func (l *Lease) KeepAlive(ctx context.Context, failed func(error)) (stop func()) {
	return l.held.keepAlive(ctx, failed)
}

// Release gives the units back. ErrLeaseGone means that the lease had ended before. After another error the store
// repeats the release in the background, as long as the lease would last: nobody else has to.
func (l *Lease) Release(ctx context.Context) error {
	err := l.held.store.Refund(ctx, l.held.claims, l.held.taken, nil)
	if err == nil {
		l.held.freed()
	}
	return err
}

// held is the leases of one reservation: they have one id and are renewed together.
type held struct {
	store   Store
	claims  []Claim
	one     [1]Claim // in itself, so that it need not be allocated
	of      *Reservation
	lease   Lease // as Acquire returns it
	taken   Instant
	waiters *waiters
	first   time.Time
	since   atomic.Pointer[time.Time] // before the last call was sent that took or renewed them
}

// begin is called with the reservation that holds the leases; sent is before the call that took them.
func (h *held) begin(l *Limiter, r *Reservation, sent time.Time) {
	h.store, h.waiters, h.of, h.first, h.claims = l.store, &l.waiters, r, sent, h.one[:0]
	h.lease.held = h
	h.since.Store(&h.first)
	for i := range r.units {
		u := &r.units[i]
		if u.Lease == "" {
			continue
		}
		if len(h.claims) == 0 {
			h.taken = u.at
		}
		h.claims = append(h.claims, u.Claim)
	}
	if len(h.claims) == 0 { // costs of 0 take no leases
		r.held = nil
	}
}

// freed wakes the callers that wait for the units; of no leases it does nothing.
func (h *held) freed() {
	if h != nil {
		h.waiters.freed(h.claims[0].Key)
	}
}

func (h *held) renew(ctx context.Context) error {
	claims := slices.Clone(h.claims)
	for i := range claims {
		claims[i].Renew = true
	}
	sent := time.Now()
	granted, err := h.store.Decide(ctx, claims, 1, nil)
	switch {
	case err != nil:
		return err
	case granted == 0:
		return ErrLeaseGone
	}
	h.since.Store(&sent)
	return nil
}

func (h *held) keepAlive(ctx context.Context, failed func(error)) (stop func()) {
	ttl := h.claims[0].Limit.period
	for _, claim := range h.claims[1:] {
		ttl = min(ttl, claim.Limit.period)
	}
	return keepAlive(ctx, *h.since.Load(), time.Duration(ttl)*time.Microsecond, h.renew, failed)
}
