package recall_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/storetest"
)

// longest leaves much to memory, and is less than what a clock that steps back is given.
const longest = 24 * time.Hour

// steady makes a monotonic clock from a driven one: after a step back, all that was remembered has expired.
func steady(clock func() weir.Instant) func() time.Duration {
	var mu sync.Mutex
	var last weir.Instant
	var lost time.Duration
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now := clock()
		if now < last {
			lost += time.Duration(last-now)*time.Microsecond + 2*longest
		}
		last = now
		return time.Duration(now)*time.Microsecond + lost
	}
}

// over is a layer that is closed with the test.
func over(tb testing.TB, next weir.Store, opts ...recall.Option) *recall.Store {
	tb.Helper()
	store := recall.NewWith(next, opts...)
	tb.Cleanup(func() { store.Close() })
	return store
}

// driven are options of a layer on a driven clock.
func driven(clock func() time.Duration) []recall.Option {
	return []recall.Option{recall.WithClock(clock), recall.WithLongest(longest)}
}

func subject(t testing.TB, clock func() weir.Instant) storetest.Handle {
	if clock == nil {
		return storetest.Handle{Store: over(t, memstore.New()), Recalls: true}
	}
	store := over(t, memstore.New(memstore.WithClock(clock)), driven(steady(clock))...)
	return storetest.Handle{Store: store, Recalls: true}
}

func TestStore(t *testing.T)   { storetest.Run(t, subject) }
func TestVectors(t *testing.T) { storetest.Vectors(t, subject) }

// shared is a store that several nodes have; it outlives each of them.
type shared struct{ *memstore.Store }

func (shared) Close() error { return nil }

// notified is a node that receives messages before its calls return.
type notified struct {
	*recall.Node
	other *notified
}

func (n *notified) deliver() {
	for _, message := range n.Messages() {
		n.other.Hear(message)
	}
}

func (n *notified) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	defer n.deliver()
	return n.Node.Charge(ctx, claims, d)
}

func (n *notified) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	defer n.deliver()
	return n.Node.Refund(ctx, claims, at, d)
}

func (n *notified) Reset(ctx context.Context, claims []weir.Claim) error {
	defer n.deliver()
	return n.Node.Reset(ctx, claims)
}

// pair are two nodes over one store.
func pair(t testing.TB, below *memstore.Store, clock func() time.Duration) (a, b *notified) {
	t.Helper()
	a, b = new(notified), new(notified)
	for _, n := range []*notified{a, b} {
		node := recall.NewNode(shared{below}, driven(clock)...)
		n.Node = node
	}
	a.other, b.other = b, a
	return a, b
}

// TestTwoNodes is the suite on one node, with the peer's steps on another, whose messages arrive at once.
func TestTwoNodes(t *testing.T) {
	both := func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		if clock == nil {
			return subject(t, nil)
		}
		below := memstore.New(memstore.WithClock(clock))
		t.Cleanup(func() { below.Close() })
		a, b := pair(t, below, steady(clock))
		return storetest.Handle{Store: a, Peer: func() weir.Store { return b }, Recalls: true}
	}
	storetest.Run(t, both)
}
