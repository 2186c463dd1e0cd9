package layers

import (
	"context"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
)

// The local store decides in this process while the shared store is unavailable.
//
// It decides by the node's share of each limit: the limit divided by the number of nodes.
// The router lets it count the grants of the shared store. Package gate takes such a store (gate.WithLocal) and
// uses it according to each rule's on_store_error. A weir.Limiter over the router uses it without a gate.
//
// # A node's share
//
//	token bucket      capacity and overdraft divided; the refill of a period takes nodes periods
//	  in steps        units of a step divided, and the period longer by the same ratio
//	windows, logs, counters, calendars, concurrency: units divided
//	a claim's floor   the same part of the share, rounded down
//
// Shares are rounded up, so that each node grants at least one unit: all nodes together may grant more than the
// limit, by less than one unit for each node. A bucket keeps its period if it would get too long. A
// limit that has no valid share is not divided.
//
// While nodes decide alone, they grant nodes × ⌈L/nodes⌉ together in each window (or, of a bucket, at
// once and then at the limit's rate). In the window of the switch, grants of the shared store add to that if
// they were unevenly spread: at most one share for each node that had granted less than its share.
//
// # Leases
//
// The same holds for concurrency limits: each node that does not hold a lock (limit 1) itself grants it once
// more. Where that is not acceptable, refuse while the store is unavailable. A lease from the shared store
// cannot be renewed or released until that store answers again: its holder gets [weir.ErrUnavailable], not
// [weir.ErrLeaseGone]. (Tempting, and wrong: renewing it in the local store. That store knows only leases that
// went through this process, and an unknown lease is not a lost one.)

// localStore is a weir.Store that decides by one node's share of each limit. Make one with newLocalStore.
type localStore struct {
	store   weir.Store
	nodes   int64
	config  localConfig
	shares  *derivedLimits
	scratch sync.Pool // of *[]weir.Claim
}

// A localConfig configures NewLocal. Its functions are called for each claim.
type localConfig struct {
	// Nodes is the number of processes that share the store, 1 to maxNodes. With one, limits are not divided. Fewer
	// nodes than expected grant less than the limit, more nodes grant more.
	Nodes int
	// Whole selects the limits that are not divided: limits with keys that each reach only one node, and buckets that
	// do not measure requests. Nil: no limits.
	Whole func(*weir.Limit) bool
	// Only selects the limits that this store will decide. Warm counts no others, because each key costs memory here,
	// some 100 bytes and the key. Nil: all.
	Only func(*weir.Limit) bool
}

// maxNodes is the largest number of nodes.
const maxNodes = 1_000_000

// newLocalStore returns the localStore of one process over an embedded store (memstore) for its own use.
func newLocalStore(store weir.Store, config localConfig) (*localStore, error) {
	switch nodes := config.Nodes; {
	case nodes < 1 || nodes > maxNodes:
		return nil, wrongOption("nodes", nodes, "1 to "+strconv.Itoa(maxNodes)+": how many processes share the store")
	case store == nil:
		return nil, wrongOption("local store", "nil", "a store in this process, such as memstore.New()")
	}
	l := &localStore{store: store, nodes: int64(config.Nodes), config: config}
	l.shares = newDerivedLimits(func(limit *weir.Limit, nodes float64) *weir.Limit {
		return limit.Share(int64(nodes))
	})
	l.scratch.New = func() any { claims := make([]weir.Claim, 0, 8); return &claims }
	return l, nil
}

func wrongOption(field string, given any, allowed string) error {
	return &weir.InputError{Field: field, Given: given, Allowed: allowed}
}

// share returns this node's share of a limit.
func (l *localStore) share(limit *weir.Limit) *weir.Limit {
	if l.nodes == 1 || l.config.Whole != nil && limit != nil && l.config.Whole(limit) {
		return limit
	}
	return l.shares.of(limit, float64(l.nodes))
}

// follows reports whether Warm counts a limit.
func (l *localStore) follows(limit *weir.Limit) bool {
	return l.config.Only == nil || l.config.Only(limit)
}

// claims returns the claims on this node's shares. Hand them back with done.
func (l *localStore) claims(claims []weir.Claim) *[]weir.Claim {
	list := l.scratch.Get().(*[]weir.Claim)
	*list = append((*list)[:0], claims...)
	for i := range *list {
		(*list)[i].Limit = l.share(claims[i].Limit)
		(*list)[i].Floor = floorOf(&claims[i], (*list)[i].Limit)
	}
	return list
}

// floorOf is the part of a share that a claim leaves to others: as much of the share as its floor is of the limit,
// rounded down, so that a claim that the unused limit would grant is not refused for ever.
func floorOf(c *weir.Claim, share *weir.Limit) int64 {
	if c.Floor <= 0 || share == c.Limit || share == nil || c.Floor >= c.Limit.Most() {
		return c.Floor
	}
	hi, lo := bits.Mul64(uint64(c.Floor), uint64(share.Most()))
	floor, _ := bits.Div64(hi, lo, uint64(c.Limit.Most()))
	return int64(floor)
}

func (l *localStore) done(list *[]weir.Claim) {
	clear(*list) // a key may be part of a large request body
	l.scratch.Put(list)
}

// on makes a call on this node's shares.
func (l *localStore) on(claims []weir.Claim, decisions []weir.Decision, call func(mine []weir.Claim) error) error {
	mine := l.claims(claims)
	defer l.done(mine)
	err := call(*mine)
	notNever(claims, decisions)
	return err
}

