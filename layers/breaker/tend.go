package breaker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirproject/weir"
)

// trip opens the breaker, unless the term in which the evidence was found is over.
func (b *Breaker) trip(t *term, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term.Load() != t || b.closed {
		return
	}
	if t.state == Closing {
		b.change(b.opening(cause), cause)
		b.tripped <- struct{}{}
		return
	}
	b.down = b.now()
	b.change(b.opening(cause), cause)
	b.tended.Go(b.tend)
}

// patience is what part of the time that the store has been gone passes before the next probe.
// An outage lasts by so much longer at most; with distances that double it would be a third.
const patience = 20

// opening is a term until the next probe. The jitter keeps nodes that lost the store together
// from coming back to it together. A probe that went well where calls then failed is no new
// beginning.
func (b *Breaker) opening(cause error) *term {
	now := b.now()
	most := min(max(b.config.first, (now-b.down)/patience), b.config.most)
	wait := most/2 + rand.N(most/2+1)
	return &term{state: Open, began: now, wait: wait, refusal: &OpenError{Next: time.Now().Add(wait), Cause: cause}}
}

// change begins a term. The caller holds mu.
func (b *Breaker) change(to *term, cause error) {
	from := b.term.Load().state
	b.term.Store(to)
	if from == to.state {
		return
	}
	if to.state == Open {
		b.counts.opened.Add(1)
	}
	if b.config.changed != nil {
		b.config.changed(Change{From: from, To: to.state, At: time.Now(), Cause: cause})
	}
}

// tend probes an open breaker until it is closed.
func (b *Breaker) tend() {
	for b.pause(b.term.Load().wait) {
		if err := b.probe(); err != nil {
			b.stayOpen(err)
		} else if b.close() {
			return
		}
	}
}

// pause reports whether the time passed before the breaker was stopped.
func (b *Breaker) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// probeKeys are as many as make it likely that each node of a Cluster has one.
const probeKeys = 16

// probe charges, because a peek proves only that the store can be read.
func (b *Breaker) probe() error {
	b.counts.probes.Add(1)
	ctx, cancel := context.WithTimeout(b.ctx, b.config.slow)
	defer cancel()
	claim := weir.Claim{Key: "probe-" + strconv.Itoa(rand.IntN(probeKeys)), Limit: b.probed, Cost: 1}
	began := b.now()
	err := b.next.Charge(ctx, []weir.Claim{claim}, nil)
	switch took := b.now() - began; {
	case errors.Is(err, weir.ErrUnavailable):
	case took >= b.config.slow:
		err = &slowError{took, b.config.slow}
	default:
		return nil
	}
	b.counts.probesLost.Add(1)
	return err
}

func (b *Breaker) stayOpen(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.change(b.opening(cause), cause)
	}
}

// close lets calls in by and by. It reports whether the breaker is closed in the end; else
// it is open again.
func (b *Breaker) close() bool {
	t := b.beginClosing()
	timer := time.NewTimer(b.config.ramp)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.tripped:
		return false
	case <-b.ctx.Done():
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return true
	case b.term.Load() != t: // it opened in the last moment
		<-b.tripped
		return false
	}
	b.change(b.letting(Closed), nil)
	return true
}

func (b *Breaker) beginClosing() *term {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.letting(Closing)
	if !b.closed {
		last, _ := b.term.Load().refusal.(*OpenError)
		t.refusal = &OpenError{Cause: last.Cause}
		b.change(t, nil)
	}
	return t
}

// letting is a term in which calls are let in.
func (b *Breaker) letting(state State) *term {
	t := &term{state: state, began: b.now()}
	t.tally.well.Store(int64(t.began))
	return t
}

// stop ends the probes. Calls go through, to a store that says that it is closed.
func (b *Breaker) stop() {
	b.mu.Lock()
	b.closed = true
	b.term.Store(b.letting(Closed))
	b.mu.Unlock()
	b.cancel()
	b.tended.Wait()
}
