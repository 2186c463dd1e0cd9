// Package breaker puts a circuit breaker before a store: while the store fails or is slow, calls fail at once
// instead of waiting.
//
// # Closed
//
// Calls go through and are counted. The breaker opens when calls fail in a row while none is answered, which is how a
// frozen or dead store looks, or when too large a share of the last second's calls failed or was slow (Config.Slow).
// A failure is a weir.ErrUnavailable. Caller errors are not failures: wrong input, a cancelled context, a deadline
// too short, unless the call took longer than that. A foreign value under one key and a lease that is gone are
// answers. Slow answers alone never count as a row of failures: this process may have been paused.
//
// Calls under way when a store freezes wait for the store's timeout, and so do those that begin before the
// first of them ends: about as many as arrive within one timeout.
//
// # Open
//
// Calls fail with an [*OpenError]. A background goroutine probes the store, one call at a time, less often the
// longer the outage lasts, with jitter. A probe charges a key, because a read-only replica and a server out of
// memory answer everything but writes. It uses 16 keys at random, so that in a Cluster not all probes go to one
// node. The keys are under the limit "weir.breaker" and expire after a second.
//
// # Half-open
//
// After a successful probe a random share of the calls is admitted, growing from none to all in 250 ms; the
// others fail as while open. If the admitted calls fail, the breaker opens again, and the interval between
// probes goes on growing.
//
// # Beside redisstore
//
// The timeout of redisstore bounds each call, hence the cost of a probe and the wait of callers before the
// breaker opens. Its own valve, which shuts after 256 abandoned calls in a row, is for programs without a
// breaker; behind a breaker it is seldom reached, and a probe opens it again.
package breaker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A Config configures New. The unexported fields are constants but for tests.
type Config struct {
	// Slow is the duration from which a call counts as slow, which is a failure: more than 0, such as three quarters of
	// the store's timeout. (A fixed default would take a healthy but distant store for dead.) It bounds probes as well.
	// A caller with a shorter deadline gives no evidence about the store when it gives up.
	Slow time.Duration
	// Changed, if non-nil, receives each change of the state, sequentially. It runs during the change, possibly in a
	// caller's goroutine: it must be fast and must not close the store.
	Changed func(Change)

	burst       int64         // failures in a row that open the breaker, if none is answered for as long as Slow
	first, most time.Duration // bounds of the interval between probes, which is jittered down to a half
	ramp        time.Duration // from the first successful probe until all calls are admitted
}

// The breaker opens when this share of the requests of a window failed, if there were at least so many. Below a half,
// the loss of one master of a Cluster of three would count as the loss of the whole.
const (
	failedShare = 0.5
	window      = time.Second
	leastCalls  = 20
)

// A Breaker is a weir.Store before another, which it watches. It is safe for concurrent use, and no shortcut.
type Breaker struct {
	next   weir.Store
	config Config
	born   time.Time
	phase  atomic.Pointer[phase]
	counts counts

	ctx    context.Context // for the probes
	cancel context.CancelFunc
	probed *weir.Limit
	prober sync.WaitGroup

	mu      sync.Mutex // serializes changes of the phase
	closed  bool
	down    time.Duration // when the outage began
	tripped chan struct{} // signals: opened while half-open; capacity 1
}

// New returns a breaker before next. Closing it closes next.
func New(next weir.Store, config Config) *Breaker {
	config.burst = cmp.Or(config.burst, 5)
	config.first, config.most = cmp.Or(config.first, 50*time.Millisecond), cmp.Or(config.most, 500*time.Millisecond)
	config.ramp = cmp.Or(config.ramp, 250*time.Millisecond)
	b := &Breaker{
		next: next, config: config, born: time.Now(), tripped: make(chan struct{}, 1),
		probed: weir.MustLimit("weir.breaker", weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Second}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.phase.Store(b.letting(Closed))
	return b
}

// State returns the current state.
func (b *Breaker) State() State { return b.phase.Load().state }

// Stats are counters since New.
type Stats struct {
	Opened     int64 // transitions to Open, including those from HalfOpen
	TurnedAway int64 // requests that failed without a call
	Failed     int64 // admitted requests without an answer
	Slow       int64 // requests answered after Config.Slow
	Probes     int64
	ProbesLost int64 // probes that failed or took too long
}

type counts struct{ opened, turnedAway, failed, slow, probes, probesLost atomic.Int64 }

// Stats returns the counters.
func (b *Breaker) Stats() Stats {
	c := &b.counts
	return Stats{Opened: c.opened.Load(), TurnedAway: c.turnedAway.Load(), Failed: c.failed.Load(),
		Slow: c.slow.Load(), Probes: c.probes.Load(), ProbesLost: c.probesLost.Load()}
}

// now is the time since New. time.Since reads one clock, time.Now two.
func (b *Breaker) now() time.Duration { return time.Since(b.born) }

// enter admits a call, or returns the error that refuses it.
func (b *Breaker) enter() (*phase, time.Duration, error) {
	t, now := b.phase.Load(), b.now()
	if t.state != Closed && !b.admits(t, now) {
		return t, now, t.refusal
	}
	return t, now, nil
}

// admits decides at random whether a half-open breaker admits a call.
func (b *Breaker) admits(t *phase, now time.Duration) bool {
	return t.state == HalfOpen && rand.Int64N(int64(b.config.ramp)) < int64(now-t.began)
}

// An outcome counts the requests of one admitted call by their effect on the breaker.
type outcome struct {
	answered int64
	slow     int64 // answered, but later than Config.Slow
	lost     int64
	left     int64 // ended by their callers: no evidence about the store
	invalid  int64 // wrong input: no evidence either
	cause    error // error of the last lost request
}

// add counts one request.
func (b *Breaker) add(ctx context.Context, o *outcome, err error) {
	switch {
	case err == nil, errors.Is(err, weir.ErrLeaseGone), errors.Is(err, weir.ErrForeignState):
		o.answered++
	case errors.Is(err, weir.ErrUnavailable) && !b.over(ctx):
		o.lost++
		o.cause = err
	case errors.Is(err, weir.ErrUnavailable):
		o.left++
	default:
		o.invalid++
	}
}

// over reports whether a context has ended. Connections have the same deadline and may end slightly earlier.
func (b *Breaker) over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// late corrects an outcome for a call that took at least Config.Slow: abandoned requests count as lost. In a batch
// with lost requests, the answered ones are not called slow, because the time at which they were answered is
// unknown: (tempting, and wrong) calling them slow would refuse the callers of two nodes of a Cluster because
// the third is frozen.
func (o *outcome) late(took, slow time.Duration) {
	if o.lost+o.left == 0 {
		o.slow, o.answered = o.answered, 0
	}
	o.lost += o.left + o.invalid
	o.left, o.invalid = 0, 0
	if o.cause == nil {
		o.cause = &slowError{took, slow}
	}
}

// leave counts the outcome of an admitted call in the phase in which the call began: a late answer says nothing
// about the current state of the store.
func (b *Breaker) leave(t *phase, began time.Duration, o outcome) {
	now := b.now()
	if took := now - began; took >= b.config.Slow {
		o.late(took, b.config.Slow)
	}
	if o.slow+o.lost > 0 {
		b.counts.slow.Add(o.slow)
		b.counts.failed.Add(o.lost)
	}
	if t.tally.count(now, began, &b.config, &o) {
		b.trip(t, o.cause)
	}
}
