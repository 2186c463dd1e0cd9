package weir

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// NewLeaseID is an id of 128 random bits, for [Claim].Lease.
func NewLeaseID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails: see its documentation
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// A Reservation is units that were charged by an estimate, until Settle says what they
// really were or Cancel gives them back. It is safe for concurrent use.
type Reservation struct {
	store  Store
	answer Answer
	each   bool    // it was made by ReserveEach
	held   *tenure // nil: the limits hold nothing

	mu    sync.Mutex
	call  *call
	costs []int64   // what each claim was charged so far
	taken []Instant // the store's time at which it was
	done  bool
}

// Reserve charges n units, an estimate of a cost known only later: bytes sent, tokens
// spent. If they are refused the error is a *RefusedError. Concurrency limits take part
// with a lease of n units, which ends when the reservation is settled.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.reserve(ctx, key, costs{n})
}

// ReserveEach is Reserve with a cost for each limit, in the order of Limits: one request, the
// tokens it is estimated to take, and one at once. Settle it with SettleEach.
func (l *Limiter) ReserveEach(ctx context.Context, key string, cost ...int64) (*Reservation, error) {
	if err := l.checkEach(cost); err != nil {
		return nil, err
	}
	r, err := l.reserve(ctx, key, cost)
	if err == nil {
		r.each = true
	}
	return r, err
}

func (l *Limiter) reserve(ctx context.Context, key string, cost costs) (*Reservation, error) {
	c, lease := newCall(l.limits), ""
	var sent time.Time
	if l.holds() {
		lease, sent = NewLeaseID(), time.Now()
	}
	c.set(key, cost, lease)
	granted, err := l.store.Decide(ctx, c.claims, 1, c.decisions)
	if err != nil {
		return nil, err
	}
	r := l.reservation(c, cost)
	if r.answer.Allowed = granted > 0; granted == 0 {
		return nil, &RefusedError{Answer: r.answer}
	}
	if lease != "" {
		r.held = &tenure{store: l.store, claims: r.leases()}
		r.held.since.Store(&sent)
	}
	return r, nil
}

// reservation is of a call that was granted at these costs.
func (l *Limiter) reservation(c *call, cost costs) *Reservation {
	r := &Reservation{store: l.store, call: c, costs: make([]int64, len(c.claims)), taken: make([]Instant, len(c.claims))}
	for i := range c.decisions {
		claim, d := &c.claims[i], &c.decisions[i]
		r.costs[i], r.taken[i], claim.Delay = cost.of(i), d.At, d.Delay
		if claim.Limit.lends() {
			// One that acts at once is not late in the microsecond in which it was granted.
			claim.Delay = max(d.Delay, time.Microsecond)
		}
	}
	c.answer(&r.answer)
	r.answer.Allowed = true
	return r
}

// Answer is what the store said when the units were reserved. Its Delay is to be slept
// before they are used; [Limiter.Wait] does.
func (r *Reservation) Answer() Answer { return r.answer }

// Cancel gives everything back. It is Settle(ctx, 0).
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Settle ends the reservation with the cost that it really had: what was too much is
// given back, what was missing is charged, even beyond the limit. A second call does
// nothing. After an error nothing is known to have been settled and Settle may be called
// again; what an unknown first call did may then be done twice, to the caller's favour
// where it refunds. ErrLeaseGone is no such error: all is settled, but a lease had
// expired before, and its units may have been held by somebody else meanwhile.
//
// actual is the cost for each limit of the reservation. One that ReserveEach made is settled
// by SettleEach, unless actual is 0.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if r.each && actual != 0 && len(r.costs) > 1 {
		return invalid("actual", actual, "0, or SettleEach with a cost for each of the "+strconv.Itoa(len(r.costs))+" limits, as they were reserved")
	}
	return r.settleOnce(ctx, costs{actual})
}

