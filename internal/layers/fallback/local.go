// Package fallback decides in this process while the shared store is unavailable.
//
// [NewLocal] returns a store that decides by the node's share of each limit: the limit divided by the number of nodes.
// [LocalStore.Warm] lets it count what the shared store grants. Package gate takes such a store (gate.WithLocal) and
// uses it according to each rule's on_store_error. A weir.Limiter over [Warm] uses it by itself.
//
// # A node's share
//
//	token bucket      capacity and overdraft divided; the refill of a period takes nodes periods
//	  in steps        units of a step divided, and the period longer by the same ratio
//	windows, logs, counters, calendars, concurrency: units divided
//
// Shares are rounded up, so that each node grants at least one unit: all nodes together may grant more than the
// limit, by less than one unit for each node. A bucket whose period would get too long keeps its period. A
// limit that has no valid share is not divided.
//
// While nodes decide by themselves, they grant nodes × ⌈L/nodes⌉ together in each window (or, of a bucket, at
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
package fallback

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/layer"
)

// LocalStore is a weir.Store that decides by one node's share of each limit. Make one with NewLocal.
type LocalStore struct {
	store   weir.Store
	nodes   int64
	config  Config
	shares  *layer.Limits
	scratch sync.Pool // of *[]weir.Claim
}

// A Config configures NewLocal. Its functions are called for each claim.
type Config struct {
	// Nodes is the number of processes that share the store, 1 to MaxNodes. With one, limits are not divided. Fewer
	// nodes than expected grant less than the limit, more nodes grant more.
	Nodes int
	// Whole selects the limits that are not divided: those whose keys each reach only one node, and buckets that do
	// not measure requests. Nil: none.
	Whole func(*weir.Limit) bool
	// Only selects the limits that this store will decide. Warm counts no others, because each key costs memory here,
	// some 100 bytes and the key. Nil: all.
	Only func(*weir.Limit) bool
}

// MaxNodes is the largest number of nodes.
const MaxNodes = 1_000_000

// NewLocal returns the LocalStore of one process over an embedded store (memstore) for its own use.
func NewLocal(store weir.Store, config Config) (*LocalStore, error) {
	switch nodes := config.Nodes; {
	case nodes < 1 || nodes > MaxNodes:
		return nil, bad("nodes", nodes, "1 to "+strconv.Itoa(MaxNodes)+": how many processes share the store")
	case store == nil:
		return nil, bad("local store", "nil", "a store in this process, such as memstore.New()")
	}
	l := &LocalStore{store: store, nodes: int64(config.Nodes), config: config}
	l.shares = layer.NewLimits(func(limit *weir.Limit, nodes float64) *weir.Limit {
		return limit.Share(int64(nodes))
	})
	l.scratch.New = func() any { claims := make([]weir.Claim, 0, 8); return &claims }
	return l, nil
}

func bad(field string, given any, allowed string) error {
	return &weir.InputError{Field: field, Given: given, Allowed: allowed}
}

// Share returns this node's share of a limit.
func (l *LocalStore) Share(limit *weir.Limit) *weir.Limit {
	if l.nodes == 1 || l.config.Whole != nil && limit != nil && l.config.Whole(limit) {
		return limit
	}
	return l.shares.Of(limit, float64(l.nodes))
}

// follows reports whether Warm counts a limit.
func (l *LocalStore) follows(limit *weir.Limit) bool {
	return l.config.Only == nil || l.config.Only(limit)
}

// claims returns the claims on this node's shares. Hand them back with done.
func (l *LocalStore) claims(claims []weir.Claim) *[]weir.Claim {
	list := l.scratch.Get().(*[]weir.Claim)
	*list = append((*list)[:0], claims...)
	for i := range *list {
		(*list)[i].Limit = l.Share(claims[i].Limit)
	}
	return list
}

func (l *LocalStore) done(list *[]weir.Claim) {
	clear(*list) // a key may be part of a large request body
	l.scratch.Put(list)
}

// on makes a call on this node's shares.
func (l *LocalStore) on(claims []weir.Claim, decisions []weir.Decision, call func(mine []weir.Claim) error) error {
	mine := l.claims(claims)
	defer l.done(mine)
	err := call(*mine)
	notNever(claims, decisions)
	return err
}

// Decide implements weir.Store. A cost above this node's share, but not above the limit, is refused with a RetryAfter
// of at least a second: the time until the share is full. That is no promise, but Never would be wrong.
func (l *LocalStore) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (granted int64, err error) {
	err = l.on(claims, decisions, func(mine []weir.Claim) (err error) {
		granted, err = l.store.Decide(ctx, mine, times, decisions)
		return err
	})
	return granted, err
}

func (l *LocalStore) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return l.on(claims, decisions, func(mine []weir.Claim) error { return l.store.Charge(ctx, mine, decisions) })
}

func (l *LocalStore) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	return l.on(claims, decisions, func(mine []weir.Claim) error {
		return l.store.Refund(ctx, mine, takenAt, decisions)
	})
}

func (l *LocalStore) Reset(ctx context.Context, claims []weir.Claim) error {
	return l.on(claims, nil, func(mine []weir.Claim) error { return l.store.Reset(ctx, mine) })
}

// notNever replaces Never where only the share is too small.
func notNever(claims []weir.Claim, decisions []weir.Decision) {
	for i := range min(len(decisions), len(claims)) { // a wrong call may have another number
		if d := &decisions[i]; d.RetryAfter == weir.Never && claims[i].Limit != nil &&
			claims[i].Cost <= claims[i].Limit.Most() {
			d.RetryAfter = max(d.ResetAfter, time.Second)
		}
	}
}

// Close closes the embedded store.
func (l *LocalStore) Close() error { return l.store.Close() }
