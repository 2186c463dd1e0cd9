package simulate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirproject/weir"
)

// Errors of the simulated network, with the words of redisstore.
var (
	errRefused = fmt.Errorf("%w (%w): connection refused", weir.ErrUnavailable, weir.ErrNotExecuted)
	errAnswer  = fmt.Errorf("%w (%w): Redis answers with an error", weir.ErrUnavailable, weir.ErrNotExecuted)
	errLate    = fmt.Errorf("%w (it is unknown whether the call was executed): timeout", weir.ErrUnavailable)
	errEnded   = fmt.Errorf("%w (%w): no time was left", weir.ErrUnavailable, weir.ErrNotExecuted)
)

// A network is between the nodes and the server.
type network struct {
	*scheduler
	server  *server
	faults  []Fault
	latency Latency
	timeout time.Duration
	random  *rand.Rand
	calls   int64
	members []*updates
}

// roundTrip draws the time there and back at a time.
func (n *network) roundTrip(node int) time.Duration {
	d := n.latency.draw(n.random)
	if f := n.fault(Slow, node); f != nil {
		d += f.By
	}
	return d.Round(time.Microsecond)
}

// fault is one of a kind that a node has now; nil: none.
func (n *network) fault(kind FaultKind, node int) *Fault {
	for i := range n.faults {
		f := &n.faults[i]
		if f.Kind == kind && n.now >= f.From && n.now < f.To && (f.Nodes == nil || slices.Contains(f.Nodes, node)) {
			return f
		}
	}
	return nil
}

// A wire is the shared store as one node has it.
type wire struct {
	*network
	node int
}

// A transit is a call under way.
type transit struct {
	*operation
	process *process
	turn    uint64
	back    time.Duration
	left    bool // the caller does not wait any longer
	over    bool
}

// Timeout is that of each call.
func (w *wire) Timeout() time.Duration { return w.timeout }

// call sends an operation, and waits for its answer, no longer than redisstore would.
func (w *wire) call(ctx context.Context, o *operation) error {
	w.calls++
	end := w.end(ctx)
	if ctx.Err() != nil || end <= w.now {
		o.fail(errEnded)
		return o.err
	}
	trip := w.roundTrip(w.node)
	t := &transit{operation: o, process: w.running, turn: w.running.turn, back: trip / 2}
	if w.fault(Cut, w.node) == nil {
		w.at(w.now+trip-trip/2, func() { w.arrive(t) })
	}
	w.wake(t.process, t.turn, end)
	w.park()
	if !t.over {
		t.operation, t.left = o.copied(), true
		o.fail(errLate)
	}
	return o.err
}

// end is when the caller is given up.
func (w *wire) end(ctx context.Context) time.Duration {
	end := w.now + w.timeout - w.timeout/16
	if own, ok := ctx.Deadline(); ok {
		end = min(end, own.Sub(w.epoch))
	}
	return end
}

// arrive is the call at the server.
func (w *wire) arrive(t *transit) {
	hang := w.fault(Hang, w.node)
	failing := w.fault(Failing, w.node)
	switch {
	case w.fault(Down, w.node) != nil:
		w.answer(t, errRefused, w.now+t.back)
	case hang != nil:
		w.at(hang.To, func() { w.arrive(t) })
	case failing != nil && w.random.Float64() < failing.Share:
		w.answer(t, errAnswer, w.now+t.back)
	default:
		w.answer(t, nil, w.server.execute(t.operation, w.now, w.epoch)+t.back)
	}
}

// answer wakes the caller when the answer is there, if it waits.
func (w *wire) answer(t *transit, err error, when time.Duration) {
	w.at(when, func() {
		if t.left || w.fault(Cut, w.node) != nil || t.process.turn != t.turn {
			return
		}
		if err != nil {
			t.fail(err)
		}
		t.over = true
		w.wake(t.process, t.turn, w.now)
	})
}

// Decide implements weir.Store.
func (w *wire) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	o := &operation{kind: decide, claims: claims, times: times, decisions: decisions}
	err := w.call(ctx, o)
	return o.granted, err
}

// DecideBatch implements weir.Batcher.
func (w *wire) DecideBatch(ctx context.Context, requests []weir.Request) {
	w.call(ctx, &operation{kind: decideBatch, requests: requests}) // its error is in each request
}

// Charge implements weir.Store.
func (w *wire) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return w.call(ctx, &operation{kind: charge, claims: claims, decisions: decisions})
}

// Refund implements weir.Store.
func (w *wire) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	return w.call(ctx, &operation{kind: refund, claims: claims, takenAt: takenAt, decisions: decisions})
}

// Reset implements weir.Store.
func (w *wire) Reset(ctx context.Context, claims []weir.Claim) error {
	return w.call(ctx, &operation{kind: reset, claims: claims})
}

// Close implements weir.Store.
func (w *wire) Close() error { return nil }

// updates are the messages of the refusal cache of a node, by publish and subscribe of the server.
type updates struct {
	*wire
	receive func([]byte) // nil: not subscribed
	broken  chan struct{}
}

// reachable reports whether a message to or from a node passes now.
func (u *updates) reachable() bool {
	return u.fault(Down, u.node) == nil && u.fault(Hang, u.node) == nil && u.fault(Cut, u.node) == nil
}

// Publish implements layers.Updates.
func (u *updates) Publish(ctx context.Context, message []byte) error {
	u.sleep(u.roundTrip(u.node))
	if ctx.Err() != nil || !u.reachable() {
		return errRefused
	}
	for _, other := range u.members {
		u.at(u.now+other.roundTrip(other.node)/2, func() {
			if other.receive != nil && other.reachable() {
				other.receive(message)
			}
		})
	}
	return nil
}

// Subscribe implements layers.Updates. It returns when the connection breaks, or ctx ends.
func (u *updates) Subscribe(ctx context.Context, receive func([]byte), missed func()) error {
	u.sleep(u.roundTrip(u.node))
	if ctx.Err() != nil || !u.reachable() {
		return errRefused
	}
	u.receive, u.broken = receive, make(chan struct{})
	missed()
	u.Wait(u.broken, ctx)
	u.receive = nil
	return errRefused
}

// breakOff ends the subscriptions of the nodes that a fault cuts off.
func (n *network) breakOff() {
	for _, u := range n.members {
		if u.receive != nil && !u.reachable() {
			u.receive = nil
			close(u.broken)
		}
	}
}

// A Latency is the distribution of round trips: log-normal by its median and its 99th percentile, or fixed if they
// are equal.
type Latency struct{ P50, P99 time.Duration }

// quantile99 is the 99th percentile of the normal distribution.
const quantile99 = 2.3263478740408408

func (l Latency) draw(random *rand.Rand) time.Duration {
	if l.P99 <= l.P50 {
		return l.P50
	}
	sigma := math.Log(float64(l.P99)/float64(l.P50)) / quantile99
	return time.Duration(math.Min(float64(l.P50)*math.Exp(sigma*random.NormFloat64()), float64(maxLatency)))
}
