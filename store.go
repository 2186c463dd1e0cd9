package weir

import (
	"context"
	"math"
	"strconv"
	"time"
)

const (
	// MaxUnits is the largest count, cost, limit and number of microseconds: 2^52, so
	// that every sum of two is a whole number in a double, the only number of Redis' Lua.
	MaxUnits = 1 << 52

	// MaxKey is the longest key, in bytes.
	MaxKey = 64 << 10

	// MaxClaims is the largest number of claims of one decision.
	MaxClaims = 32

	// MaxLease is the longest lease id, in bytes.
	MaxLease = 256

	// Never is the RetryAfter of a cost that no wait makes grantable: the longest Duration, so
	// that it is the largest of several waits. Compare with it before adding to it. Wire
	// formats write it as -1.
	Never time.Duration = math.MaxInt64
)

// An Instant is a point of a store's time: whole microseconds since the Unix epoch.
type Instant int64

// Time is the instant as a time.Time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// A Claim asks to charge Cost units to Key under Limit.
type Claim struct {
	Key   string // the identity that is counted: 1 to MaxKey bytes, any bytes
	Limit *Limit
	Cost  int64 // units, 0 to MaxUnits; 0 asks whether the limit is exceeded and charges nothing

	// Floor is units that the claim leaves to others, 0 to MaxUnits: it is granted only if Floor units more than
	// its cost fit, and is charged its cost alone. Of n requests the last needs n × Cost + Floor. Its Decision says
	// how many units would be granted to a request with this floor, and when this cost and floor fit; a cost of 0
	// asks whether the floor fits. A held lease is kept and renewed whatever the floor; Charge and Refund change the
	// state as without one. A claim of an id (Once) has no floor.
	Floor int64

	// Member is the name of the member that asks, for a [Fair] limit and only there: up to MaxKey bytes. The empty name
	// is a member too.
	Member string
	// Weight is the member's part of a [Fair] limit: 1 to MaxWeight; 0 is 1.
	Weight int64

	// Lease is the id of the held units, for a [Concurrency] limit and only there: 1 to
	// MaxLease bytes, unguessable (NewLeaseID makes one). A cost of 0 takes no lease: it is empty.
	Lease string
	// Renew asks to keep Lease alive instead of taking it: granted only if it is held. In Charge
	// and Refund it is a condition: the call releases the lease; if it is gone, no claim
	// changes and the error is ErrLeaseGone. So a call can be repeated when its answer was
	// lost. In a Redis Cluster, if claims lie in several slots, the lease is released first,
	// and a call that fails after that is not completed.
	Renew bool
	// OwnLease says that the caller chose Lease, and uses it again: it repeats a call with an unknown
	// outcome, or releases the lease. Otherwise a store releases a lease that may be held without a
	// holder, because the call that took it ended without an answer. In either case a store that could
	// not release a lease tries again in the background.
	OwnLease bool

	// Once says that this claim stands for an id: see [Once]. A store without room for the key of a new id leaves the
	// claim out, and layers do not answer for the store.
	Once bool

	// Settle is read by Charge only: the units correct an earlier charge, by a cost that is known now. If the last
	// charge was under other numbers than Limit's, all units that those still count stay charged.
	Settle bool

	// Delay is read by Refund only: the Delay of the Decision that granted these units. Until
	// takenAt + Delay the grant waits for its turn, and later grants may wait behind it: a bucket
	// then gives back the units less those charged after it, because each of those already waits
	// for its own instant. 0 gives all units back.
	Delay time.Duration
}

// A Decision is the outcome of one claim. It describes the state after the grant.
// Durations are whole microseconds.
type Decision struct {
	// Remaining is how many units would be granted now, to one request with this claim's floor, by this claim alone.
	Remaining int64
	// RetryAfter is 0 if a request of this claim's cost and floor would be granted now; else the smallest
	// wait after which it would be if no other request comes; or [Never].
	RetryAfter time.Duration
	// ResetAfter is the smallest wait after which the state is the initial state again.
	ResetAfter time.Duration
	// Delay is how long the last granted caller should wait until the units that it borrowed
	// are refilled; 0 unless the limit is a token bucket with an overdraft.
	Delay time.Duration
	// At is the store's time of the decision; pass it to Refund.
	At Instant
	// Standing is the member's usage and share of a [Fair] limit. Only a peek (times = 0) sets it; otherwise it is nil.
	Standing *Standing
}