// SettleEach is Settle with the cost that each limit really had, in the order of the limits.
// Of a concurrency limit it is ignored: a lease ends as a whole.
func (r *Reservation) SettleEach(ctx context.Context, actual ...int64) error {
	if len(actual) != len(r.costs) {
		return invalid("actual", len(actual), strconv.Itoa(len(r.costs))+" costs, one for each limit")
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
	r.done = err == nil || errors.Is(err, ErrLeaseGone)
	return err
}

// settle notes what is done, so that a repeat after an error does not do it again.
func (r *Reservation) settle(ctx context.Context, actual costs) error {
	more, less := r.differences(actual)
	if len(more) > 0 {
		if err := r.store.Charge(ctx, more, nil); err != nil {
			return err
		}
	}
	for i := range r.costs {
		r.costs[i] = max(r.costs[i], actual.of(i))
	}
	if err := r.refund(ctx, less); err != nil {
		return err
	}
	for i := range r.costs {
		r.costs[i] = actual.of(i)
	}
	return r.refund(ctx, r.leases())
}

// differences are claims of what is still to be charged, and of what is to be given back.
func (r *Reservation) differences(actual costs) (more, less []Claim) {
	for i, claim := range r.call.claims {
		if claim.Lease != "" {
			continue
		}
		if claim.Cost = actual.of(i) - r.costs[i]; claim.Cost > 0 {
			more = append(more, claim)
		} else if claim.Cost < 0 {
			claim.Cost = -claim.Cost
			less = append(less, claim)
		}
	}
	return more, less
}

// Renew keeps the leases of the reservation for another time-to-live, if it has any.
// ErrLeaseGone says that one is lost: somebody else may hold its units.
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

// leases are the claims that hold them, for what was reserved: a lease ends as a whole.
func (r *Reservation) leases() []Claim {
	var claims []Claim
	for _, claim := range r.call.claims {
		if claim.Lease != "" {
			claims = append(claims, claim)
		}
	}
	return claims
}

// refund gives claims back, each at its own instant: it is one for all, unless they live
// on nodes of a Redis Cluster, which have clocks of their own.
func (r *Reservation) refund(ctx context.Context, claims []Claim) error {
	var gone error
	for len(claims) > 0 {
		taken, same := r.takenAt(&claims[0]), 1
		for same < len(claims) && r.takenAt(&claims[same]) == taken {
			same++
		}
		err := r.store.Refund(ctx, claims[:same], taken, nil)
		if errors.Is(err, ErrLeaseGone) {
			gone = err
		} else if err != nil {
			return err
		}
		claims = claims[same:]
	}
	return gone
}

func (r *Reservation) takenAt(claim *Claim) Instant {
	for i := range r.call.claims {
		if r.call.claims[i].Same(claim) {
			return r.taken[i]
		}
	}
	return 0
}

// A Lease is units of a concurrency limit that are held until it is released, or until
// its time-to-live passes without Renew. It is safe for concurrent use.
type Lease struct {
	held   *tenure
	answer Answer
	taken  Instant
}

// Acquire holds one unit. It needs a limiter with at least one Concurrency limit; its
// other limits are charged one unit, which Release does not give back. If it is refused
// the error is a *RefusedError, whose RetryAfter is an upper bound.
func (l *Limiter) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.AcquireN(ctx, key, 1)
}

// AcquireN holds n units; see Acquire.
func (l *Limiter) AcquireN(ctx context.Context, key string, n int64) (*Lease, error) {
	if !l.holds() {
		return nil, invalid("limits", len(l.limits), "at least one Concurrency limit to acquire; use AllowN or Reserve")
	}
	reservation, err := l.Reserve(ctx, key, n)
	if err != nil {
		return nil, err
	}
	held := reservation.held
	return &Lease{held: held, answer: reservation.answer, taken: reservation.takenAt(&held.claims[0])}, nil
}

func (l *Limiter) holds() bool {
	for _, limit := range l.limits {
		if limit.algorithm == AlgorithmConcurrency {
			return true
		}
	}
	return false
}

// ID is the lease's id: 128 random bits as text.
func (l *Lease) ID() string { return l.held.claims[0].Lease }

// Answer is what the store said when the lease was taken.
func (l *Lease) Answer() Answer { return l.answer }

// Renew keeps the lease for another time-to-live. ErrLeaseGone says that it is lost: stop
// the work, somebody else may hold its units.
func (l *Lease) Renew(ctx context.Context) error { return l.held.renew(ctx) }

// KeepAlive renews the lease until stop is called; see [KeepAlive].
func (l *Lease) KeepAlive(ctx context.Context, failed func(error)) (stop func()) {
	return l.held.keepAlive(ctx, failed)
}

// Release gives the units back. ErrLeaseGone says that they were gone already.
func (l *Lease) Release(ctx context.Context) error {
	return l.held.store.Refund(ctx, l.held.claims, l.taken, nil)
}

// A tenure is leases that are held together.
type tenure struct {
	store  Store
	claims []Claim
	since  atomic.Pointer[time.Time] // before the last call was sent that took or renewed them
}

func (t *tenure) renew(ctx context.Context) error {
	claims := append([]Claim(nil), t.claims...)
	for i := range claims {
		claims[i].Renew = true
	}
	sent := time.Now()
	granted, err := t.store.Decide(ctx, claims, 1, nil)
	switch {
	case err != nil:
		return err
	case granted == 0:
		return ErrLeaseGone
	}
	t.since.Store(&sent)
	return nil
}

func (t *tenure) keepAlive(ctx context.Context, failed func(error)) (stop func()) {
	ttl := t.claims[0].Limit.period
	for i := range t.claims[1:] {
		ttl = min(ttl, t.claims[1+i].Limit.period)
	}
	return keepAlive(ctx, *t.since.Load(), time.Duration(ttl)*time.Microsecond, t.renew, failed)
}
