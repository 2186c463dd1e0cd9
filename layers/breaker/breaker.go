// Package breaker puts a circuit breaker before a store: when the store fails or becomes
// slow, calls of it fail at once instead of waiting, until it is well again.
//
//	b, err := breaker.New(redis)
//	store := b.Store() // coalesce, recall and the like go on top of it
//
// # Closed
//
// Calls go through and are counted. The breaker opens when calls fail in a row while nobody
// gets an answer, which is how a store that froze or died looks, or when too large a share of
// the last second's calls failed or were slow (WithSlow). To fail is to return
// weir.ErrUnavailable. What a caller has done to himself is none: wrong input, a context that
// he cancelled or that left too little time, unless he had waited longer than a call may take.
// Nor is foreign state under one key, or a lease that is gone: they are answers. Slow answers
// alone never count as calls that fail in a row: it may be this process that stood still.
//
// Each call that is under way when a store freezes waits for its timeout, which is the
// store's, and so do those that come until the first of them are over: so many as come in
// one timeout, and a handful more.
//
// # Open
//
// Calls fail with an [*OpenError]. In the background, and with no caller waiting for it, the
// store is probed, by one call at a time, the less often the longer it has been gone, with jitter. A probe charges a
// key of its own, because a read-only replica and a server that is out of memory answer
// everything but writes. It is one of 16 keys, so that in a Cluster not all probes go to
// one node. They are under the limit "weir.breaker", and gone a second later.
//
// # Closing
//
// After a probe that went well a growing share of calls is let in, by chance, from none to all
// within WithRamp; the others fail as if it were open. If those that are let in fail, it opens
// again, and the distance between probes goes on growing.
//
// # Beside redisstore
//
// Its timeout bounds each call, and so what a probe costs and how long callers wait before the
// breaker opens. Its valve, which is shut by 256 calls given up in a row, is what a program
// without a breaker has; behind one it is seldom reached, and a probe is what opens it again.
package breaker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A Breaker watches one store. It is safe for concurrent use.
type Breaker struct {
	next   weir.Store
	config config
	born   time.Time
	term   atomic.Pointer[term]
	counts counts

	ctx    context.Context // of the probes
	cancel context.CancelFunc
	probed *weir.Limit
	tended sync.WaitGroup

	mu      sync.Mutex // of changes of the term
	closed  bool
	down    time.Duration // when it opened that was closed
	tripped chan struct{} // it opened while it was closing; has room for one
}

// New makes a breaker before next. Its store owns next: closing it closes next.
func New(next weir.Store, opts ...Option) (*Breaker, error) {
	c, err := newConfig(next, opts)
	if err != nil {
		return nil, err
	}
	probed, err := weir.NewLimit("weir.breaker", weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Second})
	if err != nil {
		return nil, err
	}
	b := &Breaker{next: next, config: c, born: time.Now(), probed: probed, tripped: make(chan struct{}, 1)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.term.Store(b.letting(Closed))
	return b, nil
}

// Store is what to ask instead of the store behind the breaker. It decides batches
// (weir.Batcher) if that one does. It is no weir.Shortcut, even if that one is.
func (b *Breaker) Store() weir.Store {
	if batcher, ok := b.next.(weir.Batcher); ok {
		return &batchStore{store{b}, batcher}
	}
	return &store{b}
}

// State is what it is now.
func (b *Breaker) State() State { return b.term.Load().state }

// Stats are counts since the breaker was made.
type Stats struct {
	Opened     int64 // times it opened, also again while it was closing
	TurnedAway int64 // requests that failed at once
	Failed     int64 // requests that were let in and not answered
	Slow       int64 // requests that were answered too late
	Probes     int64
	ProbesLost int64 // probes that failed or took too long
}

type counts struct{ opened, turnedAway, failed, slow, probes, probesLost atomic.Int64 }

// Stats counts.
func (b *Breaker) Stats() Stats {
	c := &b.counts
	return Stats{Opened: c.opened.Load(), TurnedAway: c.turnedAway.Load(), Failed: c.failed.Load(),
		Slow: c.slow.Load(), Probes: c.probes.Load(), ProbesLost: c.probesLost.Load()}
}

// now is the time since the breaker was made: time.Since reads one clock, time.Now two.
func (b *Breaker) now() time.Duration { return time.Since(b.born) }

// enter lets a call in, or says why not.
func (b *Breaker) enter() (*term, time.Duration, error) {
	t, now := b.term.Load(), b.now()
	if t.state != Closed && !t.admits(now, b.config.ramp) {
		return t, now, t.refusal
	}
	return t, now, nil
}

// admits reports whether a call is among those that are let in while the breaker closes.
func (t *term) admits(now, ramp time.Duration) bool {
	return t.state == Closing && rand.Int64N(int64(ramp)) < int64(now-t.began)
}

// An outcome is what requests that went through were to the store.
type outcome struct {
	answered int64
	slow     int64 // answered, but late
	lost     int64
	left     int64 // ended by their callers: they say nothing about the store
	unheard  int64 // wrong: nor do they
	cause    error // of the last that was lost
}

// add counts one request.
func (o *outcome) add(ctx context.Context, err error) {
	switch {
	case err == nil, errors.Is(err, weir.ErrLeaseGone), errors.Is(err, weir.ErrForeignState):
		o.answered++
	case errors.Is(err, weir.ErrUnavailable) && !over(ctx):
		o.lost++
		o.cause = err
	case errors.Is(err, weir.ErrUnavailable):
		o.left++
	default:
		o.unheard++
	}
}

// over reports whether a context has ended. Connections have the same deadline, and may be
// a little faster.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// late is the same after a time in which there should have been an answer, also for a caller
// who did not wait for it. A batch of which a part was lost took so long for that part: when
// the others were answered nobody knows, and to call them slow would turn away the callers of
// two nodes of a Cluster because the third is frozen.
func (o *outcome) late(took, slow time.Duration) {
	if o.lost+o.left == 0 {
		o.slow, o.answered = o.answered, 0
	}
	o.lost, o.left, o.unheard = o.lost+o.left+o.unheard, 0, 0
	if o.cause == nil {
		o.cause = &slowError{took, slow}
	}
}

// leave counts what came of a call that was let in. It counts in the term in which the call
// began: what is answered late says nothing about the store of today.
func (b *Breaker) leave(t *term, began time.Duration, o outcome) {
	now := b.now()
	if took := now - began; took >= b.config.slow {
		o.late(took, b.config.slow)
	}
	if o.slow+o.lost > 0 {
		b.counts.slow.Add(o.slow)
		b.counts.failed.Add(o.lost)
	}
	if t.tally.count(now, began, &b.config, &o) {
		b.trip(t, o.cause)
	}
}