// A Standing is a member's usage and share of a [Fair] limit, in units of the present window or held now. A request of
// n units is granted if Used + n ≤ Open, or Own + n ≤ Share, and it fits the whole limit.
type Standing struct {
	Own     int64 // of the member
	Share   int64 // of the member: the limit × weight / Weights, rounded down
	Weights int64 // the sum of the weights of the members that use the limit, this one included
	Used    int64 // of all members
	Open    int64 // usage of all members up to which any member is granted now
	Others  bool  // the member is beyond MaxKeys: such members are one member with the weight 1
}

// RetryAfterSeconds is RetryAfter in whole seconds, rounded up, as the header field Retry-After has
// it. ok is false for [Never]: then send no such field, as no wait helps.
func (d Decision) RetryAfterSeconds() (n int64, ok bool) {
	if d.RetryAfter == Never {
		return 0, false
	}
	n = int64(d.RetryAfter / time.Second)
	if d.RetryAfter%time.Second > 0 {
		n++
	}
	return n, true
}

// A Store decides claims, atomically, by one clock. Implementations are safe for
// concurrent use; storetest is the suite that they pass.
//
// Each method checks its whole input before it charges anything ([Check] does it) and
// fills decisions, which has one element a claim, or is nil.
//
// A store does not keep claims or the bytes of their keys after a method returns, because
// callers build keys in a buffer that they reuse; it keeps copies. It may keep the string of a
// lease, whose bytes must not change.
type Store interface {
	// Decide asks for times identical requests at one instant, grants as many of them
	// as fit every claim (0 ≤ granted ≤ times) and charges each claim its cost × granted.
	// times = 0 peeks.
	Decide(ctx context.Context, claims []Claim, times int64, decisions []Decision) (granted int64, err error)

	// Charge charges without a decision: a limit may end up beyond its capacity.
	Charge(ctx context.Context, claims []Claim, decisions []Decision) error

	// Refund gives units back that were taken at the given instant (Decision.At), and
	// releases leases. Claim.Delay is the delay of the grant. Every claim is refunded; if a lease was
	// gone the error is ErrLeaseGone.
	Refund(ctx context.Context, claims []Claim, takenAt Instant, decisions []Decision) error

	// Reset deletes the state of the claims' keys. Costs are ignored.
	Reset(ctx context.Context, claims []Claim) error

	// Close releases the store's resources. Calls after it return ErrClosed.
	Close() error
}

// A Request is one Decide of a batch.
type Request struct {
	Claims []Claim
	Times  int64
	// Decisions is nil, or has one element a claim for each of Times (for a peek, one a
	// claim): the state after the first request, after the second, and so on. Grants come
	// first; all refused ones have the same decisions.
	Decisions []Decision

	// Follows: this request matters only if the last one before it without Follows is granted.
	// A store that refuses that one may leave this one undecided: then Granted is 0 and Err is
	// ErrNotAsked. A store may also decide both.
	Follows bool

	Granted int64 // the result, as Decide's
	Err     error
}

// A Batcher is a store that decides many requests in one call. It is optional.
type Batcher interface {
	// DecideBatch decides each request separately, as if Decide were called for one after the
	// other, and fills in its result: each has its own error, and a wrong one does not affect
	// the others. Requests that share a key under one limit are decided in the order of the
	// slice, others in any order.
	DecideBatch(ctx context.Context, requests []Request)
}

// Check is [Check] for a request of a batch.
func (r *Request) Check() error {
	if err := Check(r.Claims, r.Times, nil); err != nil {
		return err
	}
	claims := int64(len(r.Claims))
	want := claims * max(r.Times, 1)
	if r.Decisions != nil && int64(len(r.Decisions)) != want {
		return invalid("decisions", len(r.Decisions), "nil, or one a claim for each of times")
	}
	return nil
}

// Check is the input check that every store makes before it charges: claims, costs,
// times and the length of decisions. It does not allocate unless it fails.
func Check(claims []Claim, times int64, decisions []Decision) error {
	if len(claims) == 0 || len(claims) > MaxClaims {
		return invalid("claims", len(claims), "1 to "+strconv.Itoa(MaxClaims)+" of one decision")
	}
	if times < 0 || times > MaxUnits {
		return invalid("times", times, "0 to 4503599627370496 (2^52)")
	}
	if decisions != nil && len(decisions) != len(claims) {
		return invalid("decisions", len(decisions), "nil, or one a claim")
	}
	for i := range claims {
		if err := claims[i].check(times); err != nil {
			return err
		}
	}
	if len(claims) == 1 {
		return nil
	}
	if twice := repeated(claims); twice != nil {
		return invalid("claims", twice.Limit.Name()+" "+twice.Key, "one claim for each key and limit")
	}
	return nil
}

// pairwise is the largest number of claims at which comparing each pair finds equal ones fastest.
const pairwise = 8

