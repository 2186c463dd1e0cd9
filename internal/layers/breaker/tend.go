package breaker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
)

// trip opens the breaker, unless the phase of the evidence has ended.
func (b *Breaker) trip(t *phase, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() != t || b.closed {
		return
	}
	if t.state == HalfOpen {
		b.change(b.opening(cause), cause)
		b.tripped <- struct{}{}
		return
	}
	b.down = b.now()
	b.change(b.opening(cause), cause)
	b.prober.Go(b.tend)
}

// probeRatio divides the length of the outage so far to give the interval until the next probe: recovery is
// noticed late by at most that part of the outage. With intervals that double, it would be a third.
const probeRatio = 20

// opening returns a phase that lasts until the next probe. The jitter keeps nodes that lost the store together
// from returning together. A successful probe followed by failing calls does not restart the intervals.
func (b *Breaker) opening(cause error) *phase {
	now := b.now()
	most := min(max(b.config.first, (now-b.down)/probeRatio), b.config.most)
	wait := most/2 + time.Duration(rand.Int64N(int64(most/2+1)))
	refusal := &OpenError{Next: time.Now().Add(wait), Cause: cause}
	return &phase{state: Open, began: now, wait: wait, refusal: refusal}
}

// change begins a phase. The caller holds mu.
func (b *Breaker) change(to *phase, cause error) {
	from := b.phase.Load().state
	b.phase.Store(to)
	if from == to.state {
		return
	}
	if to.state == Open {
		b.counts.opened.Add(1)
	}
	if b.config.Changed != nil {
		b.config.Changed(Change{From: from, To: to.state, At: time.Now(), Cause: cause})
	}
}

// tend probes an open breaker until it is closed.
func (b *Breaker) tend() {
	for b.ctx.Err() == nil && pause.For(b.phase.Load().wait, b.ctx.Done()) {
		if err := b.probe(); err != nil {
			b.stayOpen(err)
		} else if b.close() {
			return
		}
	}
}

// probeKeys is large enough that each node of a Cluster probably has one.
const probeKeys = 16

// probe charges, because a peek only proves that the store can be read.
func (b *Breaker) probe() error {
	b.counts.probes.Add(1)
	ctx, cancel := context.WithTimeout(b.ctx, b.config.Slow)
	defer cancel()
	key := "probe-" + strconv.FormatInt(rand.Int64N(probeKeys), 10)
	claim := weir.Claim{Key: key, Limit: b.probed, Cost: 1}
	began := b.now()
	err := b.next.Charge(ctx, []weir.Claim{claim}, nil)
	switch took := b.now() - began; {
	case errors.Is(err, weir.ErrUnavailable):
	case took >= b.config.Slow:
		err = &slowError{took, b.config.Slow}
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

// close admits a growing share of calls. It returns false if the breaker opened again meanwhile.
func (b *Breaker) close() bool {
	t := b.beginHalfOpen()
	ramp, cancel := context.WithTimeout(b.ctx, b.config.ramp)
	defer cancel()
	select {
	case <-ramp.Done():
	case <-b.tripped:
		return false
	}
	if b.ctx.Err() != nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return true
	case b.phase.Load() != t: // opened just before the lock
		<-b.tripped
		return false
	}
	b.change(b.letting(Closed), nil)
	return true
}

func (b *Breaker) beginHalfOpen() *phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.letting(HalfOpen)
	if !b.closed {
		last, _ := b.phase.Load().refusal.(*OpenError)
		t.refusal = &OpenError{Cause: last.Cause}
		b.change(t, nil)
	}
	return t
}

// letting returns a phase in which calls are admitted.
func (b *Breaker) letting(state State) *phase {
	t := &phase{state: state, began: b.now()}
	t.tally.well.Store(int64(t.began))
	return t
}

// stop ends the probes. Calls go through, to a closed store that returns its own error.
func (b *Breaker) stop() {
	b.mu.Lock()
	b.closed = true
	b.phase.Store(b.letting(Closed))
	b.mu.Unlock()
	b.cancel()
	b.prober.Wait()
}
