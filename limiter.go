package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A Limiter asks one store about one or several limits of one key, all in one decision.
// New makes one; it is safe for concurrent use: make it once and keep it.
//
// Most programs call Allow. Allow, AllowN and Peek report a refusal in the [Answer], with a nil
// error. Wait, Reserve and Acquire return a *[RefusedError]. Any other error means that the
// request was not decided: wrong input ([InputError]), or a store that did not answer ([ErrUnavailable]).
type Limiter struct {
	store  Store
	local  *Limiter // decides while the store is unavailable; may be nil
	keyed  keyed    // the store, if it implements it; else nil
	limits []*Limit
	floors []int64   // one for each limit; nil: all are 0
	member member    // of the fair limits
	pool   sync.Pool // of *call
	start  time.Time // when it was made

	waiters waiters
}

// keyed is a store that can decide, in the process, one request of one key under several limits
// without claims: with the arguments and results of Decide in memory, moving them takes as
// long as deciding.
type keyed interface {
	// DecideKey returns the index of the worst limit, the fields of its Decision, and the longest
	// Delay of all. If ok is false no limit was charged: call Decide, which also reports wrong input.
	DecideKey(key string, limits []*Limit, cost, floor int64) (worst int, granted bool, remaining int64,
		retryAfter, resetAfter, delay time.Duration, at Instant, ok bool)
}

// An Answer is the result of a Limiter's call. With an error it is zero: not allowed, no Limit.
type Answer struct {
	// Allowed reports whether the request may go on.
	Allowed bool
	// Repeated reports whether AllowOnce found its id: the request was granted before, and is not charged again.
	Repeated bool
	// Limit is the limit that decided: of several, the one that can never grant, else the
	// one with the longest wait, else with the least remaining, else the first.
	Limit *Limit
	// Decision is that limit's, with the longest Delay of all limits. Wait sleeps the Delay;
	// after Allow and Reserve the caller should.
	Decision
}

// RetryAfterSeconds is the wait to send to a client, [Limit.Advice], in whole seconds, rounded up, as the header field
// Retry-After has it. ok is false for [Never]: then send no such field, as no wait helps.
func (a Answer) RetryAfterSeconds() (n int64, ok bool) {
	if a.Limit != nil {
		a.RetryAfter = a.Limit.Advice(a.RetryAfter)
	}
	return a.Decision.RetryAfterSeconds()
}

// New makes a limiter of one or several limits. The first is called name, the next
// name.2, name.3 and so on: keep their order when you change their numbers. Limiters with limits of
// one name and algorithm on one store share the counts of a key, whatever their numbers.
func New(store Store, name string, specs ...Spec) (*Limiter, error) {
	limits := make([]*Limit, len(specs))
	for i, spec := range specs {
		limit, err := NewLimit(numbered(name, i), spec)
		if err != nil {
			return nil, err
		}
		limits[i] = limit
	}
	return NewLimiter(store, limits...)
}

func numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	return name + "." + strconv.Itoa(i+1)
}

// NewLimiter makes a limiter of limits that already have names. On a layers.Stack with Local Terms for
// all the limits, the local store decides while the other one is unavailable; its grants
// are settled and released there. Wait does not fall back.
func NewLimiter(store Store, limits ...*Limit) (*Limiter, error) {
	if store == nil {
		return nil, invalid("store", "nil", "a store, such as memstore.New()")
	}
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	l := &Limiter{store: store, limits: append([]*Limit(nil), limits...), start: time.Now()}
	l.waiters.queues = make(map[string]*queue)
	l.pool.New = func() any { return l.newCall() }
	l.keyed, _ = store.(keyed)
	if f, ok := store.(fallsBack); ok {
		if local := f.Fallback(limits); local != nil && local != store {
			l.local = &Limiter{store: local, limits: l.limits, start: l.start}
			l.local.pool.New = l.pool.New
		}
	}
	return l, nil
}