// repeated is the first claim on the state of one before it, if any.
func repeated(claims []Claim) *Claim {
	if len(claims) > pairwise {
		return repeatedOfMany(claims)
	}
	for i := range claims {
		for j := range i {
			if claims[i].Same(&claims[j]) {
				return &claims[i]
			}
		}
	}
	return nil
}

// repeatedOfMany compares claims of like hashes only.
func repeatedOfMany(claims []Claim) *Claim {
	var table [4 * MaxClaims]uint8 // 1 + the index of a claim
	hash := uint64(0)
	for i := range claims {
		if i == 0 || claims[i].Key != claims[i-1].Key {
			hash = scatter(claims[i].Key)
		}
		slot := (hash ^ claims[i].Limit.hash) % uint64(len(table))
		for ; table[slot] != 0; slot = (slot + 1) % uint64(len(table)) {
			if claims[i].Same(&claims[table[slot]-1]) {
				return &claims[i]
			}
		}
		table[slot] = uint8(1 + i)
	}
	return nil
}

// scatter is a hash of the last bytes of a key: keys differ there most often.
func scatter(key string) uint64 {
	hash := uint64(len(key))
	for i := max(0, len(key)-8); i < len(key); i++ {
		hash = (hash ^ uint64(key[i])) * 0x9e3779b97f4a7c15
	}
	return hash >> 32
}

// Same reports whether two claims are on the same state: name, algorithm and key.
func (c *Claim) Same(other *Claim) bool {
	return c.Limit.SameState(other.Limit) && c.Key == other.Key
}

func (c *Claim) check(times int64) error {
	switch {
	case c.Limit == nil || c.Limit.algorithm == 0:
		return invalid("limit", "none", "a limit made by NewLimit")
	case len(c.Key) == 0 || len(c.Key) > MaxKey:
		return invalid("key", strconv.Itoa(len(c.Key))+" bytes", "1 to 65536 bytes")
	case c.Cost < 0 || c.Cost > MaxUnits:
		return invalid("cost", c.Cost, "0 to 4503599627370496 (2^52)")
	case c.Floor != 0 && (c.Floor < 0 || c.Floor > MaxUnits || c.Once):
		return c.badFloor()
	case c.Delay < 0:
		return invalid("delay", c.Delay, "0, or the delay of the grant that is refunded")
	case c.Cost > 1 && times > 1 && c.Cost > math.MaxInt64/times:
		product := strconv.FormatInt(c.Cost, 10) + " × " + strconv.FormatInt(times, 10)
		return invalid("cost × times", product, "less than 2^63")
	case (c.Member != "" || c.Weight != 0) && c.badMember() != nil:
		return c.badMember()
	case c.Limit.Leases():
		return c.checkLease(times)
	case c.Lease != "" || c.Renew:
		return invalid("lease", c.Lease, "a lease only for a concurrency limit")
	}
	return nil
}

func (c *Claim) badFloor() error {
	allowed := "0 to 4503599627370496 (2^52)"
	if c.Once {
		allowed = "0 for an id"
	}
	return invalid("floor", c.Floor, allowed)
}

func (c *Claim) badMember() error {
	switch {
	case c.Limit.whole == nil && c.Member == "":
		return invalid("weight", c.Weight, "only for a fair limit, such as fair_fixed_window 100/1h above 50")
	case c.Limit.whole == nil:
		return invalid("member", c.Member, "only for a fair limit, such as fair_fixed_window 100/1h above 50")
	case len(c.Member) > MaxKey:
		return invalid("member", strconv.Itoa(len(c.Member))+" bytes", "0 to 65536 bytes")
	case c.Weight < 0 || c.Weight > MaxWeight:
		return invalid("weight", c.Weight, "1 to "+strconv.Itoa(MaxWeight)+", or 0 for 1")
	}
	return nil
}

func (c *Claim) checkLease(times int64) error {
	switch {
	case c.Cost == 0 && c.Lease == "" && !c.Renew: // whether the limit is exceeded
		return nil
	case len(c.Lease) > MaxLease || (c.Lease == "" && (times > 0 || c.Renew)):
		return invalid("lease", strconv.Itoa(len(c.Lease))+" bytes",
			"1 to 256 bytes for a concurrency limit; Limiter.Acquire makes one")
	case times > 1:
		return invalid("times", times, "0 or 1 for a concurrency limit: each lease has its own id")
	case c.Cost == 0 && times > 0 && !c.Renew:
		return invalid("cost", c.Cost, "1 to 4503599627370496 (2^52) for a lease")
	}
	return nil
}