// Decide implements weir.Store. A cost above this node's share, but not above the limit, is refused with a RetryAfter
// of at least a second: the time until the share is full. That is no promise, but Never would be wrong.
func (l *localStore) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (granted int64, err error) {
	err = l.on(claims, decisions, func(mine []weir.Claim) (err error) {
		granted, err = l.store.Decide(ctx, mine, times, decisions)
		return err
	})
	return granted, err
}

func (l *localStore) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return l.on(claims, decisions, func(mine []weir.Claim) error { return l.store.Charge(ctx, mine, decisions) })
}

func (l *localStore) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	return l.on(claims, decisions, func(mine []weir.Claim) error {
		return l.store.Refund(ctx, mine, takenAt, decisions)
	})
}

func (l *localStore) Reset(ctx context.Context, claims []weir.Claim) error {
	return l.on(claims, nil, func(mine []weir.Claim) error { return l.store.Reset(ctx, mine) })
}

// notNever replaces Never where only the share is too small.
func notNever(claims []weir.Claim, decisions []weir.Decision) {
	for i := range min(len(decisions), len(claims)) { // a wrong call may have another number
		if d := &decisions[i]; d.RetryAfter == weir.Never && claims[i].Limit != nil &&
			algorithm.Needs(&claims[i]) <= claims[i].Limit.Most() {
			d.RetryAfter = max(d.ResetAfter, time.Second)
		}
	}
}

// Close closes the embedded store.
func (l *localStore) Close() error { return l.store.Close() }

func isUnleased(c weir.Claim) bool { return c.Lease == "" }

func isRenewal(c weir.Claim) bool { return c.Renew }

// grantedClaims is the claims of a grant, for Charge: a renewed lease is charged like a new one, which renews it where
// it is known. In Charge, Renew would release it.
func grantedClaims(claims []weir.Claim) []weir.Claim {
	if !slices.ContainsFunc(claims, isRenewal) {
		return claims
	}
	granted := slices.Clone(claims)
	for i := range granted {
		granted[i].Renew = false
	}
	return granted
}

// note counts a grant of another store. It fails only if the local store is closed, and then the count is not needed.
func (l *localStore) note(claims []weir.Claim, times int64) {
	mine := l.claims(claims)
	defer l.done(mine)
	for i := range *mine {
		one := (*mine)[i : i+1]
		if !l.follows(claims[i].Limit) {
			continue
		}
		// A bucket's debt would take nodes times longer to repay. Windows end anyway, and a later refund to
		// them must find the charge.
		if one[0].Limit != claims[i].Limit && one[0].Limit.Refills() {
			l.take(one, times)
			continue
		}
		one[0].Cost = min(one[0].Cost*times, weir.MaxUnits)
		l.store.Charge(context.Background(), one, nil)
	}
}

// take charges a claim's cost times over, or as much of that as is left.
func (l *localStore) take(one []weir.Claim, times int64) {
	granted, err := l.store.Decide(context.Background(), one, times, nil)
	rest := min(one[0].Cost*(times-granted), weir.MaxUnits)
	if err == nil && rest > 0 && one[0].Cost > 1 {
		one[0].Cost = 1
		l.store.Decide(context.Background(), one, rest, nil)
	}
}

// followed returns the claims on limits that Warm counts.
func (l *localStore) followed(claims []weir.Claim) []weir.Claim {
	if l.config.Only == nil {
		return claims
	}
	return slices.DeleteFunc(slices.Clone(claims), func(c weir.Claim) bool { return !l.follows(c.Limit) })
}

// giveBack refunds units that were taken that long ago by another store's clock.
func (l *localStore) giveBack(claims []weir.Claim, ago weir.Instant) {
	claims = l.followed(claims)
	if len(claims) == 0 {
		return
	}
	mine := l.claims(claims)
	defer l.done(mine)
	for i := range *mine {
		(*mine)[i].Delay = 0 // a wait belongs to the level of the other store's bucket
		(*mine)[i].Floor = 0 // Remaining is all units that are left
	}
	var now [1]weir.Decision
	if _, err := l.store.Decide(context.Background(), (*mine)[:1], 0, now[:]); err != nil {
		return
	}
	for i := range *mine {
		one := (*mine)[i : i+1]
		if one[0].Limit.Itemized() {
			l.giveBackLatest(one)
		} else {
			l.store.Refund(context.Background(), one, now[0].At-ago, nil)
		}
	}
}

// maxGivenBack is the number of charges of a log that one refund gives back.
const maxGivenBack = 32

// giveBackLatest refunds the latest units of a log: when they were charged follows from its end. Of a log without
// units left it is unknown how many were given back, so there it is one charge at most.
func (l *localStore) giveBackLatest(one []weir.Claim) {
	look := []weir.Claim{one[0]}
	look[0].Cost = 0
	for range maxGivenBack {
		var before, after [1]weir.Decision
		_, err := l.store.Decide(context.Background(), look, 0, before[:])
		if err != nil || before[0].ResetAfter == 0 {
			return
		}
		latest := before[0].At + weir.Instant(before[0].ResetAfter.Microseconds()-one[0].Limit.Period())
		if l.store.Refund(context.Background(), one, latest, after[:]) != nil || before[0].Remaining == 0 {
			return
		}
		if one[0].Cost -= after[0].Remaining - before[0].Remaining; one[0].Cost <= 0 {
			return
		}
	}
}