// WithFloor returns a limiter of the same store, limits and counts. Its requests leave so many units of each limit to
// others: one number for all limits, or one for each, in the order of Limits. A request is granted only if the
// floor is left besides its cost, and is charged its cost alone: see Claim.Floor. A program refuses its unimportant
// requests first in this way, where a limit is nearly used up:
//
//	crawls, err := all.WithFloor(limit / 2)
//
// Make the limiter once and keep it. Its waiting requests have a queue of their own. A floor is 0 to MaxUnits; requests
// with a floor that the limit never has left are refused for ever.
func (l *Limiter) WithFloor(units ...int64) (*Limiter, error) {
	if len(units) != 1 && len(units) != len(l.limits) {
		return nil, invalid("units", len(units), "one floor, or "+strconv.Itoa(len(l.limits))+", one for each limit")
	}
	floors := make([]int64, len(l.limits))
	for i := range floors {
		floors[i] = units[min(i, len(units)-1)]
		if floor := floors[i]; floor < 0 || floor > MaxUnits {
			return nil, invalid("floor", floor, "0 to 4503599627370496 (2^52)")
		}
	}
	return l.with(floors, l.member)
}

// A member makes requests under fair limits. The weight 0 is 1.
type member struct {
	name   string
	weight int64
}

// WithMember returns a limiter of the same store, limits and counts for the requests of one member, with a weight: see
// [Fair]. Each member has a limiter of its own:
//
//	tenant, err := search.WithMember(token.Tenant, 1)
//
// Keep the limiter as long as the member has requests: it has a queue of its own, and takes more memory than a request.
// The floors of l stay. The name is up to MaxKey bytes, the weight 1 to MaxWeight. At least one limit must be a Fair
// one.
func (l *Limiter) WithMember(name string, weight int64) (*Limiter, error) {
	shared := func(limit *Limit) bool { return limit.whole != nil }
	switch {
	case !slices.ContainsFunc(l.limits, shared):
		return nil, invalid("member", name, "none without a fair limit, such as Fair{Of: FixedWindow{…}}")
	case len(name) > MaxKey:
		return nil, invalid("member", strconv.Itoa(len(name))+" bytes", "0 to 65536 bytes")
	case weight < 1 || weight > MaxWeight:
		return nil, invalid("weight", weight, "1 to "+strconv.Itoa(MaxWeight))
	}
	return l.with(l.floors, member{name, weight})
}

// with returns a limiter of the same store and limits with these floors and this member.
func (l *Limiter) with(floors []int64, m member) (*Limiter, error) {
	with, err := NewLimiter(l.store, l.limits...)
	if err != nil {
		return nil, err
	}
	with.floors, with.member = floors, m
	differ := func(floor int64) bool { return floor != floors[0] }
	if m != (member{}) || slices.ContainsFunc(floors, differ) { // keyed has no member, and one floor for all
		with.keyed = nil
	}
	if with.local != nil {
		with.local.floors, with.local.member = floors, m
	}
	return with, nil
}

// claim is the claim of a request with a key under the ith limit, without its cost.
func (l *Limiter) claim(key string, i int) Claim {
	c := Claim{Key: key, Limit: l.limits[i], Floor: l.floor(i)}
	if c.Limit.whole != nil {
		c.Member, c.Weight = l.member.name, l.member.weight
	}
	return c
}

// floor is the number of units that requests leave of a limit.
func (l *Limiter) floor(limit int) int64 {
	if l.floors == nil {
		return 0
	}
	return l.floors[limit]
}

// fallsBack is implemented by stores that have another store decide some limits while they are unavailable.
type fallsBack interface {
	Fallback(limits []*Limit) Store // nil: the error is the caller's
}

// charge decides claims, by the local store while the other one is unavailable.
func (l *Limiter) charge(ctx context.Context, claims []Claim, times int64, decisions []Decision) (int64, error) {
	granted, err := l.store.Decide(ctx, claims, times, decisions)
	if l.local != nil && errors.Is(err, ErrUnavailable) {
		return l.local.store.Decide(ctx, claims, times, decisions)
	}
	return granted, err
}

