package layers_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// A fault is what goes wrong in [from, to).
type fault struct {
	kind     string // one of the following
	from, to time.Duration
	nodes    []int         // that meet it, from 1; nil: all
	by       time.Duration // slow: added to each round trip
	share    float64       // failing: of the calls
	lose     time.Duration // down: writes of so long before from are lost at to
}

// The kinds of faults.
const (
	down    = "down"  // connections are refused
	hang    = "hang"  // Redis is frozen: it executes the calls when it goes on
	cut     = "cut"   // nothing passes the network, in either direction
	slow    = "slow"  // round trips take longer
	failing = "error" // calls are answered with an error, and not executed
)

// Errors of the simulated network, with the words of redisstore.
var (
	errRefused = fmt.Errorf("%w (%w): connection refused", weir.ErrUnavailable, weir.ErrNotExecuted)
	errAnswer  = fmt.Errorf("%w (%w): Redis answers with an error", weir.ErrUnavailable, weir.ErrNotExecuted)
	errLate    = fmt.Errorf("%w (it is unknown whether the call was executed): timeout", weir.ErrUnavailable)
	errEnded   = fmt.Errorf("%w (%w): no time was left", weir.ErrUnavailable, weir.ErrNotExecuted)
)

// A latency is the distribution of round trips: log-normal by its median and its 99th percentile.
type latency struct{ p50, p99 time.Duration }

// quantile99 is the 99th percentile of the normal distribution.
const quantile99 = 2.3263478740408408

// A network is between the nodes and the server.
type network struct {
	*simulation
	began   time.Time
	server  *server
	calls   atomic.Int64
	mu      sync.Mutex // of what follows
	random  *rand.Rand
	members []*subscription
}

// roundTrip draws the time there and back of a node now.
func (n *network) roundTrip(node int) time.Duration {
	n.mu.Lock()
	sigma := math.Log(float64(n.latency.p99)/float64(n.latency.p50)) / quantile99
	d := time.Duration(float64(n.latency.p50) * math.Exp(sigma*n.random.NormFloat64()))
	n.mu.Unlock()
	if f := n.fault(slow, node); f != nil {
		d += f.by
	}
	return d.Round(time.Microsecond)
}

// fault is one of a kind that a node has now; nil: it has none.
func (n *network) fault(kind string, node int) *fault {
	now := time.Since(n.began)
	for i := range n.faults {
		f := &n.faults[i]
		if f.kind == kind && now >= f.from && now < f.to && (f.nodes == nil || slices.Contains(f.nodes, node)) {
			return f
		}
	}
	return nil
}

// chance draws whether something of a probability happens.
func (n *network) chance(of float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.Float64() < of
}

// A wire is the shared store as one node has it.
type wire struct {
	*network
	node int
}

// Timeout is that of each call.
func (w *wire) Timeout() time.Duration { return w.timeout }

// call sends an operation, and waits for its answer, no longer than redisstore would. A copy travels: the
// caller may leave first.
func (w *wire) call(ctx context.Context, o *operation) error {
	w.calls.Add(1)
	end := time.Now().Add(w.timeout - w.timeout/16)
	if own, ok := ctx.Deadline(); ok && own.Before(end) {
		end = own
	}
	if ctx.Err() != nil || !time.Now().Before(end) {
		o.fail(errEnded)
		return o.err
	}
	answer := make(chan *operation, 1)
	if w.fault(cut, w.node) == nil {
		go w.carry(o.copied(), answer)
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case answered := <-answer:
		o.take(answered)
	case <-timer.C:
		o.fail(errLate)
	}
	return o.err
}

// carry brings a call to the server and its answer back.
func (w *wire) carry(o *operation, answer chan<- *operation) {
	trip := w.roundTrip(w.node)
	time.Sleep(trip - trip/2)
	for f := w.fault(hang, w.node); f != nil; f = w.fault(hang, w.node) {
		time.Sleep(time.Until(w.began.Add(f.to)))
	}
	broken := w.fault(failing, w.node)
	switch {
	case w.fault(down, w.node) != nil:
		o.fail(errRefused)
	case broken != nil && w.chance(broken.share):
		o.fail(errAnswer)
	default:
		w.server.execute(w.began, o)
	}
	time.Sleep(trip / 2)
	if w.fault(cut, w.node) == nil {
		answer <- o
	}
}

func (w *wire) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	o := &operation{requests: []weir.Request{{Claims: claims, Times: times, Decisions: decisions}}}
	o.do = func(s *memstore.Store, o *operation) {
		r := &o.requests[0]
		r.Granted, o.err = s.Decide(context.Background(), r.Claims, r.Times, r.Decisions)
	}
	err := w.call(ctx, o)
	return o.requests[0].Granted, err
}

func (w *wire) DecideBatch(ctx context.Context, requests []weir.Request) {
	w.call(ctx, &operation{requests: requests, do: func(s *memstore.Store, o *operation) {
		s.DecideBatch(context.Background(), o.requests)
	}})
}

func (w *wire) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return w.change(ctx, claims, decisions, func(s *memstore.Store, r *weir.Request) error {
		return s.Charge(context.Background(), r.Claims, r.Decisions)
	})
}

func (w *wire) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	return w.change(ctx, claims, decisions, func(s *memstore.Store, r *weir.Request) error {
		return s.Refund(context.Background(), r.Claims, takenAt, r.Decisions)
	})
}

