// Package layers assembles the layers before a shared store, in the order that keeps the promise of each. From
// the caller to the store:
//
//	warm      counts the shared store's grants in the local store, so that it knows them in an outage
//	ceiling   bounds what one node passes, for limits with a ceiling
//	lease     takes units ahead of need, for limits with lease terms; above recall, which must see the refunds
//	recall    answers from its refusal cache
//	coalesce  shares calls among concurrent callers
//	breaker   fails at once while the store is unavailable
//
// A call passes the first three only where the terms of its limits ask for them.
//
// Without terms all of it is exact: each field of each decision is the shared store's.
package layers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// Names are the layers that Options.Without can leave out.
var Names = []string{"breaker", "coalesce", "recall", "warm"}

// clusterRefusal is the longest memory of a refusal of a Redis Cluster: it may be due to units that
// another slot was just giving back.
const clusterRefusal = time.Second

// Terms configure the layers for one limit. The zero Terms are exact, without local counts.
type Terms struct {
	// LeaseShare, above 0 and at most 1, lets a node take units ahead of need: at most this fraction of the last known
	// remainder at a time, and of the limit at once; 0.1 is a good value. LeaseHold is the longest time that it
	// holds a unit, 1ms to 10s; 0 is 100ms. Invalid terms are no lease.
	LeaseShare float64
	LeaseHold  time.Duration
	Ceiling    float64 // one node passes at most this multiple of the limit; 0: no ceiling
	Local      bool    // the local store decides while the shared one is unavailable: see weir.NewLimiter
	Whole      bool    // the local store does not divide it among nodes
}

// Bound is the promise of a limit when a number of nodes take units of it ahead of need under these terms, such as "at
// most 10000 + 5000/1s × T + 3 × 1000 units in any T".
func (t Terms) Bound(limit *weir.Limit, nodes int) string {
	return leaseBoundOf(limit, t.lease(), nodes).String()
}

// AtOnce is what one node passes at most at one moment under a limit with a Ceiling; 0: it has no ceiling.
func (t Terms) AtOnce(limit *weir.Limit) int64 {
	if bucket := ceilingBucket(limit, t.Ceiling); t.Ceiling > 0 && bucket != nil {
		return bucket.Most()
	}
	return 0
}

func (t Terms) lease() leaseTerms { return leaseTerms{Share: t.LeaseShare, Hold: t.LeaseHold} }

// Updates broadcast messages between the nodes that share a store, as redisstore.Updates do. They are safe for
// concurrent use.
type Updates interface {
	// Publish sends a message of at most 16 KiB to all subscribers; the sender may receive it too. It may be sent
	// twice.
	Publish(ctx context.Context, message []byte) error

	// Subscribe calls receive for each message until it fails, and returns the error; it is called again then. It
	// calls missed once it has subscribed, because earlier messages may be lost. Neither function blocks.
	Subscribe(ctx context.Context, receive func(message []byte), missed func()) error
}

// Options configure a Stack.
type Options struct {
	// Local is the embedded store that decides while the shared one is unavailable, and Nodes the number of processes
	// that share that one; 0 reads as 1.
	Local weir.Store
	Nodes int
	// Bounds is the embedded store of the ceilings, made with memstore.WithoutOverflow. Nil: no limit has one.
	Bounds weir.Store
	// Terms is called for each claim, concurrently, and must always return the same for one limit. Nil: all are zero.
	Terms func(*weir.Limit) Terms
	// Updates carry changes of state between nodes. The Stack closes them if they are an io.Closer. Nil: changes
	// through other nodes are noticed after 10s at most.
	Updates Updates
	// Without are the Names of layers to leave out.
	Without []string

	// Timeout bounds a call of the shared store. It bounds the wait of callers that share a call, and a call that
	// takes three quarters of it counts as slow. 0: the shared store's own, as redisstore has one.
	Timeout time.Duration
	// Cluster says that the shared store is on a Redis Cluster.
	Cluster bool
	// BreakerChanged, if non-nil, is called when the circuit breaker opens, with the last failure, and when it is
	// closed again, with nil: sequentially, possibly in a caller's goroutine. It must be fast and must not close the
	// store.
	BreakerChanged func(open bool, cause error)
	// Warn, if non-nil, is called when updates cannot be sent or received.
	Warn func(text string)

	clock   func() time.Duration // of the refusal cache
	longest time.Duration        // for which it remembers; 0 is its default
}

// A Stack is a shared store and the layers before it.
type Stack struct {
	// Store is the store to use. Closing it closes the layers, the shared store, Bounds and Updates, but not Local.
	Store weir.Store
	// Local is the store to use while Store returns weir.ErrUnavailable: it decides by this node's share of a limit.
	Local weir.Store

	breaker   *breaker // nil where left out, as the next two
	coalescer *coalescer
	refusals  *refusalCache
	leaser    *leaser
	ceiling   *ceiling // nil without Bounds
	shared    weir.Store
}