// checkLimits is Check in terms of limits instead of claims.
func checkLimits(limits []*Limit) error {
	if len(limits) == 0 || len(limits) > MaxClaims {
		return invalid("limits", len(limits), "1 to "+strconv.Itoa(MaxClaims)+" of one limiter")
	}
	for i, limit := range limits {
		if limit == nil || limit.algorithm == 0 {
			return invalid("limits", "none", "limits made by NewLimit")
		}
		if slices.ContainsFunc(limits[:i], limit.SameState) {
			return invalid("limits", limit.name+" twice", "a name for each")
		}
	}
	return nil
}

// sinceStart is the time since the limiter was made: it reads one clock where time.Now reads two.
func (l *Limiter) sinceStart() time.Duration { return time.Since(l.start) }

// Limits are the limits of the limiter, in order. Do not change the slice.
func (l *Limiter) Limits() []*Limit { return l.limits }

// Allow asks for one unit.
func (l *Limiter) Allow(ctx context.Context, key string) (Answer, error) {
	return l.decide(ctx, key, 1)
}

// AllowN asks for n units: it is granted all of them, or refused. n = 0 asks whether a limit is exceeded.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (Answer, error) {
	return l.decide(ctx, key, n)
}

// AllowEach is AllowN with a cost for each limit, in the order of Limits.
func (l *Limiter) AllowEach(ctx context.Context, key string, cost ...int64) (Answer, error) {
	if err := l.checkEach(cost); err != nil {
		return Answer{}, err
	}
	_, answer, err := l.ask(ctx, key, cost, 1)
	return answer, err
}

// AllowKeys is Allow with a key for each limit, in the order of Limits, as one decision: the account
// and the address of a login, for example.
func (l *Limiter) AllowKeys(ctx context.Context, keys ...string) (Answer, error) {
	if err := l.checkKeys(keys); err != nil {
		return Answer{}, err
	}
	c := l.call(keys[0], costs{1})
	defer l.done(c)
	c.spread(keys)
	_, answer, err := l.send(ctx, c, 1)
	return answer, err
}

func (l *Limiter) checkEach(cost []int64) error {
	if len(cost) != len(l.limits) {
		return invalid("cost", len(cost), strconv.Itoa(len(l.limits))+" costs, one for each limit")
	}
	return nil
}

// costs of a request are one number for all limits, or one for each.
type costs []int64

func (c costs) of(limit int) int64 {
	if len(c) == 1 {
		return c[0]
	}
	return c[limit]
}

// times are the costs of n requests.
func (c costs) times(n int64) costs {
	product := make(costs, len(c))
	for i := range c {
		product[i] = c[i] * n
	}
	return product
}

// cover reports whether no cost is less than other's. Both are of one limiter.
func (c costs) cover(other costs) bool {
	for i := range max(len(c), len(other)) {
		if len(other) == 0 || c.of(i) < other.of(i) {
			return false
		}
	}
	return true
}

// AllowAtMost asks for up to n units and takes as many of them as every limit has left: granted
// is their number. The answer is allowed if it is at least one.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (granted int64, answer Answer, err error) {
	if n < 1 {
		return 0, Answer{}, invalid("n", n, "1 or more")
	}
	return l.ask(ctx, key, costs{1}, n)
}

// Peek is Allow without a charge: it returns the answer that Allow would.
func (l *Limiter) Peek(ctx context.Context, key string) (Answer, error) {
	return l.PeekN(ctx, key, 1)
}

// PeekN is AllowN without a charge.
func (l *Limiter) PeekN(ctx context.Context, key string, n int64) (Answer, error) {
	_, answer, err := l.ask(ctx, key, costs{n}, 0)
	answer.Allowed = err == nil && answer.RetryAfter == 0
	return answer, err
}

// Reset deletes the charges of key under all limits of the limiter.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	c := l.call(key, costs{0})
	defer l.done(c)
	err := l.store.Reset(ctx, c.claims)
	if err == nil {
		l.waiters.reset(key)
	}
	return err
}

