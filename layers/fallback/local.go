// Package fallback decides in this process while the shared store does not answer.
//
//	local, err := fallback.NewLocal(nodes, memstore.New())
//	store := local.Warm(shared)
//
// [NewLocal] makes a store in this process that decides by the node's share of each limit: the
// limit divided by how many nodes there are. [LocalStore.Warm] lets it count while the shared
// store answers. Package gate takes such a store (gate.WithLocal) and asks it by each rule's
// on_store_error. A program without rules makes two limiters of the same name and numbers, one over each
// store, and asks the second where the first returns [weir.ErrUnavailable]: see the example. What a limiter granted
// is settled, renewed and released by the store that granted it.
//
// # A node's share
//
//	token bucket      capacity and overdraft divided; the refill of a period takes nodes periods
//	  in steps        units of a step divided, and the period so much longer that the rate is
//	windows, logs, counters, calendars, concurrency: units divided
//
// What is divided is rounded up, so that each node grants at least one unit: all nodes together
// may grant more than the limit, by less than one unit for each node. A bucket whose period
// would get too long keeps its period, and what no division makes a limit stays as it is.
//
// While nodes decide by themselves, in each window (or, of a bucket, at once and then at the
// limit's rate) they grant nodes × ⌈L/nodes⌉ together. In the window in which they switch, what
// the shared store had granted comes on top where it was not spread evenly: a node knows only
// of its own, so at most one share for each node that had granted less than that.
//
// # Leases
//
// The same holds for concurrency limits: of a lock (limit 1), each node that has not granted it itself grants it
// once more. Where that must not be, refuse while the store is away. A lease that the shared store gave cannot be
// renewed or released until that answers again: its holder gets [weir.ErrUnavailable], which is not
// [weir.ErrLeaseGone]. (Tempting, and wrong: to ask the local store about it. It knows only of leases that went
// through this process since it began, and not knowing a lease does not mean that it is gone.)
package fallback

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/internal/derived"
)

// LocalStore is a weir.Store for one of several nodes that cannot ask the store they share: it
// decides by each node's share of the limits. Make one with NewLocal.
type LocalStore struct {
	store   weir.Store
	nodes   int64
	whole   func(*weir.Limit) bool
	only    func(*weir.Limit) bool // nil: all
	shares  *derived.Limits
	scratch sync.Pool // of *[]weir.Claim
}

// A LocalOption changes what NewLocal makes.
type LocalOption func(*LocalStore)

// WithWhole gives the limits that are not divided: those whose keys each come to one node, and
// buckets that measure something else than requests. It is asked about each claim.
func WithWhole(whole func(*weir.Limit) bool) LocalOption {
	return func(l *LocalStore) { l.whole = whole }
}

// WithOnly gives the limits that the store will be asked about. Warm counts no others: each key costs memory here,
// some 100 bytes and the key. It is asked about each claim.
func WithOnly(only func(*weir.Limit) bool) LocalOption {
	return func(l *LocalStore) { l.only = only }
}

// MaxNodes is the largest number of nodes.
const MaxNodes = 1_000_000

// NewLocal makes a LocalStore for one of so many nodes, 1 to MaxNodes, over an embedded store
// (memstore) that nothing else uses. With one node it is that store.
//
// Nodes that are fewer than expected grant less than the limit, those that are more grant more.
func NewLocal(nodes int, store weir.Store, opts ...LocalOption) (*LocalStore, error) {
	switch {
	case nodes < 1 || nodes > MaxNodes:
		return nil, bad("nodes", nodes, "1 to "+strconv.Itoa(MaxNodes)+": how many processes share the store")
	case store == nil:
		return nil, bad("local store", "nil", "a store in this process, such as memstore.New()")
	}
	l := &LocalStore{store: store, nodes: int64(nodes)}
	for _, opt := range opts {
		opt(l)
	}
	l.shares = derived.New(func(limit *weir.Limit, nodes float64) *weir.Limit { return divide(limit, int64(nodes)) })
	l.scratch.New = func() any { claims := make([]weir.Claim, 0, 8); return &claims }
	return l, nil
}

func bad(field string, given any, allowed string) error {
	return &weir.InputError{Field: field, Given: given, Allowed: allowed}
}

// Share is what this node grants of a limit.
func (l *LocalStore) Share(limit *weir.Limit) *weir.Limit {
	if l.nodes == 1 || l.whole != nil && limit != nil && l.whole(limit) {
		return limit
	}
	return l.shares.Of(limit, float64(l.nodes))
}

// follows reports whether Warm counts a limit.
func (l *LocalStore) follows(limit *weir.Limit) bool { return l.only == nil || l.only(limit) }

// claims are those on this node's shares. Hand them back with done.
func (l *LocalStore) claims(claims []weir.Claim) *[]weir.Claim {
	list := l.scratch.Get().(*[]weir.Claim)
	*list = append((*list)[:0], claims...)
	for i := range *list {
		(*list)[i].Limit = l.Share(claims[i].Limit)
	}
	return list
}

func (l *LocalStore) done(list *[]weir.Claim) {
	clear(*list) // a key may be part of a large request: let go of it
	l.scratch.Put(list)
}

// Decide implements weir.Store. What costs more than this node's share, but not more than the
// limit, is refused with a RetryAfter of a second at least: it is when the share is as if never
// used, and no promise, but nor is it Never.
func (l *LocalStore) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	mine := l.claims(claims)
	defer l.done(mine)
	granted, err := l.store.Decide(ctx, *mine, times, decisions)
	if err == nil {
		notNever(claims, decisions)
	}
	return granted, err
}

// Charge implements weir.Store.
func (l *LocalStore) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	mine := l.claims(claims)
	defer l.done(mine)
	err := l.store.Charge(ctx, *mine, decisions)
	if err == nil {
		notNever(claims, decisions)
	}
	return err
}

// Refund implements weir.Store.
func (l *LocalStore) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	mine := l.claims(claims)
	defer l.done(mine)
	err := l.store.Refund(ctx, *mine, takenAt, decisions)
	notNever(claims, decisions)
	return err
}

// notNever takes back that no wait can help, where only the share is too small.
func notNever(claims []weir.Claim, decisions []weir.Decision) {
	for i := range decisions {
		if d := &decisions[i]; d.RetryAfter == weir.Never && claims[i].Limit != nil && claims[i].Cost <= claims[i].Limit.Most() {
			d.RetryAfter = max(d.ResetAfter, time.Second)
		}
	}
}

// Reset implements weir.Store.
func (l *LocalStore) Reset(ctx context.Context, claims []weir.Claim) error {
	mine := l.claims(claims)
	defer l.done(mine)
	return l.store.Reset(ctx, *mine)
}

// Close closes the embedded store.
func (l *LocalStore) Close() error { return l.store.Close() }