// New puts the layers before a shared store, which must decide batches and should have a timeout, as redisstore has.
// After an error the stores and the Updates remain the caller's, and no part of the stack runs.
func New(shared weir.Store, o Options) (*Stack, error) {
	if err := o.check(shared); err != nil {
		return nil, err
	}
	local, err := newLocalStore(o.Local, localConfig{
		Nodes: max(1, o.Nodes),
		Whole: func(l *weir.Limit) bool { return o.Terms(l).Whole },
		Only:  func(l *weir.Limit) bool { return o.Terms(l).Local },
	})
	if err != nil {
		return nil, err
	}
	s := &Stack{Local: local, shared: shared}
	exact := s.addExact(&o)
	s.leaser = newLeaser(exact, func(l *weir.Limit) leaseTerms { return o.Terms(l).lease() })
	r := &router{exact: exact, leaser: s.leaser, ceiling: s.leaser, terms: o.Terms, local: local,
		mirrors: o.has("warm"), leasing: s.leaser}
	if s.refusals != nil {
		r.keyed = s.refusals // it answers refusals alone: a grant of the shared store is for the local one to count
	}
	r.updates, _ = o.Updates.(io.Closer)
	if o.Bounds != nil {
		s.ceiling = newCeiling(s.leaser, o.Bounds, func(l *weir.Limit) (float64, bool) {
			factor := o.Terms(l).Ceiling
			return factor, factor > 0
		})
		r.ceiling = s.ceiling
	}
	s.Store = r
	return s, nil
}

// addExact returns the shared store behind the layers that every call passes.
func (s *Stack) addExact(o *Options) weir.Store {
	store := s.shared
	if o.has("breaker") {
		s.breaker = newBreaker(store, breakerConfig{Slow: o.Timeout / 4 * 3, Changed: o.changed})
		store = s.breaker
	}
	if o.has("coalesce") {
		s.coalescer = newCoalescer(store, coalesceConfig{Timeout: o.Timeout, Cluster: o.Cluster})
		store = s.coalescer
	}
	if o.has("recall") {
		config := refusalConfig{Longest: o.longest, Updates: o.Updates, Warn: o.Warn, Clock: o.clock}
		if o.Cluster {
			config.Longest = clusterRefusal
		}
		s.refusals = newRefusalCache(store, config)
		store = s.refusals
	}
	return store
}

// check fills in and checks the options.
func (o *Options) check(shared weir.Store) error {
	if o.Terms == nil {
		o.Terms = func(*weir.Limit) Terms { return Terms{} }
	}
	for _, name := range o.Without {
		if !slices.Contains(Names, name) {
			return &weir.InputError{Field: "without", Given: name, Allowed: strings.Join(Names, ", ")}
		}
	}
	if _, ok := shared.(weir.Batcher); !ok {
		return &weir.InputError{Field: "shared store", Given: fmt.Sprintf("%T", shared),
			Allowed: "a store that is a weir.Batcher, such as redisstore's"}
	}
	if o.Timeout == 0 {
		o.Timeout = timeoutOf(shared)
	}
	if o.Timeout < 0 || o.Timeout == 0 && o.has("breaker") {
		return &weir.InputError{Field: "timeout", Given: o.Timeout,
			Allowed: "more than 0: this store has no Timeout method"}
	}
	return nil
}

func (o *Options) has(layer string) bool { return !slices.Contains(o.Without, layer) }

// changed leaves out the changes between open and half-open.
func (o *Options) changed(c breakerChange) {
	if o.BreakerChanged != nil && (c.From == stateClosed || c.To == stateClosed) {
		o.BreakerChanged(c.To != stateClosed, c.Cause)
	}
}

// A releaser is a store that releases leases in the background, as redisstore does.
type releaser interface {
	Releases() (pending, done, lost int64)
}

// Stats are counters since New, and states. Those of a layer that was left out are 0.
type Stats struct {
	BreakerState int   // 0 closed, 1 half-open, 2 open
	Opened       int64 // how often the circuit breaker opened
	TurnedAway   int64 // requests that failed without a call, because it was open

	Decisions int64 // of callers that may share calls
	Requests  int64 // that they became: equal ones are merged
	Calls     int64 // of the shared store, for these requests

	Recalled  int64 // refusals answered from memory
	Evicted   int64 // refusals evicted before their end
	Listening bool  // whether the updates of other nodes are received

	Leases        int64 // keys with units taken ahead of need
	LeaseTaken    int64 // units taken ahead of need, in requests
	LeaseReturned int64 // of those, the ones that were given back
	LeaseLost     int64 // of those, the ones that could not be given back: they stay charged

	CeilingRefused   int64 // requests refused by a ceiling
	CeilingUncounted int64 // granted claims that no ceiling counted, because Bounds was full

	// Of leases of concurrency limits that the shared store releases in the background, after a call for them failed.
	ReleasesPending int64 // that it still tries to release
	ReleasesDone    int64 // that are released or gone
	ReleasesLost    int64 // that it gave up: they end by their time-to-live

	ClockSteps int64 // of Redis' clock, by more than a second
}

// Stats returns the counters.
func (s *Stack) Stats() (all Stats) {
	if s.breaker != nil {
		b := s.breaker.Stats()
		all.BreakerState, all.Opened, all.TurnedAway = int(s.breaker.State()), b.Opened, b.TurnedAway
	}
	if s.coalescer != nil {
		c := s.coalescer.Stats()
		all.Decisions, all.Requests, all.Calls = c.Decisions, c.Requests, c.Trips
	}
	if s.refusals != nil {
		r := s.refusals.Stats()
		all.Recalled, all.Evicted, all.Listening = r.Recalled, r.Evicted, r.Listening
	}
	l := s.leaser.Stats()
	all.Leases, all.LeaseTaken, all.LeaseReturned, all.LeaseLost = l.Leases, l.Taken, l.Returned, l.Lost
	if s.ceiling != nil {
		all.CeilingRefused, all.CeilingUncounted = s.ceiling.refusals(), s.ceiling.uncounted()
	}
	if releasing, ok := s.shared.(releaser); ok {
		all.ReleasesPending, all.ReleasesDone, all.ReleasesLost = releasing.Releases()
	}
	if clock, ok := s.shared.(interface{ ClockSteps() int64 }); ok {
		all.ClockSteps = clock.ClockSteps()
	}
	return all
}