func (w *wire) Reset(ctx context.Context, claims []weir.Claim) error {
	return w.change(ctx, claims, nil, func(s *memstore.Store, r *weir.Request) error {
		return s.Reset(context.Background(), r.Claims)
	})
}

func (w *wire) change(ctx context.Context, claims []weir.Claim, decisions []weir.Decision,
	do func(*memstore.Store, *weir.Request) error) error {
	return w.call(ctx, &operation{requests: []weir.Request{{Claims: claims, Decisions: decisions}},
		do: func(s *memstore.Store, o *operation) { o.err = do(s, &o.requests[0]) }})
}

func (w *wire) Close() error { return nil }

// An operation is a call of a store as data, so that it can travel.
type operation struct {
	requests []weir.Request
	do       func(*memstore.Store, *operation)
	err      error
}

// fail answers a call that was not executed, or whose answer was lost.
func (o *operation) fail(err error) {
	o.err = err
	for i := range o.requests {
		o.requests[i].Granted, o.requests[i].Err = 0, err
	}
}

// copied is the operation in memory of its own.
func (o *operation) copied() *operation {
	c := &operation{requests: slices.Clone(o.requests), do: o.do}
	for i := range c.requests {
		r := &c.requests[i]
		r.Claims, r.Decisions = slices.Clone(r.Claims), slices.Clone(r.Decisions)
		for j := range r.Claims {
			r.Claims[j].Key = strings.Clone(r.Claims[j].Key)
		}
	}
	return c
}

// take copies the answers of an operation.
func (o *operation) take(answered *operation) {
	o.err = answered.err
	for i := range o.requests {
		to, from := &o.requests[i], &answered.requests[i]
		to.Granted, to.Err = from.Granted, from.Err
		copy(to.Decisions, from.Decisions)
	}
}

// service is the time that Redis needs for a call: docs/howto/redis.md has 7 to 25 µs of the usual ones.
const service = 15 * time.Microsecond

// A server is the simulated Redis: an embedded store, which decides as Redis does to the microsecond, behind one
// thread. It has a store for each time that it loses writes: until a loss, the next store executes the calls too, as
// long as their effect is not lost.
type server struct {
	mu     sync.Mutex
	stores []*memstore.Store // the first one serves
	losses []fault           // the next one is between the first store and the second
	free   time.Time         // when the thread has no more to do
}

func newServer(faults []fault) *server {
	s := &server{stores: []*memstore.Store{memstore.New()}}
	for _, f := range faults {
		if f.kind == down && f.lose > 0 {
			s.losses, s.stores = append(s.losses, f), append(s.stores, memstore.New())
		}
	}
	return s
}

// execute executes an operation when its turn has come.
func (s *server) execute(began time.Time, o *operation) {
	time.Sleep(time.Until(s.turn()))
	s.apply(time.Since(began), o)
	time.Sleep(service)
}

func (s *server) turn() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := time.Now()
	if begin.Before(s.free) {
		begin = s.free
	}
	s.free = begin.Add(service)
	return begin
}

func (s *server) apply(now time.Duration, o *operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.losses) > 0 && s.losses[0].to <= now {
		s.losses, s.stores = s.losses[1:], s.stores[1:]
	}
	for i, l := range s.losses {
		if now >= l.from-l.lose {
			break
		}
		c := o.copied()
		c.do(s.stores[i+1], c)
	}
	o.do(s.stores[0], o)
}

// A subscription has the messages of the refusal cache of a node, by publish and subscribe of the server.
type subscription struct {
	*wire
	receive func([]byte) // nil: not subscribed
	broken  chan struct{}
}

// reachable reports whether a message to or from a node passes now.
func (u *subscription) reachable() bool {
	return u.fault(down, u.node) == nil && u.fault(hang, u.node) == nil && u.fault(cut, u.node) == nil
}

func (u *subscription) Publish(ctx context.Context, message []byte) error {
	time.Sleep(u.roundTrip(u.node))
	if ctx.Err() != nil || !u.reachable() {
		return errRefused
	}
	for _, other := range u.members {
		time.AfterFunc(other.roundTrip(other.node)/2, func() { other.deliver(message) })
	}
	return nil
}

func (u *subscription) deliver(message []byte) {
	u.mu.Lock()
	receive := u.receive
	u.mu.Unlock()
	if receive != nil && u.reachable() {
		receive(message)
	}
}

// Subscribe returns when the connection breaks, or ctx ends.
func (u *subscription) Subscribe(ctx context.Context, receive func([]byte), missed func()) error {
	time.Sleep(u.roundTrip(u.node))
	if ctx.Err() != nil || !u.reachable() {
		return errRefused
	}
	broken := make(chan struct{})
	u.mu.Lock()
	u.receive, u.broken = receive, broken
	u.mu.Unlock()
	missed()
	select {
	case <-broken:
	case <-ctx.Done():
		u.breakOff()
	}
	return errRefused
}

func (u *subscription) breakOff() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.receive != nil {
		u.receive = nil
		close(u.broken)
	}
}

// breakOff ends the subscriptions of the nodes that a fault cuts off.
func (n *network) breakOff() {
	for _, u := range n.members {
		if !u.reachable() {
			u.breakOff()
		}
	}
}