// decide asks the store once, by the shortest way that it offers. It fills in the answer field
// by field: see call.answer.
func (l *Limiter) decide(ctx context.Context, key string, cost int64) (answer Answer, err error) {
	if l.keyed != nil {
		worst, granted, remaining, retryAfter, resetAfter, delay, at, ok := l.keyed.DecideKey(key, l.limits, cost,
			l.floor(0))
		if ok {
			answer.Allowed, answer.Limit = granted, l.limits[worst]
			answer.Remaining, answer.RetryAfter, answer.ResetAfter = remaining, retryAfter, resetAfter
			answer.Delay, answer.At = delay, at
			return answer, nil
		}
	}
	_, answer, err = l.ask(ctx, key, costs{cost}, 1)
	return answer, err
}

func (l *Limiter) ask(
	ctx context.Context, key string, cost costs, times int64,
) (granted int64, answer Answer, err error) {
	c := l.call(key, cost)
	defer l.done(c)
	return l.send(ctx, c, times)
}

func (l *Limiter) send(ctx context.Context, c *call, times int64) (granted int64, answer Answer, err error) {
	granted, err = l.charge(ctx, c.claims, times, c.decisions)
	if err != nil {
		return 0, Answer{}, leaseHint(err)
	}
	c.answer(&answer)
	answer.Allowed = granted > 0
	return granted, answer, nil
}

// leaseHint adds to the store's error about a missing lease which methods take one.
func leaseHint(err error) error {
	var input *InputError
	if errors.As(err, &input) && input.Field == "lease" {
		return fmt.Errorf("%w (this limiter has a concurrency limit: use Acquire, or Reserve)", err)
	}
	return err
}

// call is the arguments of one call of the store. Those of the pool are reused.
type call struct {
	claims    []Claim
	decisions []Decision
}

func (l *Limiter) newCall() *call {
	c := &call{claims: make([]Claim, len(l.limits)), decisions: make([]Decision, len(l.limits))}
	for i := range c.claims {
		c.claims[i] = l.claim("", i)
	}
	return c
}

func (l *Limiter) call(key string, cost costs) *call {
	c, made := l.pool.Get().(*call)
	if !made {
		panic("weir: a Limiter must be made by New or NewLimiter")
	}
	c.fill(key, cost, "")
	return c
}

// spread sets the keys: one for all claims, or one for each.
func (c *call) spread(keys []string) {
	for i := range c.claims {
		c.claims[i].Key = keys[min(i, len(keys)-1)]
	}
}

func (l *Limiter) done(c *call) {
	c.fill("", costs{0}, "") // the key may be part of a large request: do not keep it alive
	l.pool.Put(c)
}

func (c *call) fill(key string, cost costs, lease string) {
	for i := range c.claims {
		claim := &c.claims[i]
		claim.Key, claim.Cost = key, cost.of(i)
		if claim.Limit.Leases() {
			if claim.Lease, claim.Renew = lease, false; claim.Cost == 0 {
				claim.Lease = ""
			}
		}
	}
}

// answer fills in the worst decision. It copies field by field: copying a whole Decision
// just after its fields were written stalls the processor for longer than the rest of this takes.
func (c *call) answer(answer *Answer) {
	worst := 0
	delay := c.decisions[0].Delay
	for i := 1; i < len(c.decisions); i++ {
		delay = max(delay, c.decisions[i].Delay)
		if Worse(&c.decisions[i], &c.decisions[worst]) {
			worst = i
		}
	}
	d := &c.decisions[worst]
	answer.Limit = c.claims[worst].Limit
	answer.Remaining, answer.RetryAfter, answer.ResetAfter = d.Remaining, d.RetryAfter, d.ResetAfter
	answer.Delay, answer.At = delay, d.At
}

// Worse orders the decisions of one request: never, then the longest wait, then the
// least remaining. Of equal ones the first decides.
func Worse(a, b *Decision) bool {
	if a.RetryAfter != b.RetryAfter {
		return a.RetryAfter > b.RetryAfter // Never is the longest
	}
	return a.Remaining < b.Remaining
}
